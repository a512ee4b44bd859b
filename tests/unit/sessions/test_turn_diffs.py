import asyncio
import json

import pytest
from conversation import assistant, text, user

from app.record.writer import StaleLease
from app.schema.errors import NotFound
from app.schema.message import UserSummary
from app.schema.part import PatchPart
from app.schema.session import FileDiff
from app.sessions.summary import BYTES_PER_SECOND, SessionTasks, TurnDiffs, prompt_without_diffs

FAILED = ["the diff of ses_1 could not be brought up to date"]


class FakeSummaries:
    """Each update waits for `gate` and announces `size` bytes. An empty diff is stored unless `fails`."""

    def __init__(self, size: int = 1, *, waits: bool = False, fails: bool = False) -> None:
        self.size, self.fails = size, fails
        self.prompts: list[str] = []
        self.empties = self.running = 0
        self.gate = asyncio.Event()
        if not waits:
            self.gate.set()
        self.diffs = TurnDiffs(self, SessionTasks(), None, None, "ses_1")

    async def update(self, _location: object, _trees: object, _session_id: str, prompt_id: str) -> int:
        self.running += 1
        assert self.running == 1, "one at a time"
        self.prompts.append(prompt_id)
        await self.gate.wait()
        self.running -= 1
        failures = {"msg_gone": NotFound("gone"), "msg_bad": RuntimeError("no"), "msg_taken": StaleLease("taken over")}
        if failure := failures.get(prompt_id):
            raise failure
        return self.size

    async def put_empty(self, _location: object, _session_id: str, tree: str | None) -> str:
        if self.fails:
            raise RuntimeError("no")
        self.empties += 1
        return json.dumps([tree, "", ""])

    async def until_asked(self) -> None:
        async with asyncio.timeout(60):
            while not self.prompts:
                await asyncio.sleep(0)

    async def finished(self) -> list[str]:
        async with asyncio.timeout(60):
            await self.diffs.finish()
        return self.prompts


async def test_each_prompt_has_its_own_update_and_what_is_requested_meanwhile_is_one_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    summaries = FakeSummaries(waits=True)
    for _ in range(2):
        for prompt in ("msg_1", "msg_bad", "msg_gone", "msg_2") * 20:
            summaries.diffs.request(prompt)
        await summaries.until_asked()
    summaries.gate.set()
    assert await summaries.finished() == ["msg_1", "msg_bad", "msg_gone", "msg_2"] * 2
    assert [record.getMessage() for record in caplog.records] == FAILED * 2


async def test_what_a_server_was_about_to_store_when_another_took_the_session_over_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def patch() -> None:
        raise StaleLease("another server runs ses_1 now")

    summaries = FakeSummaries()
    summaries.diffs.request("msg_taken")
    await asyncio.gather(summaries.finished(), SessionTasks().start_patch("ses_1", patch()))
    assert caplog.records == []


@pytest.mark.parametrize(("size", "is_paused"), [(3600 * BYTES_PER_SECOND, True), (0, False)])
async def test_a_pause_follows_what_was_sent_until_the_turn_ends(size: int, is_paused: bool) -> None:
    summaries = FakeSummaries(size)
    summaries.diffs.request("msg_1")
    await summaries.until_asked()
    summaries.diffs.request("msg_1")
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(summaries.prompts) == (1 if is_paused else 2)
    assert len(await summaries.finished()) == 2


async def test_a_first_step_that_changed_nothing_stores_an_empty_diff_at_once() -> None:
    summaries = FakeSummaries()
    await summaries.diffs.begin(("T0", "T0"))
    summaries.diffs.request("msg_1", ("T0", "T0"))
    assert summaries.empties == 1 and summaries.diffs.finish() is None
    summaries.diffs.request("msg_1", ("T0", "T1"))
    assert summaries.diffs.finish() is not None


async def test_a_step_that_changed_nothing_since_the_stored_diffs_needs_no_update() -> None:
    diffs = FakeSummaries().diffs
    diffs.basis = json.dumps(["T0..T1 1:7", "", ""])
    diffs.request("msg_1", ("T1", "T1"))
    assert diffs.finish() is None
    diffs.request("msg_1", ("T2", "T2"))
    assert diffs.finish() is not None


@pytest.mark.parametrize(("after", "fails", "logged"), [("T1", False, []), ("T0", True, FAILED)], ids=["changed", "not stored"])
async def test_a_first_diff_that_is_not_empty_or_not_stored_comes_with_the_others(
    after: str, fails: bool, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    summaries = FakeSummaries(fails=fails)
    await summaries.diffs.begin(("T0", after))
    summaries.diffs.request("msg_1", ("T0", after))
    assert summaries.empties == 0 and await summaries.finished() == ["msg_1"]
    assert [record.getMessage() for record in caplog.records] == logged


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
