"""A Python client for OpenCode 1.18 (PyPI `opencode-client-python` 0.2.0) against a real server: every method of its sessions.

It validates each answer by its models, and raises where one is not as they say.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opencode_client import OpenCodeClient, models
from opencode_client.errors import OpenCodeApiError
from running_server import RunningServer

MODEL = models.PromptModel(provider_id="scripted", model_id="rules")
SOME_ID = "msg_00000000000000000000000000"


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[OpenCodeClient]:
    with OpenCodeClient(server.base, timeout=180) as opened:
        yield opened


@pytest.fixture(scope="module")
def answers(client: OpenCodeClient) -> dict[str, Any]:
    """By the method's name what was answered."""
    return dict(called(client))


def called(client: OpenCodeClient) -> Iterator[tuple[str, Any]]:
    """Every method of its sessions, in an order in which each finds what it needs."""
    sessions = client.sessions
    wanted: Any = {
        "model": models.ModelID(id="rules", provider_id="scripted"),
        "permission": [models.PermissionRule(permission="webfetch", pattern="*", action="deny")],
    }
    made = sessions.create(body=models.CreateSessionRequest(title="Made", agent="build", metadata={"by": "test"}, **wanted))
    yield "create", made
    yield "prompt", sessions.prompt(made.id, "write made.txt: one", model=MODEL)
    yield "prompt_async", sessions.prompt_async(made.id, [models.TextPartInput(type="text", text="later")], no_reply=True)
    yield "shell", sessions.shell(made.id, agent="build", command="echo from the shell")
    yield "get", sessions.get(made.id)
    yield "list_messages", (messages := sessions.list_messages(made.id))
    yield "get_message", sessions.get_message(made.id, messages[0].info.id)
    words = messages[0].parts[0]
    yield "update_part", sessions.update_part(made.id, messages[0].info.id, words.id, words)
    yield "list_sessions", sessions.list_sessions(scope="project", roots=False, search="made", limit=5)
    changes = models.UpdateSessionRequest(title="Renamed", metadata={"a": 1}, time={"archived": 5})
    yield "update", sessions.update(made.id, changes)
    yield "fork", (fork := sessions.fork(made.id))
    yield "children", sessions.children(made.id)
    yield "status", sessions.status()
    yield "list_todos", sessions.list_todos(made.id)
    yield "diff", sessions.diff(made.id)
    yield "share", sessions.share(made.id)
    yield "unshare", sessions.unshare(made.id)
    yield "revert", sessions.revert(made.id, messages[0].info.id)
    yield "unrevert", sessions.unrevert(made.id)
    yield "command", sessions.command(made.id, "init", "")
    yield "summarize", sessions.summarize(made.id, MODEL.provider_id, MODEL.model_id)
    yield "init", sessions.init(fork.id, MODEL.provider_id, MODEL.model_id, SOME_ID)
    yield "abort", sessions.abort(made.id)
    yield "delete_part", sessions.delete_part(made.id, messages[1].info.id, messages[1].parts[-1].id)
    yield "delete_message", sessions.delete_message(made.id, messages[1].info.id)
    with pytest.raises(OpenCodeApiError) as unknown:
        sessions.respond_permission(made.id, "per_unknown", "once")
    yield "respond_permission", unknown.value
    yield "delete", sessions.delete(made.id)


def test_every_method_of_sessions_answers_as_its_models_say(answers: dict[str, Any], client: OpenCodeClient) -> None:
    methods = {name for name in vars(type(client.sessions)) if not name.startswith(("_", "with_"))}
    assert methods == answers.keys()
    assert all(answers[done] is True for done in ("abort", "summarize", "init", "delete", "delete_part", "delete_message"))
    assert answers["respond_permission"].status_code == 404


def test_a_session_is_what_was_asked_for_and_its_prompt_is_answered(answers: dict[str, Any], server: RunningServer) -> None:
    made: models.Session = answers["create"]
    assert (made.title, made.agent, made.metadata, made.path) == ("Made", "build", {"by": "test"}, "")
    assert made.model is not None and (made.model.provider_id, made.model.id) == ("scripted", "rules")
    assert made.permission is not None and [rule.permission for rule in made.permission] == ["webfetch"]
    assert Path(made.directory) == server.workspace.resolve()
    updated: models.Session = answers["update"]
    assert (updated.title, updated.metadata, updated.time.archived) == ("Renamed", {"a": 1}, 5)
    assert [session.id for session in answers["list_sessions"]] == [made.id]
    roles = [message.info.role for message in answers["list_messages"]]
    assert roles[:2] == ["user", "assistant"] and answers["prompt"].info.role == "assistant"
    assert answers["get_message"].parts[0].text == "write made.txt: one"
    assert answers["revert"].revert is not None and answers["unrevert"].revert is None
    assert (server.workspace / "made.txt").read_text() == "one"


def test_a_session_sums_up_what_its_steps_took(answers: dict[str, Any]) -> None:
    messages: list[models.MessageWithParts] = answers["list_messages"]
    steps = [part for message in messages for part in message.parts if part.type == "step-finish"]
    for session in (answers["get"], answers["fork"]):
        assert session.cost == sum(step.cost for step in steps)
        assert session.tokens.output == sum(step.tokens.output for step in steps) > 0
    assert answers["create"].tokens.output == 0 == answers["create"].cost
