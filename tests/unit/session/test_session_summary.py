"""Diffs are computed, stored and announced when the trees that they are made of differ, and not otherwise."""

from dataclasses import dataclass, field

from session_parts import DIRECTORY, PLACE, Sessions, assistant, user

from app.schema.part import PatchPart, StepFinishPart, StepStartPart, Tokens
from app.schema.session import FileDiff
from app.session.summary import Summaries


@dataclass
class Trees:
    """Every change between two trees is one of `files`."""

    files: list[str]
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def diff_full(self, a: str, b: str) -> list[FileDiff]:
        self.asked.append((a, b))
        return [FileDiff(file=file, before=a, after=b, additions=1, deletions=1) for file in self.files]


async def step(sessions: Sessions, prompt: str, number: int, before: str, after: str, *files: str) -> None:
    """An answer that leads from one tree to another; its patch names `files`."""
    message = assistant(f"msg_{number}_{prompt}", prompt)
    where = {"session_id": "ses_1", "message_id": message.id}
    await sessions.put(message)
    await sessions.put(StepStartPart(id=f"prt_{number}a", snapshot=before, **where))
    await sessions.put(StepFinishPart(id=f"prt_{number}b", snapshot=after, reason="stop", cost=0, tokens=Tokens(), **where))
    if files:
        await sessions.put(PatchPart(id=f"prt_{number}c", hash=before, files=[f"/d/{file}" for file in files], **where))


async def update(sessions: Sessions, trees: Trees, prompt: str = "msg_p") -> list[str]:
    """By a server that has just started; the types of the events that came of it."""
    sessions.storage.heard.told.clear()
    await Summaries(sessions.store).update(PLACE, trees, "ses_1", prompt)
    return [event["type"] for event in sessions.said]


async def diff(sessions: Sessions) -> bytes:
    return await sessions.service.diff_json("ses_1")


async def test_a_step_that_changed_nothing_computes_and_writes_nothing(sessions: Sessions) -> None:
    trees = Trees(["a"])
    await sessions.put(user("msg_p"))
    await step(sessions, "msg_p", 1, "T0", "T0")
    writes = sessions.database.writes
    assert await update(sessions, trees) == []
    assert trees.asked == [] and sessions.database.writes == writes


async def test_a_changed_tree_is_told_once(sessions: Sessions) -> None:
    trees = Trees(["a"])
    await sessions.put(user("msg_p"))
    await step(sessions, "msg_p", 1, "T0", "T1", "a")
    assert await update(sessions, trees) == ["session.updated", "session.diff", "message.updated"]
    writes = sessions.database.writes
    assert await update(sessions, trees) == []
    await step(sessions, "msg_p", 2, "T1", "T1")
    assert await update(sessions, trees) == []
    assert trees.asked == [("T0", "T1")] and sessions.database.writes == writes + 3, "the three of the step itself"
    assert (await sessions.store.session("ses_1")).summary is not None


async def test_a_later_prompt_that_changes_nothing_leaves_all_as_it_is(sessions: Sessions) -> None:
    trees = Trees(["a"])
    await sessions.put(user("msg_p"))
    await step(sessions, "msg_p", 1, "T0", "T1", "a")
    await update(sessions, trees)
    await sessions.put(user("msg_q"))
    await step(sessions, "msg_q", 2, "T1", "T1")
    assert await update(sessions, trees, "msg_q") == []
    assert len(trees.asked) == 1


async def test_the_same_number_of_lines_in_another_tree_sends_no_counts(sessions: Sessions) -> None:
    trees = Trees(["a"])
    await sessions.put(user("msg_p"))
    await step(sessions, "msg_p", 1, "T0", "T1", "a")
    await update(sessions, trees)
    await step(sessions, "msg_p", 2, "T1", "T2", "a")
    assert await update(sessions, trees) == ["session.diff", "message.updated"]


async def test_what_others_changed_meanwhile_is_looked_at_once_and_not_told(sessions: Sessions) -> None:
    """The trees differ, the diff of the files that the session touched does not."""

    class Others(Trees):
        async def diff_full(self, a: str, b: str) -> list[FileDiff]:
            await super().diff_full(a, b)
            return [FileDiff(file=file, before="", after="x", additions=1, deletions=0) for file in ("a", b)]

    trees = Others([])
    await sessions.put(user("msg_p"))
    await step(sessions, "msg_p", 1, "T0", "T1", "a")
    await update(sessions, trees)
    await sessions.put(user("msg_q"))
    await step(sessions, "msg_q", 2, "T2", "T2")
    assert await update(sessions, trees, "msg_q") == []
    assert await update(sessions, trees, "msg_q") == []
    assert trees.asked == [("T0", "T1"), ("T0", "T2")]


async def test_a_prompt_whose_changes_were_undone_in_its_turn_loses_its_diff(sessions: Sessions) -> None:
    trees = Trees(["a"])
    await sessions.put(user("msg_p"))
    await step(sessions, "msg_p", 1, "T0", "T1", "a")
    await update(sessions, trees)
    await step(sessions, "msg_p", 2, "T1", "T0", "a")
    assert await update(sessions, trees) == ["session.updated", "session.diff", "message.updated"]
    assert await diff(sessions) == b"[]"
    prompt = (await sessions.store.message("ses_1", "msg_p")).info
    assert prompt.role == "user" and prompt.summary is not None and prompt.summary.diffs == []


async def test_a_diff_that_a_revert_stored_is_computed_anew_by_the_next_turn(sessions: Sessions) -> None:
    trees = Trees(["a"])
    await sessions.put(user("msg_p"))
    await step(sessions, "msg_p", 1, "T0", "T1", "a")
    await update(sessions, trees)
    computed = await diff(sessions)
    change = sessions.store.change("ses_1", DIRECTORY)
    change.put_diff([])
    await sessions.store.commit(change)
    assert await update(sessions, trees) == ["session.diff"]
    assert await diff(sessions) == computed
