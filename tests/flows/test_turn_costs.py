"""What a turn costs in a session that has changed much: by what it changes itself, not by what was changed before it."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from database_meter import Spent, metered
from running_app import RunningApp, running_app
from sse_reader import Received
from turns import Step, bash, call, play, say, talking, texts, write
from user_logins import user

from app.providers.base import ModelRequest, StreamEvent
from app.providers.scripted import ScriptedProvider
from app.util.shared_threads import WORKING_FOR, Owner

FILES = 20
FILE = ("x" * 99 + "\n") * 500

CREATE_STATEMENTS, FIRST_TURN_STATEMENTS, PLAIN_TURN_STATEMENTS, TOOL_TURN_STATEMENTS = 3, 40, 34, 61
"""As measured. What a change decides by is read in its transaction, and each read of a turn is one on a reader's thread."""


@dataclass
class Cost:
    characters: int
    written: int
    events: list[Received] = field(default_factory=list)

    def of_type(self, event_type: str) -> list[Received]:
        return [event for event in self.events if event.type == event_type]


@asynccontextmanager
async def edited(base: Path) -> AsyncIterator[tuple[RunningApp, str, Spent]]:
    """A session with 20 files of 50 KB written by its first turn."""
    with metered() as spent:
        async with running_app(base) as app:
            paths = [str(app.directory / f"{n}.txt") for n in range(FILES)]
            app.provider.add([write(path, FILE) for path in paths], [say()])
            session = (await app.create_session(title="T"))["id"]
            await app.prompt(session, "Write")
            yield app, session, spent


async def cost(app: RunningApp, session: str, spent: Spent, *turns: list[Step]) -> Cost:
    """Of one prompt."""
    app.provider.add(*turns)
    async with app.events() as events:
        before = spent.copy()
        await app.prompt(session, "Go on")
        await events.until("session.idle")
        await app.create_session()
        await events.until("session.created")
        return Cost(events.characters, spent.since(before).written, events.seen)


async def test_a_plain_turn_costs_the_same_whatever_was_edited_before_and_an_edit_sends_the_diff_once(tmp_path: Path) -> None:
    async with edited(tmp_path) as (app, session, spent):
        diff = await app.get(f"/session/{session}/diff")
        plain = await cost(app, session, spent, [say("It is all written.", chunks=5)])
        assert await app.get(f"/session/{session}/diff") == diff and len(diff) == FILES
        one = await cost(app, session, spent, [bash("echo more >> 3.txt")], [say()])
        diff = await app.get(f"/session/{session}/diff")
    assert plain.characters <= 30_000 and plain.written <= 60_000
    assert plain.of_type("session.diff") == []
    assert [event.properties["diff"] for event in one.of_type("session.diff")] == [diff]
    assert next(file for file in diff if file["file"] == "3.txt")["after"] == FILE + "more\n"
    assert one.characters < 1.3 * size(diff), "the session's diff and, in the prompt, that of one file"


async def test_a_turn_of_many_edits_sends_few_diffs_and_the_last_is_right(tmp_path: Path) -> None:
    async with edited(tmp_path) as (app, session, spent):
        steps = [[bash(f"echo more >> {n}.txt")] for n in range(FILES)]
        many = await cost(app, session, spent, *steps, [say()])
        diff = await app.get(f"/session/{session}/diff")
        prompt = (await app.messages(session))[-2 - FILES]["info"]
    sent = [event.properties["diff"] for event in many.of_type("session.diff")]
    assert len(sent) <= 3 and sent[-1] == diff
    assert [file["after"] for file in diff] == [FILE + "more\n"] * FILES
    assert [file["after"] for file in prompt["summary"]["diffs"]] == [FILE + "more\n"] * FILES
    assert many.characters < 8 * size(diff)


def size(diff: list[dict[str, Any]]) -> int:
    """In JSON: a file's texts before and after, and the patch between them."""
    return len(json.dumps(diff))


async def least_spent(spent: Spent, work: Callable[[], Awaitable[object]]) -> Spent:
    """Of some runs: what the server does beside them from time to time is not counted."""
    costs = []
    for _ in range(8):
        before = spent.copy()
        await work()
        costs.append(spent.since(before))
    return min(costs, key=lambda cost: cost.statements)


PLAIN_TURN_COMMITS = 4
"""Of the prompt, with its lease; of the answer's message, before the model is asked; of the answer; of the turn's end."""
TOOL_TURN_COMMITS = 8
"""Of the prompt, of both steps and of the call between them, and of the turn's end."""


async def test_a_turn_makes_few_statements(tmp_path: Path) -> None:
    with metered() as spent:
        async with talking(tmp_path, title="Mine") as (app, session):

            async def plain_turn() -> None:
                await app.prompt(session, "Go on")

            async def first_turn() -> None:
                await app.prompt((await app.create_session(title="Mine"))["id"], "Go on")

            async def tool_turn() -> None:
                await play(app, session, call("read", filePath="a.txt"))

            await plain_turn()
            created = await least_spent(spent, app.create_session)
            assert created.statements <= CREATE_STATEMENTS
            first = await least_spent(spent, first_turn)
            assert first.statements <= CREATE_STATEMENTS + FIRST_TURN_STATEMENTS
            plain = await least_spent(spent, plain_turn)
            assert plain.statements <= PLAIN_TURN_STATEMENTS and plain.commits <= PLAIN_TURN_COMMITS
            tool = await least_spent(spent, tool_turn)
            assert tool.statements <= TOOL_TURN_STATEMENTS and tool.commits <= TOOL_TURN_COMMITS


class Streaming(ScriptedProvider):
    """Lets the server work between deltas, as a connection does."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        async for event in super().stream(request):
            yield event
            await asyncio.sleep(0)


async def seconds_of_cpu(base: Path, characters: int) -> float:
    """For a text that comes in pieces of 20, which a client listens to."""
    provider = Streaming([[say("x" * characters, chunks=characters // 20)]])
    async with talking(base, provider=provider, title="Mine") as (app, session):
        async with app.events():
            began = time.process_time()
            answer = await app.prompt(session, "Write much")
            seconds = time.process_time() - began
        assert len(texts(answer)[0]) == characters
    return seconds


async def test_four_times_the_text_takes_about_four_times_the_work(tmp_path: Path) -> None:
    short = min([await seconds_of_cpu(tmp_path / str(number), 200_000) for number in range(3)])
    long = await seconds_of_cpu(tmp_path / "long", 800_000)
    assert long < 6 * short, (short, long)


class Noting(ScriptedProvider):
    def __init__(self) -> None:
        super().__init__(otherwise="Done.")
        self.owners: list[Owner] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        self.owners.append(WORKING_FOR.get())
        async for event in super().stream(request):
            yield event


async def test_a_member_s_turn(tmp_path: Path) -> None:
    provider, root = Noting(), tmp_path / "anna"
    root.mkdir()
    async with running_app(tmp_path, provider=provider) as app, user(app, "anna", roots=[root]) as anna:
        session = (await anna.create_session())["id"]
        await anna.prompt(session, "Hi")
        await anna.prompt_async(session, "And now?")
        await anna.prompt(session, "Then?", whenBusy="queue")
    assert provider.owners and {*provider.owners} == {Owner("anna", str(root))}


async def test_a_turn_without_users(tmp_path: Path) -> None:
    async with talking(tmp_path, provider=(provider := Noting())) as (app, session):
        await app.prompt(session, "Hi")
        assert {*provider.owners} == {Owner("", str(app.directory))}
