"""The one door: what is committed is announced, what streams is seen before it is written."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pytest
from session_parts import DIRECTORY, Sessions, text_part, user

from app.events.bus.base import PartDelta
from app.record.tables import PART
from app.schema.part import Completed, CompletedTime, Part, Running, Started, Tokens, ToolPart
from app.sessions import live_parts
from app.sessions.session_tx import SessionTx
from app.sessions.usage import Sums


def tool_part(progress: str, *, done: bool = False, part_id: str = "prt_1") -> ToolPart:
    state: Running | Completed = Running(input={}, metadata={"output": progress}, time=Started(start=1))
    if done:
        state = Completed(input={}, output=progress, title="", metadata={}, time=CompletedTime(start=1, end=2))
    return ToolPart(id=part_id, session_id="ses_1", message_id="msg_1", call_id="c", tool="bash", state=state)


async def written(sessions: Sessions) -> list[str]:
    return [orjson.loads(row.body)["text"] for row in await sessions.storage.rows(PART)]


async def until_written(sessions: Sessions, text: str) -> None:
    async with asyncio.timeout(60):
        while await written(sessions) != [text]:
            await asyncio.sleep(0.01)


async def test_an_event_is_announced_when_its_change_is_stored_and_a_delta_behind_it(sessions: Sessions) -> None:
    sessions.database.gate.clear()
    stored = sessions.post(user("msg_1"))
    sessions.stream("prt_1", "Hello")
    await asyncio.sleep(0)
    assert sessions.storage.bus.order == []
    sessions.database.gate.set()
    await stored
    await sessions.store.barrier()
    assert [event["type"] for event in sessions.announced] == ["message.updated"] and len(await sessions.read()) == 1
    assert sessions.storage.bus.order[1:] == ["Hello"] == await written(sessions)


async def test_each_event_of_a_session_shows_what_its_own_change_has_stored(sessions: Sessions) -> None:
    """Though they are stored together."""

    def rename(title: str, tx: SessionTx) -> None:
        tx.edit(lambda found: found.model_copy(update={"title": title}))

    sessions.database.gate.clear()
    for title, cost in (("First", 0.25), ("Second", 0.5)):
        sessions.store.post("ses_1", DIRECTORY, partial(rename, title))
        added = Sums.of(cost, Tokens())
        stored = sessions.store.post("ses_1", DIRECTORY, lambda tx, added=added: tx.add_to_sums(added))
    sessions.database.gate.set()
    await stored
    shown = [(info["title"], info.get("cost", 0)) for info in (told["info"] for told in sessions.announced_of("session.updated"))]
    assert shown == [("First", 0), ("First", 0.25), ("Second", 0.25), ("Second", 0.75)]


# Streaming.


async def test_a_read_sees_a_streaming_part_as_it_stands_before_that_is_written(sessions: Sessions) -> None:
    await sessions.put(user("msg_1"))
    sessions.stream("prt_1", "H")
    await sessions.store.barrier()
    for text in ("el", "lo"):
        sessions.stream("prt_1", text)
    writes = sessions.database.writes
    assert (await sessions.read())[0]["parts"][0]["text"] == "Hello" and await written(sessions) == ["H"]
    assert (await sessions.store.message("ses_1", "msg_1")).parts == [text_part("prt_1", "Hello")]
    assert orjson.loads(await sessions.store.message_json("ses_1", "msg_1"))["parts"][0]["text"] == "Hello"
    await until_written(sessions, "Hello")
    assert sessions.database.writes == writes + 1


async def test_what_has_not_changed_since_it_was_written_is_not_written_again(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_parts, "WRITE_BEHIND_SECONDS", 0.01)
    await sessions.put(user("msg_1"))
    for text in ("H", "ello"):
        sessions.stream("prt_1", text)
        await sessions.store.barrier()
    sessions.store.live.changed(tool_part("half", part_id="prt_2"), DIRECTORY, None)
    await asyncio.sleep(0.1)
    writes = sessions.database.writes
    await asyncio.sleep(0.2)
    assert sessions.database.writes == writes
    sessions.stream("prt_1", " again")
    await asyncio.sleep(0.2)
    assert sessions.database.writes == writes + 1


async def test_a_delta_shows_the_part_as_of_then_whenever_its_frame_is_made(sessions: Sessions) -> None:
    await sessions.put(user("msg_1"))
    for text in ("Hel", "lo "):
        sessions.stream("prt_1", text)
    tool = tool_part("half", part_id="prt_2")
    sessions.store.live.changed(tool, DIRECTORY, None)
    tool.state = tool_part("all").state
    await sessions.store.barrier()
    first, second, third = [orjson.loads(one.render()) for one in sessions.storage.bus.published if isinstance(one, PartDelta)]
    assert [first["text"], second["text"], third["state"]] == ["Hel", "Hello ", tool_part("half").state.wire()]


def begin_text(sessions: Sessions) -> Part:
    return sessions.stream("prt_1", "H").up_to_date()


def begin_tool(sessions: Sessions) -> Part:
    sessions.post(tool_part(""))
    part = tool_part("shown")
    sessions.store.live.changed(part, DIRECTORY, None)
    return part


@pytest.mark.parametrize("begin", [begin_text, begin_tool])
async def test_no_client_knows_of_a_part_before_it_is_stored(sessions: Sessions, begin: Callable[[Sessions], Part]) -> None:
    await sessions.put(user("msg_1"))
    sessions.database.gate.clear()
    part = begin(sessions)
    await asyncio.sleep(0)
    assert sessions.store.live.all() == [] and sessions.store.live.of("ses_1") == {}
    sessions.database.gate.set()
    await sessions.store.barrier()
    assert sessions.store.live.all() == [(part, DIRECTORY, False)] and sessions.store.live.of("ses_1") == {"prt_1": part}


async def test_a_read_holds_what_was_announced_while_it_was_on_its_way(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sessions.put(user("msg_1"))
    read = sessions.database.read
    late = iter([text_part("prt_1", "one"), text_part("prt_2", "two")])

    async def slow(query: Callable[[Any], Any]) -> Any:
        found = await read(query)
        if part := next(late, None):
            await sessions.put(part)
        return found

    monkeypatch.setattr(sessions.database, "read", slow)
    assert [part["text"] for part in (await sessions.read())[0]["parts"]] == ["one", "two"]


async def test_a_part_that_cannot_be_stored_keeps_no_other_from_it(sessions: Sessions) -> None:
    await sessions.put(user("msg_1"))
    sessions.stream("prt_1", "H")
    await sessions.store.barrier()
    broken = tool_part("", part_id="prt_2")
    broken.state = Running(input={}, metadata={"no": object()}, time=Started(start=1))
    sessions.store.live.changed(broken, DIRECTORY, None)
    sessions.stream("prt_1", "ello")
    await until_written(sessions, "Hello")
    sessions.stream("prt_1", " again")
    await sessions.store.barrier()
    assert await written(sessions) == ["Hello again"]


async def test_what_streams_while_an_earlier_state_is_stored_stays_seen(sessions: Sessions) -> None:
    await sessions.put(user("msg_1"))
    sessions.store.live.changed(tool_part("1"), DIRECTORY, None)
    stored = sessions.post(tool_part("2"))
    sessions.store.live.changed(tool_part("3"), DIRECTORY, None)
    await stored
    await asyncio.sleep(0)
    assert [part for part, *_ in sessions.store.live.all()] == [tool_part("3")]
    await sessions.put(tool_part("4", done=True))
    assert sessions.store.live.all() == []
