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
from app.sessions.live_parts import WRITE_BEHIND_SECONDS
from app.sessions.session_tx import SessionTx
from app.sessions.usage import Sums


def _rename(title: str, tx: SessionTx) -> None:
    tx.edit(lambda found: found.model_copy(update={"title": title}))


def _add(added: Sums, tx: SessionTx) -> None:
    tx.add_to_sums(added)


def tool_part(progress: str, *, done: bool = False) -> ToolPart:
    state: Running | Completed = Running(input={}, metadata={"output": progress}, time=Started(start=1))
    if done:
        state = Completed(input={}, output=progress, title="", metadata={}, time=CompletedTime(start=1, end=2))
    return ToolPart(id="prt_1", session_id="ses_1", message_id="msg_1", call_id="c", tool="bash", state=state)


async def texts(sessions: Sessions) -> list[str]:
    return [part["text"] for message in await sessions.read() for part in message["parts"]]


async def written(sessions: Sessions) -> list[str]:
    return [orjson.loads(row.body)["text"] for row in await sessions.storage.rows(PART)]


async def test_an_event_is_announced_when_its_change_is_stored_and_not_before(sessions: Sessions) -> None:
    sessions.database.gate.clear()
    stored = sessions.post(user("msg_1"))
    await asyncio.sleep(0)
    assert sessions.announced == []
    sessions.database.gate.set()
    await stored
    assert [event["type"] for event in sessions.announced] == ["message.updated"]
    assert len(await sessions.read()) == 1


async def test_each_event_of_a_session_shows_what_its_own_change_has_stored(sessions: Sessions) -> None:
    """Though they are stored together."""
    sessions.database.gate.clear()
    for title, cost in (("First", 0.25), ("Second", 0.5)):
        sessions.store.post("ses_1", DIRECTORY, partial(_rename, title))
        stored = sessions.store.post("ses_1", DIRECTORY, partial(_add, Sums.of(cost, Tokens())))
    sessions.database.gate.set()
    await stored
    shown = [event["properties"]["info"] for event in sessions.announced]
    assert [(info["title"], info.get("cost", 0)) for info in shown] == [
        ("First", 0),
        ("First", 0.25),
        ("Second", 0.25),
        ("Second", 0.75),
    ]


# Streaming.


async def test_a_read_sees_a_streaming_part_as_it_stands(sessions: Sessions) -> None:
    await sessions.put(user("msg_1"))
    await stream_first(sessions, "Hel")
    sessions.stream("prt_1", "lo")
    assert await texts(sessions) == ["Hello"] and await written(sessions) == ["Hel"]
    message = await sessions.store.message("ses_1", "msg_1")
    assert message.parts == [text_part("prt_1", "Hello")]
    assert orjson.loads(await sessions.store.message_json("ses_1", "msg_1"))["parts"][0]["text"] == "Hello"


async def stream_first(sessions: Sessions, text: str) -> None:
    """Up to where it is stored."""
    sessions.stream("prt_1", text)
    await sessions.store.barrier()


async def test_the_first_text_of_a_part_is_shown_once_it_is_stored(sessions: Sessions) -> None:
    await sessions.put(user("msg_1"))
    sessions.storage.bus.published.clear()
    sessions.database.gate.clear()
    sessions.stream("prt_1", "H")
    await asyncio.sleep(0)
    assert sessions.storage.bus.order == []
    sessions.database.gate.set()
    await sessions.store.barrier()
    assert await written(sessions) == ["H"] and sessions.storage.bus.order == ["H"]


async def test_a_delta_shows_the_part_as_of_then_whenever_its_frame_is_made(sessions: Sessions) -> None:
    await sessions.put(user("msg_1"))
    for text in ("Hel", "lo "):
        sessions.stream("prt_1", text)
    tool = tool_part("half").model_copy(update={"id": "prt_2"})
    sessions.store.live.changed(tool, DIRECTORY, None)
    tool.state = tool_part("all").state
    await sessions.store.barrier()
    shown = [orjson.loads(one.render()) for one in sessions.storage.bus.published if isinstance(one, PartDelta)]
    assert [part["text"] for part in shown[:2]] == ["Hel", "Hello "]
    assert shown[2]["state"] == tool_part("half").state.wire()


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
    page = await sessions.store.page_json("ses_1", None)
    assert [part["text"] for part in orjson.loads(page.body)[0]["parts"]] == ["one", "two"]


async def test_a_streaming_part_is_written_behind(sessions: Sessions) -> None:
    await sessions.put(user("msg_1"))
    await stream_first(sessions, "H")
    for text in ("el", "lo"):
        sessions.stream("prt_1", text)
    writes = sessions.database.writes
    async with asyncio.timeout(WRITE_BEHIND_SECONDS * 20):
        while await written(sessions) != ["Hello"]:
            await asyncio.sleep(0.01)
    assert sessions.database.writes == writes + 1


async def test_a_part_that_cannot_be_stored_keeps_no_other_from_it(sessions: Sessions) -> None:
    await sessions.put(user("msg_1"))
    await stream_first(sessions, "H")
    broken = tool_part("")
    broken.id, broken.state = "prt_2", Running(input={}, metadata={"no": object()}, time=Started(start=1))
    sessions.store.live.changed(broken, DIRECTORY, None)
    sessions.stream("prt_1", "ello")
    async with asyncio.timeout(WRITE_BEHIND_SECONDS * 40):
        while await written(sessions) != ["Hello"]:
            await asyncio.sleep(0.01)
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


async def test_deltas_of_a_part_are_announced_after_what_stands_before_them(sessions: Sessions) -> None:
    sessions.database.gate.clear()
    sessions.post(user("msg_1"))
    sessions.stream("prt_1", "Hello")
    assert sessions.storage.bus.order == []
    sessions.database.gate.set()
    await sessions.store.barrier()
    assert sessions.storage.bus.order[-1] == "Hello" and len(sessions.storage.bus.order) == 2
