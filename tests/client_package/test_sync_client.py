"""The sync client against a real server: prompts, permissions, pages, errors. What both clients share is tested with this one."""

from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from running_server import RunningServer

import opensession_client
from opensession_client import ApiError, NotFound, Opensession, StreamedEvent, models, operations

ASK = [models.Rule(permission="bash", pattern="*", action="ask")]


def tools(parts: list[object]) -> dict[str, str]:
    return {part.tool: part.state.status for part in parts if isinstance(part, models.ToolPart)}


def test_a_prompt_is_answered_with_its_text_and_the_parts_of_the_whole_turn(client: Opensession) -> None:
    session = client.create_session("Reading")
    answer = client.prompt(session.id, "read a.txt")
    assert session.title == "Reading"
    assert answer.text == "Done: `read` succeeded (7 lines of output)."
    assert tools(answer.parts) == {"read": "completed"}
    assert [answer.info.finish, answer.info.provider_id, len(answer.messages)] == ["stop", "scripted", 2]


def test_events_of_the_turn_are_given_while_it_runs(client: Opensession) -> None:
    session, other = client.create_session(), client.create_session()
    client.call(operations.session_prompt_async(other.id, prompt_of("long 20")))
    seen: list[StreamedEvent] = []
    answer = client.prompt(session.id, "long 30", on_event=seen.append)
    told = "".join(event.properties.delta for event in seen if isinstance(event, models.EventMessagePartDelta))
    assert told.strip() == answer.text.strip()
    assert {opensession_client.session_id_of(event) for event in seen} == {session.id}
    assert isinstance(seen[-1], models.EventSessionIdle)


def prompt_of(text: str) -> models.PromptInput:
    return models.PromptInput(parts=[models.TextPartInput(text=text)])


@pytest.mark.parametrize(
    ("reply", "outcome", "said"),
    [
        ("once", "completed", "hello"),
        ("reject", "error", "reject"),
        (models.ReplyInput(reply="reject", message="Not on a Sunday"), "error", "Not on a Sunday"),
    ],
)
def test_a_permission_is_asked_for_and_the_answer_decides(client: Opensession, reply: Any, outcome: str, said: str) -> None:
    asked: list[models.PermissionRequest] = []

    def decide(request: models.PermissionRequest) -> Any:
        asked.append(request)
        return reply

    answer = client.prompt(client.create_session(permission=ASK).id, "run echo hello", on_permission=decide)
    assert [(request.permission, request.patterns) for request in asked] == [("bash", ["echo hello"])]
    [call] = [part for part in answer.parts if isinstance(part, models.ToolPart)]
    assert call.state.status == outcome and said in call.state.model_dump_json()


def test_a_question_is_answered_or_rejected(client: Opensession) -> None:
    def choose(request: models.QuestionRequest) -> list[list[str]]:
        return [[question.options[1].label] for question in request.questions]

    answer = client.prompt(client.create_session().id, "ask Which colour: red, blue", on_question=choose)
    [call] = [part for part in answer.parts if isinstance(part, models.ToolPart)]
    assert "blue" in call.state.model_dump_json() and call.state.status == "completed"
    rejected = client.prompt(client.create_session().id, "ask Which colour: red, blue", on_question=lambda _: None)
    assert tools(rejected.parts) == {"question": "error"}


def test_what_waited_before_the_prompt_is_answered_too(client: Opensession) -> None:
    session = client.create_session(permission=ASK)
    with client.stream() as events:
        client.call(operations.session_prompt_async(session.id, prompt_of("run echo hello")))
        next(
            event
            for event in events
            if isinstance(event, models.EventPermissionAsked) and event.properties.session_id == session.id
        )
    answer = client.prompt(session.id, "help", on_permission=lambda _: "once")
    assert "scripted provider" in answer.text


def test_a_failed_turn_is_raised_with_its_stored_error(client: Opensession) -> None:
    with pytest.raises(opensession_client.PromptFailed, match="You asked me to fail with 400") as failed:
        client.prompt(client.create_session().id, "fail 400")
    assert isinstance(failed.value.error, models.APIError) and failed.value.error.data.status_code == 400
    assert not isinstance(failed.value, opensession_client.PromptAborted)


def test_an_aborted_turn_is_raised_with_what_there_is_of_it(client: Opensession) -> None:
    session = client.create_session()

    def stop(event: StreamedEvent) -> None:
        if isinstance(event, models.EventMessagePartUpdated) and isinstance(event.properties.part, models.ToolPart):
            client.abort(session.id)

    with pytest.raises(opensession_client.PromptAborted) as stopped:
        client.prompt(session.id, "run sleep 120", on_event=stop)
    assert tools(stopped.value.answer.parts) == {"bash": "error"}


@pytest.mark.parametrize(
    ("rules", "text", "seconds"),
    [([], "run sleep 120", 0.2), (ASK, "run echo hello", 1)],
    ids=["busy", "silent: nothing comes while a permission is waited for but heartbeats, ten seconds apart"],
)
def test_a_turn_that_takes_too_long_goes_on_without_its_caller(
    client: Opensession, rules: list[models.Rule], text: str, seconds: float
) -> None:
    session = client.create_session(permission=rules)
    with pytest.raises(TimeoutError, match=rf"{seconds} seconds"):
        client.prompt(session.id, text, timeout=seconds)
    assert client.call(operations.session_status())[session.id].type == "busy"
    client.abort(session.id)
    assert session.id not in client.call(operations.session_status())


def test_the_same_prompt_is_answered_once(client: Opensession) -> None:
    session = client.create_session()
    first, again = (client.prompt(session.id, "long 3", message_id="msg_sent00twice") for _ in range(2))
    assert first.info.id == again.info.id and len(list(client.messages(session.id))) == 2


def test_files_are_sent_or_named(client: Opensession, server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("The password is swordfish.")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    prompt = [
        models.TextPartInput(text="help"),
        opensession_client.attached_file(tmp_path / "note.md"),
        opensession_client.attached_file(tmp_path / "dot.png"),
        opensession_client.server_file(str(server.workspace / "a.txt"), lines=(2, 2)),
    ]
    session = client.create_session()
    client.prompt(session.id, prompt)
    sent = next(message for message in client.messages(session.id) if message.info.role == "user").model_dump_json()
    assert "swordfish" in sent and "world" in sent and "1\\thello" not in sent and '"image/png"' in sent


def test_messages_and_sessions_come_newest_first_page_by_page(client: Opensession) -> None:
    made = [client.create_session(f"page {number}").id for number in range(7)]
    assert [session.id for session in client.sessions(search="page ", page_size=2)] == made[::-1]
    for text in ("long 1", "long 2", "long 3"):
        client.prompt(made[0], text)
    stored = client.call(operations.session_messages(made[0]))
    paged = list(client.messages(made[0], page_size=2))
    assert [message.info.id for message in paged] == [message.info.id for message in reversed(stored)]
    assert len(paged) == 6


@pytest.mark.parametrize("children", [None, True])
def test_a_session_is_exported_and_imported_again(client: Opensession, children: bool | None) -> None:
    session = client.create_session("Moved")
    client.prompt(session.id, "think")
    exported = client.call(operations.session_export(session.id, children=children))
    imported = client.call(operations.session_import(exported, ids="new"))
    assert (imported.info.title, len(list(client.messages(imported.info.id)))) == ("Moved", 2)


def test_an_error_is_raised_by_what_it_is(client: Opensession) -> None:
    with pytest.raises(NotFound, match="Session not found: ses_nope") as missing:
        client.call(operations.session_get("ses_nope"))
    assert missing.value.name == "NotFoundError"
    with pytest.raises(ApiError, match=r"400 .*parts") as wrong:
        client.call(operations.Operation("POST", f"/session/{client.create_session().id}/message", None, body={"parts": 1}))
    assert wrong.value.status == 400
    with pytest.raises(ApiError, match="no-such-model"):
        client.prompt(client.create_session().id, "help", model="scripted/no-such-model")


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    with Opensession("http://127.0.0.1:1") as nowhere, pytest.raises(httpx.ConnectError):
        nowhere.create_session()


def test_a_client_works_in_its_directory(client: Opensession, server: RunningServer) -> None:
    below = server.workspace / "sub dir"
    below.mkdir()
    with Opensession(server.base, directory=str(below)) as scoped:
        session = scoped.create_session("below")
        assert session.directory == str(below)
        assert scoped.prompt(session.id, "write made.txt: one").text.startswith("Done")
        assert [each.title for each in scoped.sessions(directory=str(below))] == ["below"]
    assert (below / "made.txt").read_text() == "one"
    assert client.prompt(session.id, "long 2").text, "a session is prompted in its own directory"
    with Opensession(server.base, directory="/") as outside, pytest.raises(ApiError, match="403"):
        outside.create_session()


def test_a_prompt_ends_when_its_session_is_deleted(client: Opensession) -> None:
    session = client.create_session(permission=ASK)

    def delete(_: models.PermissionRequest) -> Literal["once"]:
        client.call(operations.session_delete(session.id))
        return "once"

    with pytest.raises(NotFound, match=session.id):
        client.prompt(session.id, "run echo hello", on_permission=delete, timeout=120)
