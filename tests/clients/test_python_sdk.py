"""The Python SDK (PyPI `opencode-ai` 0.1.0a36, made for an OpenCode of mid 2025) against a real server: every call that it has.

It builds its models without looking at what came; here each answer is also validated by them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opencode_ai import BaseModel, NotFoundError, Opencode
from pydantic import ValidationError
from running_server import RunningServer

RESOURCES = ("app", "config", "event", "file", "find", "session", "tui")

GONE = {
    "app.get": "GET /app became /path and /project/current",
    "app.init": "POST /app/init is needed no more",
    "app.modes": "GET /mode became /agent",
}
"""Calls whose routes OpenCode 1.1 or this server has no more."""

CHANGED = {
    "session.chat": "the answer is {info, parts}, no longer the message alone",
    "session.messages": "an assistant's message has no `system`",
    "app.providers": "what a model can do stands in `capabilities`",
    "config.get": "`keybinds` names other actions",
    "file.read": "GET /file lists a directory; a file is read from GET /file/content",
}
"""Answers that are not as its models say: OpenCode's have changed since."""

MODEL = {"provider_id": "scripted", "model_id": "rules"}
CONFIG = {"keybinds": {"app_exit": "ctrl+c"}}


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Opencode]:
    with Opencode(base_url=server.base, max_retries=0, timeout=180) as opened:
        yield opened


@pytest.fixture(scope="module")
def answers(client: Opencode) -> dict[str, Any]:
    """By the method's name, what was answered, or the error."""
    return {name: answer_of(call) for name, call in calls(client).items()}


def calls(client: Opencode) -> dict[str, Callable[[], Any]]:
    """Every method of the SDK, in an order in which each finds what it needs."""
    session = client.session.create().id
    words: list[Any] = [{"type": "text", "text": "write made.txt: one"}]
    return {
        "session.create": client.session.create,
        "session.chat": lambda: client.session.chat(session, parts=words, **MODEL),
        "session.messages": lambda: client.session.messages(session),
        "session.list": client.session.list,
        "session.share": lambda: client.session.share(session),
        "session.unshare": lambda: client.session.unshare(session),
        "session.revert": lambda: client.session.revert(session, message_id=client.session.messages(session)[0].info.id),
        "session.unrevert": lambda: client.session.unrevert(session),
        "session.summarize": lambda: client.session.summarize(session, **MODEL),
        "session.init": lambda: client.session.init(session, message_id="msg_00000000000000000000000000", **MODEL),
        "session.abort": lambda: client.session.abort(session),
        "event.list": lambda: next(iter(client.event.list())),
        "file.read": lambda: client.file.read(path="."),
        "file.status": client.file.status,
        "find.files": lambda: client.find.files(query="made"),
        "find.symbols": lambda: client.find.symbols(query="made"),
        "find.text": lambda: client.find.text(pattern="^one$"),
        "config.get": client.config.get,
        "app.get": client.app.get,
        "app.init": client.app.init,
        "app.modes": client.app.modes,
        "app.log": lambda: client.app.log(service="sdk", level="info", message="hello"),
        "app.providers": client.app.providers,
        "tui.append_prompt": lambda: client.tui.append_prompt(text="hello"),
        "tui.open_help": client.tui.open_help,
        "session.delete": lambda: client.session.delete(session),
    }


def answer_of(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except NotFoundError as error:
        return error


def is_as_its_model_says(answer: Any) -> bool:
    if isinstance(answer, list):
        return all(map(is_as_its_model_says, answer))
    try:
        return not isinstance(answer, BaseModel) or bool(type(answer).model_validate(answer.to_dict()))
    except ValidationError:
        return False


def test_every_method_is_called_and_answers_as_its_models_say_or_for_a_reason_not(
    answers: dict[str, Any], client: Opencode
) -> None:
    methods = {f"{name}.{method}" for name in RESOURCES for method in vars(type(getattr(client, name)))}
    assert {name for name in methods if ".with_" not in name and "._" not in name} == answers.keys()
    assert {name for name, answer in answers.items() if isinstance(answer, NotFoundError)} == GONE.keys()
    assert {name for name, answer in answers.items() if not is_as_its_model_says(answer)} == CHANGED.keys()


def test_a_prompt_is_answered_and_its_work_is_done(answers: dict[str, Any], server: RunningServer) -> None:
    [user, *_, last] = answers["session.messages"]
    assert [user.info.role, last.info.role] == ["user", "assistant"]
    assert last.parts[1].text == "Done: `write` succeeded (1 line of output)."
    assert answers["session.revert"].revert.message_id == user.info.id
    assert answers["session.unrevert"].revert is None
    assert (server.workspace / "made.txt").read_text() == "one"
    assert all(answers[f"session.{done}"] is True for done in ("summarize", "init", "abort", "delete"))
    assert (answers["find.files"], answers["find.symbols"]) == (["made.txt"], [])
    assert answers["session.share"].share.url.startswith("http")
    assert answers["event.list"].type == "server.connected"
