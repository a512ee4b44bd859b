import asyncio
import logging

import pytest

from app.schema.errors import NotFound
from app.session.summary import SessionTasks


class Work:
    """Waits for `gate`, then is done, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.gate = asyncio.Event()
        self.outcome = ""
        self._error = error

    async def __call__(self) -> None:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.outcome = "cancelled"
            raise
        if self._error:
            raise self._error
        self.outcome = "done"


async def started_works(tasks: SessionTasks, *sessions: str) -> list[Work]:
    works = [Work() for _ in sessions]
    for session, work in zip(sessions, works, strict=True):
        tasks.start(session, "diff", work())
    await asyncio.sleep(0)
    return works


async def test_the_tasks_of_a_deleted_session_are_cancelled_and_no_others() -> None:
    tasks = SessionTasks()
    gone, also_gone, other = await started_works(tasks, "ses_1", "ses_1", "ses_2")
    await tasks.cancel("ses_1")
    await tasks.cancel("ses_nope")
    other.gate.set()
    await tasks.finished()
    assert [work.outcome for work in (gone, also_gone, other)] == ["cancelled", "cancelled", "done"]


async def test_all_that_is_started_is_waited_for() -> None:
    tasks = SessionTasks()
    (first,) = await started_works(tasks, "ses_1")
    finished = asyncio.create_task(tasks.finished())
    await asyncio.sleep(0)
    (second,) = await started_works(tasks, "ses_2")
    first.gate.set()
    await asyncio.sleep(0)
    assert not finished.done()
    second.gate.set()
    await finished
    assert (first.outcome, second.outcome) == ("done", "done")


async def test_closing_cancels_also_what_has_not_begun() -> None:
    tasks = SessionTasks()
    (begun_work,) = await started_works(tasks, "ses_1")
    tasks.start("ses_1", "title", Work()())
    await tasks.close()
    await tasks.finished()
    assert begun_work.outcome == "cancelled"


@pytest.mark.parametrize(("error", "level"), [(NotFound("gone"), logging.DEBUG), (ValueError("a bug"), logging.ERROR)])
async def test_what_goes_wrong_is_logged(error: Exception, level: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "app")
    tasks, work = SessionTasks(), Work(error)
    tasks.start("ses_1", "title", work())
    work.gate.set()
    await tasks.finished()
    assert [(record.levelno, "title of ses_1" in record.getMessage()) for record in caplog.records] == [(level, True)]
