"""The client with a server that wants a login, and with subagents that need permissions."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from running_server import RunningServer, serving_here

from app.users.tokens import TokenStore
from opensession_client import LoginRequired, Opensession, StreamedEvent, operations, session_id_of
from opensession_client.models import EventServerConnected, PermissionRequest, ToolPart

SUBAGENT = {"description": "Look", "prompt": "Look", "subagent_type": "general"}
TURNS = [
    [{"tool": "task", "args": SUBAGENT}],
    [{"tool": "bash", "args": {"command": "touch made", "description": "Makes it"}}],
    [{"text": "Made."}],
    [{"text": "All is made."}],
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving_here(tmp_path_factory.mktemp("logins"), turns=TURNS, OPENCODE_SERVER_PASSWORD="secret") as running:
        (running.workspace / "opencode.json").write_text('{"permission": {"bash": "ask"}}')
        yield running


def test_a_subagent_s_permission_is_asked_for_and_its_events_are_given(server: RunningServer) -> None:
    asked: list[PermissionRequest] = []
    seen: list[StreamedEvent] = []

    def permit(request: PermissionRequest) -> Literal["once"]:
        asked.append(request)
        return "once"

    with Opensession(server.base, password="secret") as client:
        session = client.create_session()
        answer = client.prompt(session.id, "Make it", on_permission=permit, on_event=seen.append, timeout=120)
        [child] = client.call(operations.session_children(session.id))
    assert answer.text == "All is made." and (server.workspace / "made").exists()
    assert [request.session_id for request in asked] == [child.id]
    assert {session_id_of(event) for event in seen} == {session.id, child.id}
    assert [part.tool for part in answer.parts if isinstance(part, ToolPart)] == ["task"]


def test_a_login_is_a_password_or_a_token(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    token = TokenStore(server.data).create("ci")
    with Opensession(server.base, token=token) as client, client.stream() as events:
        assert isinstance(next(events), EventServerConnected)
        assert client.create_session("With a token").title == "With a token"
    monkeypatch.setenv("OPENSESSION_TOKEN", token)
    monkeypatch.setenv("OPENSESSION_URL", server.base)
    with Opensession() as client:
        assert client.call(operations.session_list())
    with Opensession(server.base, password="secret") as client:
        assert client.call(operations.session_list())


@pytest.mark.parametrize("login", [{}, {"token": "very-secret"}, {"password": "very-secret"}])
def test_a_wrong_login_is_said_at_once_and_stands_in_no_text(server: RunningServer, login: dict[str, Any]) -> None:
    with Opensession(server.base, **login) as client:
        with pytest.raises(LoginRequired) as refused:
            client.create_session()
        assert "very-secret" not in f"{refused.value!r} {refused.value} {client!r} {client.http!r}"
        with pytest.raises(LoginRequired), client.stream():
            pass
