"""A conversation of hundreds of turns in a small window: it is pruned and compacted on its own, and its last turn costs no more
than its first ones."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import psutil
from database_meter import Spent, metered
from long_form import LONG
from running_app import RunningApp, running_app
from turns import configured, tools

from app.providers.base import ModelRequest, UserTurn
from app.providers.estimate import estimate_request
from app.providers.scripted import Call, Say, ScriptedProvider, ScriptedTurn, SetUsage
from app.turn.context.history import CLEARED

TURNS = 300 if LONG else 100
WINDOW = 32_000
MODELS = {"small": {"limit": {"context": WINDOW, "output": 4_000}}, "title": {"name": "Titles"}}
PROVIDERS = {"acme": {"npm": "scripted", "models": MODELS}}
CONFIG = {"model": "acme/small", "small_model": "acme/title", "provider": PROVIDERS}
FILE = "\n".join(f"line {number}: {'lorem ipsum ' * 5}" for number in range(88))
PROMPT = "Read it again. " + "Please look for the place where it is decided. " * 6
PATIENCE = 300.0


class Reader:
    """A model that reads a file in every turn, speaks of it, and refuses what is longer than its window."""

    def __init__(self) -> None:
        self.summaries = 0
        self.longest = 0
        self.saw_cleared = False

    def __call__(self, request: ModelRequest) -> ScriptedTurn:
        size = estimate_request(request)
        self.longest = max(self.longest, size)
        self.saw_cleared |= CLEARED in str(request.messages)
        usage = SetUsage({"input": size, "output": 150})
        if not request.tools:
            self.summaries += 1
            return (Say("It was read, and nothing is decided yet. " * 10), usage)
        last = request.messages[-1]
        if isinstance(last, UserTurn) and PROMPT in str(last.content):
            return (Call("read", {"filePath": "long.txt"}), usage)
        return (Say("I have read it, and it is not decided there. " * 12), usage)


class Diary:
    """What each turn cost, by the summary that it came after."""

    def __init__(self, spent: Spent) -> None:
        self._spent = spent
        self._process = psutil.Process()
        self.cycles: dict[int, list[dict[str, float]]] = {}

    async def turn(self, app: RunningApp, session: str, reader: Reader) -> None:
        before, began = self._spent.copy(), time.perf_counter()
        answer = await app.prompt(session, PROMPT)
        assert answer["info"]["finish"] == "stop" and "error" not in answer["info"]
        app.provider.requests.clear()
        cost = self._spent.since(before)
        self.cycles.setdefault(reader.summaries, []).append(
            {
                "statements": cost.statements,
                "KB read": cost.read / 1000,
                "SQLite instructions": cost.work * 100,
                "ms": (time.perf_counter() - began) * 1000,
                "MB resident": self._process.memory_info().rss / 1e6,
            }
        )

    def cycle(self, number: int) -> dict[str, float]:
        """The mean turn of a cycle from one summary to the next."""
        turns = self.cycles[number]
        return {what: fmean(turn[what] for turn in turns) for what in turns[0]}


async def test_a_turn_at_the_end_costs_no_more_than_one_at_the_start(tmp_path: Path, figure: Callable[[str], None]) -> None:
    (configured(tmp_path, CONFIG) / "long.txt").write_text(FILE)
    reader = Reader()
    with metered() as spent:
        async with running_app(tmp_path, provider=ScriptedProvider(otherwise=reader), patience=PATIENCE) as app:
            session = str((await app.create_session())["id"])
            diary = Diary(spent)
            for _ in range(TURNS):
                await diary.turn(app, session, reader)
            messages = await app.messages(session)
    first, last = diary.cycle(0), diary.cycle(reader.summaries - 1)
    outputs = [part["state"] for part in tools(messages)]
    pruned = sum("compacted" in state["time"] for state in outputs)
    size = sum(len(state["output"]) for state in outputs) / 1e6
    figure(f"{TURNS} turns, {size:.2f} MB of tool output, {len(messages)} messages")
    figure(f"{reader.summaries} summaries, {pruned} outputs pruned, the longest request {reader.longest} of {WINDOW} tokens")
    figure(f"a turn at the start: {_told(first)}")
    figure(f"a turn at the end:   {_told(last)}")
    assert len(outputs) == TURNS and all(len(state["output"]) > 5_000 for state in outputs), "the record is whole"
    assert reader.summaries >= 2 and pruned > TURNS / 2 and reader.saw_cleared
    assert reader.longest < WINDOW
    assert last["statements"] < 1.1 * first["statements"]
    assert last["KB read"] < 1.2 * first["KB read"]
    assert last["SQLite instructions"] < (1.3 if LONG else 2) * first["SQLite instructions"]
    assert last["MB resident"] < first["MB resident"] + 15


def _told(costs: dict[str, float]) -> str:
    return ", ".join(f"{cost:.0f} {what}" for what, cost in costs.items())
