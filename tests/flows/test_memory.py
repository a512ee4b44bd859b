"""What a turn held is freed when it is over, without the garbage collector: a long history would wait for it for minutes."""

import asyncio
import gc
from collections.abc import Iterator

import pytest
from running_app import RunningApp
from turns import call, say, task, until

from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import ToolPart
from app.turn.part_writer import PartWriter
from app.turn.runs.turns import TurnWork
from app.turn.turn import Turn

OF_A_TURN = (TurnWork, Turn, PartWriter, MessageWithParts, AssistantMessage, ToolPart)


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> list[str]:
    return [type(each).__name__ for each in gc.get_objects() if type(each) in OF_A_TURN]


@pytest.mark.usefixtures("without_collector")
async def test_a_turn_leaves_nothing_behind(app: RunningApp) -> None:
    """Of an answer, a tool call, one that fails, a subagent, an error, and an abort."""
    session = (await app.create_session(title="T"))["id"]
    before = held()
    read, missing = ([call("read", filePath=path)] for path in ("a.txt", "missing.txt"))
    for steps in ([], [read], [missing], [[task()], [say("Seen.")]]):
        app.provider.add(*steps, [say()])
        await app.prompt(session, "Hi")
        await until(lambda: held() == before, f"freedom after {steps}")
    app.provider.add([{"status": 400}], [say("Half"), {"wait": asyncio.Event()}])
    await app.prompt(session, "Hi")
    await until(lambda: held() == before, "freedom after an error")
    async with app.events() as events:
        await app.prompt_async(session, "Hi")
        await events.until("message.part.updated")
        await app.post(f"/session/{session}/abort")
    await until(lambda: held() == before, "freedom after an abort")
