"""What a turn held is freed when it is over, without the garbage collector: a long history would wait for it for minutes."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from turns import Step, call, say, talking, task, until

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
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([[say()]], id="an answer"),
        pytest.param([[call("read", filePath="a.txt")], [say()]], id="a tool call"),
        pytest.param([[call("read", filePath="missing.txt")], [say()]], id="a tool call that fails"),
        pytest.param([[task()], [say("Seen.")], [say()]], id="a subagent"),
        pytest.param([[{"status": 400}]], id="an error"),
    ],
)
async def test_a_turn_leaves_nothing_behind(tmp_path: Path, steps: list[list[Step]]) -> None:
    async with talking(tmp_path, turns=steps, title="T") as (app, session):
        before = held()
        await app.prompt(session, "Hi")
        await until(lambda: held() == before, "freedom")


@pytest.mark.usefixtures("without_collector")
async def test_an_aborted_turn_leaves_nothing_behind(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("Half"), {"wait": asyncio.Event()}]], title="T") as (app, session):
        before = held()
        async with app.events() as events:
            await app.prompt_async(session, "Hi")
            await events.until("message.part.updated")
            await app.post(f"/session/{session}/abort")
        await until(lambda: held() == before, "freedom")
