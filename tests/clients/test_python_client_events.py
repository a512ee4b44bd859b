"""PyPI `opencode-client-python` 0.2.0, made for OpenCode 1.18: each event that it has a type for comes as that type.

It falls back to an untyped event, silently, where a field is missing that it requires.
"""

from collections.abc import Iterator

import httpx2
import pytest
from opencode_client.models import event as of_client
from opencode_client.models.event import EVENT_CATALOG, Event
from opencode_client.sse import SSEDecoder
from running_server import RunningServer
from turns import bash, call, say

QUESTION = {"question": "Which?", "header": "Which", "options": [{"label": "A", "description": "the first"}]}
COMMAND = "echo one && ls"
TURNS = [[{"reasoning": "Hm."}, say("Let me see."), bash(COMMAND)], [call("question", questions=[QUESTION])], [say()]]
SCRIPT = 2 * TURNS
CONFIG = {"permission": {"bash": "ask"}}


@pytest.fixture(scope="module", params=["full", "delta"])
def events(request: pytest.FixtureRequest, server: RunningServer) -> list[Event]:
    """Of a turn that asks for a permission and a question, as the client's decoder has them."""
    with httpx2.Client(base_url=server.base, timeout=60) as client:
        return list(heard(client, request.param))


def heard(client: httpx2.Client, parts: str) -> Iterator[Event]:
    session = client.post("/session", json={}).json()["id"]
    with client.stream("GET", "/event", params={"parts": parts}) as response:
        for event in SSEDecoder().iter_events(response.iter_lines()):
            yield event
            if event.type == "server.connected":
                client.post(f"/session/{session}/prompt_async", json={"parts": [{"type": "text", "text": "Go"}]})
            elif event.type == "permission.asked":
                client.post(f"/permission/{event.properties['id']}/reply", json={"reply": "once"})
            elif event.type == "question.asked":
                client.post(f"/question/{event.properties['id']}/reply", json={"answers": [["A"]]})
            elif event.type == "session.idle":
                return


def test_no_event_that_it_knows_loses_its_type(events: list[Event]) -> None:
    known = [event for event in events if event.type in EVENT_CATALOG]
    assert [event.type for event in known if type(event) is not EVENT_CATALOG[event.type]] == []
    wanted = set(EVENT_CATALOG) - {"message.part.delta"}
    assert wanted <= {event.type for event in known}


def test_every_event_names_its_session_and_has_an_id(events: list[Event]) -> None:
    assert all(event.model_dump()["id"] for event in events)
    about = [event for event in events if event.type.startswith(("session.", "message."))]
    assert {event.properties["sessionID"] for event in about} == {about[0].properties["sessionID"]}
    parts = [event for event in events if isinstance(event, of_client.MessagePartUpdatedEvent)]
    assert all(event.time > 0 and event.part.session_id == event.session_id for event in parts)


def test_requests_show_what_is_asked_and_what_always_would_allow(events: list[Event]) -> None:
    [permission] = [event for event in events if isinstance(event, of_client.PermissionAskedEvent)]
    assert permission.metadata == {"command": COMMAND} and permission.always == ["echo *", "ls *"]
    assert permission.request.patterns == ["echo one", "ls"]
    [question] = [event for event in events if isinstance(event, of_client.QuestionAskedEvent)]
    assert question.request.questions[0].question == "Which?"
