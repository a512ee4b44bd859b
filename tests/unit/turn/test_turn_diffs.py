import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from bare_instance import bare_instance
from conversation import assistant, text, user

from app.schema.errors import NotFound
from app.schema.message import UserSummary
from app.schema.part import PatchPart
from app.schema.session import FileDiff
from app.sessions.summary import SessionTasks
from app.turn import turn_context
from app.turn.turn_context import TurnDiffs, prompt_without_diffs


class Updates:
    """Each update waits for `gate` and announces `size` bytes."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.prompts: list[str] = []
        self.running = 0
        self.gate = asyncio.Event()
        self._came = asyncio.Condition()

    async def __call__(self, prompt_id: str) -> int:
        self.running += 1
        assert self.running == 1, "one at a time"
        self.prompts.append(prompt_id)
        async with self._came:
            self._came.notify_all()
        await self.gate.wait()
        self.running -= 1
        if prompt_id == "msg_gone":
            raise NotFound("gone")
        if prompt_id == "msg_bad":
            raise RuntimeError("no")
        return self.size

    async def when(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._came:
            await self._came.wait_for(condition)


class Empties:
    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.stored = 0

    async def __call__(self, tree: str | None) -> str:
        if self.fails:
            raise RuntimeError("no")
        self.stored += 1
        return json.dumps([tree, "", ""])


UNCHANGED = ("T0", "T0")


def turn_diffs_of(updates: Updates, empties: Empties | None = None) -> TurnDiffs:
    put_empty = empties or Empties()

    class FakeSummaries:
        async def update(self, location: object, trees: object, session_id: str, prompt_id: str) -> int:
            return await updates(prompt_id)

        async def put_empty(self, location: object, session_id: str, tree: str | None) -> str:
            return await put_empty(tree)

    summaries: Any = FakeSummaries()
    return TurnDiffs(summaries, SessionTasks(), bare_instance("/w"), "ses_1")


async def test_what_is_requested_meanwhile_is_one_more_update() -> None:
    updates = Updates()
    diffs = turn_diffs_of(updates)
    for _ in range(20):
        diffs.request("msg_1")
    await updates.when(lambda: len(updates.prompts) == 1)
    for _ in range(20):
        diffs.request("msg_1")
    updates.gate.set()
    finished = diffs.finish()
    assert finished is not None
    await finished
    assert updates.prompts == ["msg_1", "msg_1"]


async def test_each_prompt_has_its_own(caplog: pytest.LogCaptureFixture) -> None:
    updates = Updates()
    updates.gate.set()
    diffs = turn_diffs_of(updates)
    for prompt in ("msg_1", "msg_bad", "msg_gone", "msg_2"):
        diffs.request(prompt)
    finished = diffs.finish()
    assert finished is not None
    await finished
    assert updates.prompts == ["msg_1", "msg_bad", "msg_gone", "msg_2"]
    assert [record.getMessage() for record in caplog.records] == ["could not bring the session's diff up to date"]


async def test_a_pause_follows_what_was_sent_until_the_turn_ends() -> None:
    updates = Updates(size=3600 * turn_context.BYTES_PER_SECOND)
    updates.gate.set()
    diffs = turn_diffs_of(updates)
    diffs.request("msg_1")
    await updates.when(lambda: len(updates.prompts) == 1)
    diffs.request("msg_1")
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(updates.prompts) == 1
    finished = diffs.finish()
    assert finished is not None
    async with asyncio.timeout(60):
        await finished
    assert len(updates.prompts) == 2


async def test_where_nothing_was_sent_the_next_comes_at_once() -> None:
    updates = Updates(size=0)
    updates.gate.set()
    diffs = turn_diffs_of(updates)
    diffs.request("msg_1")
    await updates.when(lambda: len(updates.prompts) == 1)
    diffs.request("msg_1")
    await updates.when(lambda: len(updates.prompts) == 2)


async def test_a_first_step_that_changed_nothing_stores_an_empty_diff_at_once() -> None:
    updates, empties = Updates(), Empties()
    diffs = turn_diffs_of(updates, empties)
    await diffs.begin(UNCHANGED)
    diffs.request("msg_1", UNCHANGED)
    assert empties.stored == 1 and diffs.finish() is None
    diffs.request("msg_1", ("T0", "T1"))
    assert diffs.finish() is not None


async def test_a_step_that_changed_nothing_since_the_stored_diffs_needs_no_update() -> None:
    updates = Updates()
    diffs = turn_diffs_of(updates)
    diffs.basis = json.dumps(["T0..T1 1:7", "", ""])
    diffs.request("msg_1", ("T1", "T1"))
    assert diffs.finish() is None
    diffs.request("msg_1", ("T2", "T2"))
    assert diffs.finish() is not None


async def test_a_first_step_that_changed_the_tree_is_compared_like_any_other() -> None:
    updates, empties = Updates(), Empties()
    diffs = turn_diffs_of(updates, empties)
    await diffs.begin(("T0", "T1"))
    diffs.request("msg_1", ("T0", "T1"))
    assert empties.stored == 0 and diffs.finish() is not None


async def test_an_empty_diff_that_was_not_stored_comes_with_the_others(caplog: pytest.LogCaptureFixture) -> None:
    updates, empties = Updates(), Empties(fails=True)
    diffs = turn_diffs_of(updates, empties)
    await diffs.begin(UNCHANGED)
    diffs.request("msg_1", UNCHANGED)
    assert diffs.finish() is not None
    assert [record.getMessage() for record in caplog.records] == ["could not bring the session's diff up to date"]


async def test_a_turn_without_a_step_has_nothing_to_finish() -> None:
    assert turn_diffs_of(Updates()).finish() is None


PATCH = PatchPart(id="prt_1", session_id="ses_1", message_id="", hash="T0", files=["/d/a"])
DIFFS = UserSummary(diffs=[FileDiff(file="a", before="", after="x", additions=1, deletions=0)])


def test_the_prompt_before_is_missing_its_diffs_when_its_answers_changed_files() -> None:
    first, second = user(text(), summary=UserSummary(title="T", diffs=[])), user(text())
    worked, said = assistant(first, PATCH), assistant(first, text())
    assert prompt_without_diffs([first, worked, said, second], second.info.id) == first.info.id
    assert prompt_without_diffs([first, said, second], second.info.id) is None
    assert prompt_without_diffs([first, worked], first.info.id) is None
    done = user(text(), summary=DIFFS)
    assert prompt_without_diffs([done, assistant(done, PATCH), second], second.info.id) is None
    assert prompt_without_diffs([first, worked, done, second], second.info.id) is None
