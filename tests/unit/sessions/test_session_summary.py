"""Diffs are computed, stored and announced when the trees that they are made of differ, and not otherwise."""

import asyncio
from dataclasses import dataclass, field

import orjson
import pytest
from session_parts import DIRECTORY, PLACE, TITLE_USAGE, Sessions, assistant, user

from app.schema.errors import NotFound
from app.schema.part import PatchPart, StepFinishPart, StepStartPart, Tokens
from app.schema.session import FileDiff
from app.sessions.summary import Summaries


@dataclass
class Trees:
    """Every change between two trees is one of `files`. A diff waits for `gate`."""

    files: list[str]
    is_open: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)
    asked_for: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def diff_full(self, a: str, b: str) -> list[FileDiff]:
        self.asked_for.set()
        if not self.is_open:
            await self.gate.wait()
        self.asked.append((a, b))
        return [FileDiff(file=file, before=a, after=b, additions=1, deletions=1) for file in self.files]


async def turn(sessions: Sessions, prompt: str, number: int, before: str, after: str, *files: str, is_new: bool = True) -> None:
    """A prompt with an answer that leads from one tree to another, or another answer; its patch names `files`."""
    message = assistant(f"msg_{number}_{prompt}", prompt)
    where = {"session_id": "ses_1", "message_id": message.id}
    finish = StepFinishPart(id=f"prt_{number}b", snapshot=after, reason="stop", cost=0, tokens=Tokens(), **where)
    patch = PatchPart(id=f"prt_{number}c", hash=before, files=[f"/d/{file}" for file in files], **where)
    start = StepStartPart(id=f"prt_{number}a", snapshot=before, **where)
    await sessions.put(*([user(prompt)] if is_new else []), message, start, finish, *([patch] if files else []))


async def update(sessions: Sessions, trees: Trees | None, prompt: str = "msg_p") -> list[str]:
    """By a server that has just started; the types of the events that came of it."""
    sessions.storage.bus.published.clear()
    await Summaries(sessions.store).update(PLACE, trees, "ses_1", prompt)
    return [event["type"] for event in sessions.announced]


async def files_in_diff(sessions: Sessions) -> list[str]:
    return [found["file"] for found in orjson.loads(await sessions.service.diff_json("ses_1"))]


async def test_what_others_changed_meanwhile_is_looked_at_once_and_not_announced(sessions: Sessions) -> None:
    """The trees differ, the diff of the files that the session touched does not."""

    class Others(Trees):
        async def diff_full(self, a: str, b: str) -> list[FileDiff]:
            await super().diff_full(a, b)
            return [FileDiff(file=file, before="", after="x", additions=1, deletions=0) for file in ("a", b)]

    trees = Others([])
    await turn(sessions, "msg_p", 1, "T0", "T1", "a")
    await update(sessions, trees)
    await turn(sessions, "msg_q", 2, "T2", "T2")
    assert await update(sessions, trees, "msg_q") == []
    assert await update(sessions, trees, "msg_q") == []
    assert trees.asked == [("T0", "T1"), ("T0", "T2")]


async def test_a_prompt_whose_changes_were_undone_in_its_turn_loses_its_diff(sessions: Sessions) -> None:
    trees = Trees(["a"])
    await turn(sessions, "msg_p", 1, "T0", "T1", "a")
    await update(sessions, trees)
    await turn(sessions, "msg_p", 2, "T1", "T0", "a", is_new=False)
    assert await update(sessions, trees) == ["session.updated", "session.diff", "message.updated"]
    assert await files_in_diff(sessions) == []
    prompt = (await sessions.store.message("ses_1", "msg_p")).info
    assert prompt.role == "user" and prompt.summary is not None and prompt.summary.diffs == []


async def test_a_prompt_has_its_diff_though_the_session_s_first_snapshot_is_gone(sessions: Sessions) -> None:
    """It was deleted after a week, or is that of the machine from which the session was imported."""

    class Kept(Trees):
        async def diff_full(self, a: str, b: str) -> list[FileDiff] | None:
            return None if a == "T0" else await super().diff_full(a, b)

    trees = Kept(["b"])
    await turn(sessions, "msg_p", 1, "T0", "T1", "a")
    await update(sessions, Trees(["a"]))
    await turn(sessions, "msg_q", 2, "T1", "T2", "b")
    assert await update(sessions, trees, "msg_q") == ["message.updated"]
    assert await update(sessions, trees, "msg_q") == [] and await files_in_diff(sessions) == ["a"]
    assert trees.asked == [("T1", "T2")]
    assert await update(sessions, Trees(["a", "b"]), "msg_q") == ["session.updated", "session.diff"], (
        "it was not there for a moment"
    )


async def test_a_diff_that_a_revert_stored_is_computed_anew_by_the_next_turn(sessions: Sessions) -> None:
    trees = Trees(["a"])
    await turn(sessions, "msg_p", 1, "T0", "T1", "a")
    await update(sessions, trees)
    await sessions.store.write("ses_1", DIRECTORY, lambda tx: tx.put_diff([]))
    assert await update(sessions, trees) == ["session.diff"]
    assert await files_in_diff(sessions) == ["a"]


async def test_a_late_diff_overwrites_nothing_that_a_revert_stored_meanwhile(sessions: Sessions) -> None:
    trees, reverted = Trees(["late"], is_open=False), FileDiff(file="reverted", before="b", after="a", additions=0, deletions=1)
    await turn(sessions, "msg_p", 1, "T0", "T1", "late")
    late = asyncio.create_task(update(sessions, trees))
    await trees.asked_for.wait()
    await sessions.store.write("ses_1", DIRECTORY, lambda tx: tx.put_diff([reverted]))
    trees.gate.set()
    assert await late == ["session.diff"], "the revert's own"
    assert await files_in_diff(sessions) == ["reverted"]


async def test_a_late_diff_and_the_next_turn_s_are_stored_in_their_order(sessions: Sessions) -> None:
    summaries, slow, trees = Summaries(sessions.store), Trees(["a"], is_open=False), Trees(["a", "b"])
    await turn(sessions, "msg_p", 1, "T0", "T1", "a")
    late = asyncio.create_task(summaries.update(PLACE, slow, "ses_1", "msg_p"))
    await slow.asked_for.wait()
    await turn(sessions, "msg_q", 2, "T1", "T2", "b")
    newer = asyncio.create_task(summaries.update(PLACE, trees, "ses_1", "msg_q"))
    slow.gate.set()
    await asyncio.gather(late, newer)
    assert await files_in_diff(sessions) == ["a", "b"]


@pytest.mark.parametrize("deleted", ["the session", "the prompt"])
async def test_what_is_deleted_meanwhile_stays_deleted(sessions: Sessions, deleted: str) -> None:
    summaries, trees = Summaries(sessions.store), Trees(["a"], is_open=False)
    await turn(sessions, "msg_p", 1, "T0", "T1", "a")
    late = asyncio.create_task(summaries.update(PLACE, trees, "ses_1", "msg_p"))
    await trees.asked_for.wait()
    if deleted == "the session":
        await sessions.service.remove(PLACE.directory, "ses_1")
    else:
        await sessions.service.remove_message(PLACE, "ses_1", "msg_p")
    trees.gate.set()
    with pytest.raises(NotFound):
        await late
    with pytest.raises(NotFound):
        await summaries.set_title(PLACE, "ses_1", "msg_p", "Late", TITLE_USAGE)
