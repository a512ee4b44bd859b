import asyncio

import pytest
from conversation import assistant
from session_parts import PLACE, Sessions

from app.record.engine import StorageError
from app.schema.part import Part, ReasoningPart, TextPart, Tokens
from app.turn.part_writer import PartWriter


@pytest.fixture
async def writer(sessions: Sessions) -> PartWriter:
    message = assistant("msg_0", finish=None)
    await sessions.put(message)
    return PartWriter(sessions.store, PLACE.directory, message.info)


async def parts(sessions: Sessions, writer: PartWriter) -> list[Part]:
    await writer.stored()
    return (await sessions.message(writer.message.id)).parts


def append(sessions: Sessions, writer: PartWriter, block: str, text: str) -> None:
    sessions.store.live.append(writer.open[block], text)


def texts(parts: list[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, TextPart)]


@pytest.mark.parametrize(("heard", "announced"), [(("the test",), ["H", "ello"]), ((), ["H"])])
async def test_a_part_that_streams_is_read_as_it_stands_also_where_nobody_listens(
    sessions: Sessions, writer: PartWriter, heard: tuple[str, ...], announced: list[str]
) -> None:
    sessions.storage.publisher.delta_listeners = heard
    writer.start_block("1", TextPart, None)
    append(sessions, writer, "1", "H")
    await sessions.store.barrier()
    append(sessions, writer, "1", "ello")
    message = await sessions.store.message("ses_1", writer.message.id)
    assert texts(message.parts) == ["Hello"]
    assert [delta.text for delta in sessions.storage.bus.deltas] == announced


async def test_blocks_may_overlap(sessions: Sessions, writer: PartWriter) -> None:
    writer.start_block("r", ReasoningPart, {"acme": {"signature": ""}})
    append(sessions, writer, "r", "hm")
    writer.start_block("t", TextPart, None)
    append(sessions, writer, "t", "yes")
    writer.end_block("r", {"acme": {"signature": "s"}})
    writer.end_block("t", None)
    thought, said = await parts(sessions, writer)
    assert (thought.text, thought.metadata, said.text) == ("hm", {"acme": {"signature": "s"}}, "yes")


async def test_an_empty_text_leaves_a_part_and_empty_reasoning_only_with_metadata(sessions: Sessions, writer: PartWriter) -> None:
    writer.start_block("t", TextPart, None)
    writer.end_block("t", None)
    writer.start_block("silent", ReasoningPart, None)
    writer.end_block("silent", None)
    writer.start_block("sealed", ReasoningPart, None)
    writer.end_block("sealed", {"acme": {"encrypted": "x"}})
    assert [type(part) for part in await parts(sessions, writer)] == [TextPart, ReasoningPart]


async def test_progress_is_shown_until_the_call_is_over(sessions: Sessions, writer: PartWriter) -> None:
    part = writer.tool_running("c", "bash", {})
    writer.tool_progress(part, "Working", {"output": "1"})
    writer.tool_progress(part, None, {"output": "2"})
    assert (part.state.title, part.state.metadata) == ("Working", {"output": "2"})
    started = part.state.time.start
    writer.tool_failed(part, "Error: no")
    writer.tool_progress(part, "late", {"output": "3"})
    (tool,) = await parts(sessions, writer)
    assert (tool.state.error, tool.state.metadata, tool.state.time.start) == ("Error: no", {"output": "2"}, started)


async def test_a_call_that_nobody_is_still_writing_is_running_at_once(sessions: Sessions, writer: PartWriter) -> None:
    seen: list[str] = []
    with sessions.store.watching("ses_1", lambda part: seen.append(part.state.status)):
        writer.tool_running("c", "bash", {"command": "ls"})
        await writer.stored()
    assert seen == ["running"]


# A store that refuses.


async def test_a_write_that_failed_is_raised_for_all_who_wait_until_it_is_put_once_more(
    sessions: Sessions, writer: PartWriter
) -> None:
    sessions.database.full = True
    writer.step_start("tree")
    outcomes = await asyncio.gather(*(writer.stored() for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in outcomes] == [StorageError] * 3
    with pytest.raises(StorageError):
        await writer.stored()
    with pytest.raises(StorageError):
        writer.raise_failure()
    sessions.database.full = False
    writer.step_finish("stop", None, 0, Tokens())
    with pytest.raises(StorageError):
        await writer.stored()
    writer.finish_open_parts()
    writer.raise_failure()
    assert [part.type for part in await parts(sessions, writer)] == ["step-start", "step-finish"]


async def test_nothing_of_an_answer_is_stored_or_announced_behind_a_write_that_failed(sessions: Sessions) -> None:
    message = assistant("msg_lost", finish=None).info.model_copy(update={"session_id": "ses_1"})
    writer = PartWriter(sessions.store, PLACE.directory, message)
    sessions.storage.bus.published.clear()
    sessions.database.full = True
    writer.enqueue_message()
    await asyncio.sleep(0)
    writer.start_block("1", TextPart, None)
    append(sessions, writer, "1", "Hel")
    with pytest.raises(StorageError):
        await writer.stored()
    sessions.database.full = False
    append(sessions, writer, "1", "lo")
    writer.end_block("1", None)
    writer.tool_running("c", "bash", {})
    await sessions.store.barrier()
    assert (sessions.announced, sessions.storage.bus.deltas) == ([], [])
    writer.finish_open_parts()
    assert [part.type for part in await parts(sessions, writer)] == ["text", "tool"]
    outcomes = [event["properties"]["part"]["type"] for event in sessions.announced if "part" in event["properties"]]
    assert (sessions.announced[0]["type"], outcomes) == ("message.updated", ["text", "tool", "tool"])


async def test_an_attempt_whose_withdrawal_was_refused_is_withdrawn_later(sessions: Sessions, writer: PartWriter) -> None:
    writer.tool_pending("c", "read")
    await writer.stored()
    sessions.database.full = True
    writer.withdraw_attempt()
    with pytest.raises(StorageError):
        await writer.stored()
    sessions.database.full = False
    writer.finish_open_parts()
    assert await parts(sessions, writer) == []
