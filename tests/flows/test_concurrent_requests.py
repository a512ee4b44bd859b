"""Requests that meet on one session: docs/concurrency.md says which are refused, wait or join, and that is what happens."""

import asyncio
import fcntl
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import turns
from every_route import WRITING, every_route
from git_files import files
from running_app import RunningApp, running_app, text_part
from storage_parts import message_row, put_lease
from turns import ALLOW, assert_finished, bash, play, requests, revert, say, statuses, texts, unrevert, until, until_done

from app.providers.base import ModelRequest, TextBlock
from app.providers.scripted import ScriptedProvider, ScriptedTurn, parse_turn
from app.record.engine import Connection, StorageError
from app.record.repositories import message_rows, work_rows
from app.record.tables import LEASE, MESSAGE, SESSION
from app.schema.message import PromptInput
from app.turn import compaction

ROOT = Path(__file__).parents[2]
MODEL = {"providerID": "scripted", "modelID": "rules"}


@pytest.fixture
async def session(app: RunningApp) -> str:
    return str((await app.create_session(permission=ALLOW, title="T"))["id"])


# What the page's table says.


def table() -> list[list[str]]:
    """The cells of its rows, the heads first."""
    page = (ROOT / "docs" / "concurrency.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")]
    return [row for row in rows if not row[0].startswith("---")]


def routes_of(cell: str) -> list[tuple[str, str]]:
    return [(method, path) for method, path in re.findall(r"`([A-Z]+) (\S+)`", cell)]


def refused(column: str) -> list[tuple[str, str]]:
    heads, *rows = table()
    (place,) = [place for place, head in enumerate(heads) if column in head]
    return [route for row in rows if row[place] == "409" for route in routes_of(row[0])]


BODIES: dict[str, Any] = {
    "shell": {"agent": "build", "command": "touch ran"},
    "summarize": MODEL,
    "revert": {"messageID": "msg_first"},
}


async def asked(app: RunningApp, route: tuple[str, str], part: dict[str, Any]) -> httpx2.Response:
    """One of the routes, about the part, its message or its session."""
    method, path = route
    named = {"sessionID": part["sessionID"], "messageID": part["messageID"], "partID": part["id"]}
    body = part if method == "PATCH" else BODIES.get(path.rpartition("/")[2])
    return await app.client.request(method, path.format(**named), json=body)


def test_every_route_that_writes_to_a_session_stands_in_the_table(app: RunningApp) -> None:
    listed = {route for row in table() for route in routes_of(row[0])}
    ours = {(method, path) for method, path in every_route(app.fastapi) if path.startswith("/session/{") and method in WRITING}
    assert listed == ours


# What works on the session.


@contextmanager
def locked_snapshots(app: RunningApp) -> Iterator[None]:
    """A revert waits in this block, as behind another server's."""
    (lock,) = app.data_dir.rglob("opensession.lock")
    descriptor = os.open(lock, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def held(app: RunningApp, request: Awaitable[Any]) -> AsyncIterator[None]:
    """The model's answer to the request is held in this block."""
    may_end, asked_before = asyncio.Event(), len(requests(app))
    app.provider.add([{"wait": may_end}, say("Done.")])
    running = asyncio.ensure_future(request)
    await until(lambda: len(requests(app)) > asked_before)
    yield
    may_end.set()
    await running


@asynccontextmanager
async def turn(app: RunningApp, session: str) -> AsyncIterator[None]:
    async with held(app, app.prompt(session, "Wait")):
        yield


@asynccontextmanager
async def summary(app: RunningApp, session: str) -> AsyncIterator[None]:
    async with held(app, app.post(f"/session/{session}/summarize", MODEL)):
        yield


async def shell_line(app: RunningApp, session: str) -> asyncio.Task[Any]:
    line = {"agent": "build", "command": "touch started; while [ ! -e go ]; do sleep 0.02; done"}
    running = asyncio.create_task(app.post(f"/session/{session}/shell", line))
    await until((app.directory / "started").exists)
    return running


@asynccontextmanager
async def shell(app: RunningApp, session: str) -> AsyncIterator[None]:
    running = await shell_line(app, session)
    yield
    (app.directory / "go").touch()
    await running


@asynccontextmanager
async def waiting_for_snapshots(app: RunningApp, session: str, request: Awaitable[Any]) -> AsyncIterator[None]:
    with locked_snapshots(app):
        running = asyncio.ensure_future(request)
        await until(lambda: app.is_held(session))
        yield
    await running


async def newest_prompt(app: RunningApp, session: str) -> str:
    return str((await app.messages(session))[-3]["info"]["id"])


@asynccontextmanager
async def reverting(app: RunningApp, session: str) -> AsyncIterator[None]:
    async with waiting_for_snapshots(app, session, revert(app, session, await newest_prompt(app, session))):
        yield


@asynccontextmanager
async def unreverting(app: RunningApp, session: str) -> AsyncIterator[None]:
    await revert(app, session, await newest_prompt(app, session))
    async with waiting_for_snapshots(app, session, unrevert(app, session)):
        yield


AT_WORK = {
    "while a turn runs": turn,
    "or a summary is made": summary,
    "while a shell line runs": shell,
    "while a revert": reverting,
    "or unrevert works": unreverting,
}
WAIT, REVERTS = [*AT_WORK][:3], [*AT_WORK][3:]


@pytest.mark.parametrize("column", AT_WORK)
async def test_what_the_table_refuses_is_a_409_and_changes_nothing(app: RunningApp, session: str, column: str) -> None:
    await play(app, session, bash("echo one > a.txt"), text="first")
    await play(app, session, bash("echo two > a.txt"), text="second")
    before, routes = await app.messages(session), refused(column)
    assert len(routes) >= 7
    async with AT_WORK[column](app, session):
        for route in routes:
            response = await asked(app, route, before[0]["parts"][0])
            assert (response.status_code, response.json().get("name")) == (409, "SessionBusyError"), f"{route}: {response.text}"
        assert (await app.messages(session))[: len(before)] == before
    assert not (app.directory / "ran").exists()
    assert_finished(await app.messages(session))


@pytest.mark.parametrize("column", WAIT)
async def test_a_fork_copies_what_is_finished_while_something_runs(app: RunningApp, session: str, column: str) -> None:
    await play(app, session, bash("echo one > a.txt"))
    async with AT_WORK[column](app, session):
        copied = await app.messages((await app.post(f"/session/{session}/fork"))["id"])
    assert [message["info"]["role"] for message in copied][:3] == ["user", "assistant", "assistant"]
    assert_finished(copied)


@pytest.mark.parametrize("column", REVERTS)
async def test_a_fork_and_a_prompt_wait_for_a_revert_and_the_prompt_makes_final_what_it_finds(
    app: RunningApp, session: str, column: str
) -> None:
    await play(app, session, bash("echo two > a.txt"))
    app.provider.add([say("Here.")])
    async with AT_WORK[column](app, session):
        before = await app.messages(session)
        fork = asyncio.create_task(app.post(f"/session/{session}/fork"))
        await until_it_waits(app, session, fork)
        assert len(await app.get("/session")) == 1
        prompt = asyncio.create_task(app.prompt(session, "Go on"))
        await until_it_waits(app, session, prompt)
        assert await app.messages(session) == before
    assert len(await app.messages((await fork)["id"])) == 3
    is_kept = column == REVERTS[1]
    assert texts(await prompt) == ["Here."] and len(await app.messages(session)) == (len(before) if is_kept else 0) + 2
    assert (app.directory / "a.txt").read_text() == ("two\n" if is_kept else "hello\nworld\n")


async def until_it_waits(app: RunningApp, session: str, request: asyncio.Task[Any] | None = None) -> None:
    """As nothing tells, until another client's reads have been answered many times."""
    for _ in range(30):
        await app.messages(session)
    assert request is None or not request.done()


async def test_edits_at_once_queue(app: RunningApp, session: str) -> None:
    await play(app, session, bash("echo two > a.txt"))
    first = (await app.messages(session))[0]
    path = f"/session/{session}/message/{first['info']['id']}/part/{first['parts'][0]['id']}"
    edits = [app.client.patch(path, json={**first["parts"][0], "text": str(number)}) for number in range(10)]
    assert {response.status_code for response in await asyncio.gather(*edits)} == {200}


# A prompt is at work from its 204 on.


async def test_a_prompt_cannot_be_deleted_before_its_answer(app: RunningApp, session: str) -> None:
    """And its session is busy from its 204 on."""
    for number in range(10):
        await app.prompt_async(session, "Hi", messageID=f"msg_mine{number}")
        assert await statuses(app) == {session: {"type": "busy"}}
        path = f"/session/{session}/message/msg_mine{number}"
        await app.call("DELETE", path, expect=409)
        if number % 2:
            await app.post(f"/session/{session}/abort")
            assert await statuses(app) == {}
        await until_done(app, session)
        assert (await app.messages(session))[-1]["info"]["parentID"] == f"msg_mine{number}"
        await app.call("DELETE", path)


async def test_nothing_comes_between_a_prompt_and_its_turn(app: RunningApp, session: str) -> None:
    """Whatever is asked while the prompt is on its way to the disk is refused."""
    await play(app, session, bash("echo two > a.txt"))
    app.provider.add([say("Here.")])
    routes, part = refused(WAIT[0]), (await app.messages(session))[0]["parts"][0]
    prompting = asyncio.create_task(app.prompt(session, "Go on"))
    while not app.is_held(session):
        await asyncio.sleep(0)
    responses = await asyncio.gather(*(asked(app, route, part) for route in routes))
    assert {response.status_code for response in responses} == {409}
    assert texts(await prompting) == ["Here."]


async def test_summaries_and_prompts_at_once_never_meet(app: RunningApp, session: str) -> None:
    """One summary is made, or none where a prompt came first; nothing is left without its answer."""
    for _ in range(5):
        await play(app, session, bash("true"))
        asking = [app.client.post(f"/session/{session}/summarize", json=MODEL) for _ in range(4)]
        *summing, prompt = await asyncio.gather(*asking, app.prompt(session, "Hi"))
        told = [answer.status_code for answer in summing]
        assert told.count(200) <= 1 and {*told} <= {200, 409} and prompt["info"]["role"] == "assistant"
        messages = await app.messages(session)
        assert_finished(messages)
        answered = {message["info"].get("parentID") for message in messages}
        assert all(message["info"]["id"] in answered for message in messages if "compaction" in turns.types(message))


async def test_an_abort_ends_the_prompt_that_waits_for_a_shell_line_too(app: RunningApp, session: str) -> None:
    running = await shell_line(app, session)
    await app.prompt_async(session, "Go on")
    await app.post(f"/session/{session}/abort")
    assert await statuses(app) == {} and not app.services.live.is_running(session)
    await running
    messages = await app.messages(session)
    assert messages[-1]["info"]["error"]["name"] == "MessageAbortedError" and requests(app) == []
    assert_finished(messages)


async def test_a_prompt_that_waits_is_idle_only_after_its_answer(app: RunningApp, session: str) -> None:
    """The shell line's end must not close it: a server killed then would forget it."""
    async with app.events() as events:
        async with shell(app, session):
            await app.prompt_async(session, "Go on")
            await until_it_waits(app, session)
            assert requests(app) == []
        await events.until("session.idle")
        await until_done(app, session)
    assert events.types.count("session.idle") == 1
    assert texts((await app.messages(session))[-1]) == ["ok"]


# A revert is not lost.


async def edited(app: RunningApp, message: dict[str, Any], edit: str) -> httpx2.Response:
    """The answer to the deletion of a message, or that or a change of its last part."""
    part = message["parts"][-1]
    path = f"/session/{part['sessionID']}/message/{part['messageID']}"
    if edit == "delete":
        return await app.client.delete(path)
    if edit == "delete part":
        return await app.client.delete(f"{path}/part/{part['id']}")
    return await app.client.patch(f"{path}/part/{part['id']}", json={**part, "files": []} if part["type"] == "patch" else part)


@pytest.mark.parametrize("edit", ["delete", "delete part", "change part"])
async def test_what_is_reverted_cannot_be_edited(app: RunningApp, session: str, edit: str) -> None:
    await play(app, session, bash("true"), text="kept")
    prompt = await play(app, session, bash("echo two > a.txt; echo new > b.txt"))
    before = files(app.directory)
    await revert(app, session, prompt)
    messages = await app.messages(session)
    for message in messages[3:]:
        response = await edited(app, message, edit)
        assert (response.status_code, response.json()["name"]) == (409, "MessageRevertedError")
        assert "Unrevert" in response.json()["data"]["message"]
    assert await app.messages(session) == messages and messages[3]["info"]["id"] == prompt
    assert (await edited(app, messages[0], edit)).status_code == 200
    assert "revert" not in await unrevert(app, session) and files(app.directory) == before
    assert (await edited(app, messages[3], edit)).status_code == 200


async def test_a_message_that_is_reverted_in_part_cannot_be_edited(app: RunningApp, session: str) -> None:
    await play(app, session, bash("echo one > a.txt"), bash("echo two > a.txt"))
    prompt, answer, _ = await app.messages(session)
    second = [part for part in answer["parts"] if part["type"] == "tool"][1]
    before = files(app.directory)
    await revert(app, session, answer["info"]["id"], partID=second["id"])
    assert (await edited(app, answer, "delete part")).status_code == 409
    assert (await edited(app, prompt, "delete")).status_code == 200
    await unrevert(app, session)
    assert files(app.directory) == before


async def test_an_unrevert_without_snapshots_is_refused_and_loses_nothing(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt"))
    reverted = (await revert(app, session, prompt))["revert"]
    (app.directory / "opencode.json").write_text('{"snapshot": false}')
    error = await unrevert(app, session, expect=500)
    assert error["name"] == "SnapshotError" and "off" in error["data"]["message"]
    assert (await app.get(f"/session/{session}"))["revert"] == reverted
    (app.directory / "opencode.json").unlink()
    assert "revert" not in await unrevert(app, session)
    assert (app.directory / "a.txt").read_text() == "two\n"


# What is gone is gone.


async def test_of_two_deletions_at_once_one_finds_nothing(app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the second one has done first what comes before the lock."""
    leases, overtaken, asked_for = app.services.live.leases, asyncio.Event(), list[str]()
    request_abort = leases.request_abort

    async def in_other_order(session_id: str) -> None:
        asked_for.append(session_id)
        if len(asked_for) == 1:
            await overtaken.wait()
        await request_abort(session_id)
        overtaken.set()

    monkeypatch.setattr(leases, "request_abort", in_other_order)
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*(app.client.delete(f"/session/{session}") for _ in range(2)))
    assert sorted(answer.status_code for answer in answers) == [200, 404]


async def test_a_deletion_that_fails_leaves_the_turn_its_lease(
    app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(session_id: str) -> None:
        raise StorageError("no database")

    monkeypatch.setattr(app.services.live, "abort", refused)
    async with turn(app, session):
        await app.call("DELETE", f"/session/{session}", expect=503)
    assert texts((await app.messages(session))[-1]) == ["Done."]


async def test_a_prompt_behind_the_deletion_of_a_session_that_was_being_summarised_finds_nothing(
    app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summary's turn waits behind the deletion, and has not put its lease away."""
    await app.prompt(session, "Hi")
    live, gates = app.services.live.get(session), [asyncio.Event(), asyncio.Event()]
    reached: list[str] = []

    def waits(owner: object, name: str, gate: asyncio.Event) -> None:
        do = getattr(owner, name)

        async def when_it_may(*args: Any, **options: Any) -> Any:
            reached.append(name)
            await gate.wait()
            return await do(*args, **options)

        monkeypatch.setattr(owner, name, when_it_may)

    waits(compaction, "request", gates[0])
    waits(app.services.sessions, "remove", gates[1])
    summary = asyncio.create_task(app.client.post(f"/session/{session}/summarize", json=MODEL))
    await until(lambda: reached == ["request"])
    deletion = asyncio.create_task(app.client.delete(f"/session/{session}"))
    await until(lambda: len(live.works) == 2)
    gates[0].set()
    await until(lambda: reached == ["request", "remove"])
    prompt = asyncio.create_task(app.client.post(f"/session/{session}/prompt_async", json={"parts": [text_part("Hi")]}))
    await asyncio.sleep(0.5)
    gates[1].set()
    answers = await asyncio.gather(deletion, prompt, summary)
    assert [answer.status_code for answer in answers[:2]] == [200, 404], answers[1].text


async def test_a_child_that_another_request_deletes_first_does_not_keep_its_parent(
    app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = (await app.create_session(parentID=session))["id"]
    read, reads, may_go_on = app.services.store.session_tree, list[str](), asyncio.Event()

    async def slow(session_id: str) -> Any:
        found = await read(session_id)
        reads.append(session_id)
        if session_id == session and reads.count(session) == 1:  # before the child is stopped
            await may_go_on.wait()
        return found

    monkeypatch.setattr(app.services.store, "session_tree", slow)
    deleting = asyncio.create_task(app.call("DELETE", f"/session/{session}"))
    await until(lambda: reads.count(session) == 1)
    await app.call("DELETE", f"/session/{child}")
    may_go_on.set()
    assert await deleting is True and await app.get("/session") == []


async def test_a_prompt_that_meets_a_deletion_is_deleted_or_not_found(app: RunningApp, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(20):
        session = (await app.create_session())["id"]
        prompts = [
            asyncio.create_task(app.client.post(f"/session/{session}/{path}", json={"parts": [text_part("Hi")]}))
            for path in ("message", "prompt_async", "prompt_async")
        ]
        for _ in range(number * 3):
            await asyncio.sleep(0)
        assert await app.call("DELETE", f"/session/{session}") is True
        answers = await asyncio.gather(*prompts)
        assert {answer.status_code for answer in answers} <= {200, 204, 404}
        await app.get(f"/session/{session}", expect=404)
        assert await statuses(app) == {} and not app.services.live.is_running(session)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert await app.get("/session") == []


async def test_a_deletion_catches_the_sessions_that_its_turn_creates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    provider = ScriptedProvider(otherwise=give_out_tasks)
    async with running_app(tmp_path, provider=provider) as app:
        for moment in range(8):
            session = (await app.create_session(permission=ALLOW, title="T"))["id"]
            provider.requests.clear()
            prompt = asyncio.create_task(app.prompt(session, "Give out tasks"))
            await until(lambda: requests(app))
            for _ in range(moment * 15):
                await asyncio.sleep(0)
            assert await app.call("DELETE", f"/session/{session}") is True
            await prompt
            assert await app.get("/session") == [] and await statuses(app) == {}
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def give_out_tasks(request: ModelRequest) -> ScriptedTurn:
    last = request.messages[-1].content[0]
    first = isinstance(last, TextBlock) and "Give out" in last.text
    return parse_turn([turns.task("look"), turns.task("look again")] if first else [bash("sleep 0.05")])


async def test_a_child_comes_before_or_after_the_deletion_of_its_parent(app: RunningApp) -> None:
    """A client may name any parent, also one that is gone."""
    for moment in range(8):
        parent = (await app.create_session())["id"]
        created = asyncio.create_task(app.create_session(parentID=parent))
        for _ in range(moment * 5):
            await asyncio.sleep(0)
        await app.call("DELETE", f"/session/{parent}")
        child = (await created)["id"]
        left = [found["id"] for found in await app.get("/session")]
        assert left in ([], [child])
        if left:
            await app.call("DELETE", f"/session/{child}")


async def test_a_prompt_whose_sender_goes_away_while_it_is_stored_is_answered(app: RunningApp, session: str) -> None:
    services, wanted = app.services, PromptInput.model_validate({"parts": [text_part("Hi")]})
    instance = await services.instances.get(str(app.directory))
    accepting = asyncio.create_task(services.prompts.accept(instance, await services.store.session_to_prompt(session), wanted))
    while not services.live.get(session).messages.locked():
        await asyncio.sleep(0)
    accepting.cancel()
    await asyncio.wait({accepting})
    assert accepting.cancelled()
    await until(lambda: len(requests(app)) == 1)
    await until_done(app, session)
    assert texts((await app.messages(session))[-1]) == ["ok"] and await statuses(app) == {}


async def test_a_prompt_behind_a_shell_line_is_left_to_the_next_server(app: RunningApp, session: str) -> None:
    line = await shell_line(app, session)
    await app.prompt_async(session, "Next")
    await app.services.live.hand_over()
    (app.directory / "go").touch()
    assert (await line)["parts"][-1]["state"]["status"] == "completed"
    await until_done(app, session)
    assert await app.services.store.query(message_rows.unanswered_prompt, session) is not None


# What another server does to the session.


async def hold_elsewhere(app: RunningApp, session: str, *, turn: bool) -> None:
    """A living server works on it: on a turn, or on what keeps prompts out."""

    def hold(connection: Connection) -> None:
        put_lease(connection, session, "another server", 7)
        if turn:
            connection.execute(LEASE.update(), {"directory": str(app.directory), "status": '{"type":"busy"}'})

    await app.services.database.write(hold)


async def free_elsewhere(app: RunningApp) -> None:
    await app.services.database.write(lambda connection: connection.execute(LEASE.update(), {"owner": "", "status": None}))


@pytest.mark.parametrize("fields", [{}, {"noReply": True}, {"whenBusy": "reject"}, {"whenBusy": "queue"}])
async def test_a_prompt_waits_for_a_revert_of_another_server(app: RunningApp, session: str, fields: dict[str, Any]) -> None:
    """A revert would take a prompt that comes before its end for one of the messages that it hides."""
    await hold_elsewhere(app, session, turn=False)
    prompting = asyncio.create_task(app.prompt(session, "Go", **fields))
    await asyncio.wait({prompting}, timeout=0.6)
    assert not prompting.done() and await app.messages(session) == []
    await free_elsewhere(app)
    assert (await prompting)["info"]["role"] == ("user" if "noReply" in fields else "assistant")


async def test_a_prompt_that_begins_as_another_server_begins_does_as_it_says(
    app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has seen that the other one works."""

    async def unseen(*_: Any) -> bool:
        return False

    with monkeypatch.context() as looking:
        looking.setattr(app.services.live.leases, "is_held_elsewhere", unseen)
        await hold_elsewhere(app, session, turn=True)
        await app.prompt_async(session, "Rejects", whenBusy="reject", expect=409)
    queued = asyncio.create_task(app.prompt(session, "Queues", whenBusy="queue"))
    await until(lambda: app.get(f"/session/{session}/queue"))
    assert await app.messages(session) == []
    await free_elsewhere(app)
    assert texts(await queued) == ["ok"]


async def test_a_shell_line_is_shown_as_busy_on_other_servers(app: RunningApp, session: str) -> None:
    async def shown() -> list[str]:
        leases = await app.services.store.query(work_rows.leases)
        return [lease.status for lease in leases if lease.directory == str(app.directory) and lease.status is not None]

    body = {"agent": "build", "command": "sleep 30"}
    line = asyncio.create_task(app.client.post(f"/session/{session}/shell", json=body))
    await until(shown)
    await app.post(f"/session/{session}/abort")
    await line


async def test_a_shell_line_that_another_server_keeps_out_announces_no_idle_session(app: RunningApp, session: str) -> None:
    await hold_elsewhere(app, session, turn=True)
    async with app.events() as events:
        await app.post(f"/session/{session}/shell", BODIES["shell"], expect=409)
        await app.create_session()
        await events.until("session.created")
    assert "session.idle" not in events.types


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/abort", None),
        ("DELETE", "", None),
        ("POST", "/message", {"parts": [text_part("Interrupts")], "whenBusy": "interrupt"}),
    ],
)
async def test_a_turn_of_another_server_is_ended_though_a_prompt_waits_for_it_here(
    app: RunningApp, session: str, method: str, path: str, body: Any
) -> None:
    await hold_elsewhere(app, session, turn=True)
    await app.prompt_async(session, "Joins")
    await until(lambda: app.services.live.get(session).works[0].has_begun)
    asking = asyncio.create_task(app.call(method, f"/session/{session}{path}", body))
    await until(lambda: app.services.store.query(is_aborting, session))
    await free_elsewhere(app)
    await asking


async def test_an_abort_does_not_wait_for_what_another_server_does_after_the_run(app: RunningApp, session: str) -> None:
    """It has answered the prompt that waits here, and begins one of its queue."""
    await hold_elsewhere(app, session, turn=True)
    await app.prompt_async(session, "Joins")
    (waiting,), (prompt,) = app.services.live.get(session).works, await app.messages(session)
    await until(lambda: waiting.has_begun)
    aborting = asyncio.create_task(app.post(f"/session/{session}/abort"))
    await until(lambda: app.services.store.query(is_aborting, session))
    answer = message_row("msg_answer", session, role="assistant", parent_id=prompt["info"]["id"], open=True)
    await app.services.database.write(lambda connection: connection.execute(MESSAGE.insert(), [answer]))
    await asyncio.wait({aborting}, timeout=0.6)
    assert not waiting.ended.is_set(), "the answer is not complete"

    def go_on(connection: Connection) -> None:
        put_lease(connection, session, "another server", 8)
        connection.execute(LEASE.update().values(heartbeat=LEASE.c.heartbeat + 60_000))
        connection.execute(MESSAGE.update(), {"open": False})

    await app.services.database.write(go_on)
    assert await asyncio.wait_for(aborting, 20) is True


@pytest.mark.parametrize("is_aborted", [False, True])
async def test_a_session_that_another_server_deletes_while_a_prompt_waits_here_is_not_announced_any_more(
    app: RunningApp, session: str, is_aborted: bool
) -> None:
    await hold_elsewhere(app, session, turn=True)
    await app.prompt_async(session, "Joins")
    (waiting,) = app.services.live.get(session).works
    await until(lambda: waiting.has_begun)
    async with app.events() as events:
        if is_aborted:
            waiting.abort()
        await app.services.database.write(lambda connection: connection.execute(SESSION.delete()))
        await waiting.ended.wait()
        await app.create_session()
        await events.until("session.created")
    assert "session.idle" not in events.types and await statuses(app) == {}


def is_aborting(connection: Connection, session: str) -> bool:
    lease = work_rows.lease_of(connection, session)
    return lease is not None and bool(lease.aborting)
