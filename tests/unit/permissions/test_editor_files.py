import asyncio
from pathlib import Path

import pytest

from app.permissions import editor_files
from app.permissions.editor_files import EditorFiles, EditorsReleased

FILE = Path("/project/a.txt")


@pytest.fixture
def files() -> EditorFiles:
    return EditorFiles()


async def waiting(files: EditorFiles, text: str = "") -> "asyncio.Task[str]":
    """A client that answers one file with that."""

    async def answer() -> str:
        file = await files.next("ses_1")
        files.answer("ses_1", file.id, text)
        return file.path

    task = asyncio.create_task(answer())
    await asyncio.sleep(0)
    return task


async def test_the_client_that_came_last_is_asked(files: EditorFiles) -> None:
    assert await files.text("ses_1", FILE) is None
    first, last = await waiting(files), await waiting(files, "the last")
    assert await files.text("ses_1", FILE) == "the last" and await last == str(FILE)
    assert not first.done() and not files.has_editor("ses_2")
    first.cancel()


async def test_what_is_read_between_two_waits_is_asked_at_the_second(files: EditorFiles) -> None:
    first = await waiting(files)
    await files.text("ses_1", FILE)
    await first
    asked = asyncio.create_task(files.text("ses_1", FILE))
    await asyncio.sleep(0)
    second = await waiting(files, "again")
    assert await asked == "again" and await second == str(FILE)


async def test_reads_at_once_wait_for_whoever_comes(files: EditorFiles) -> None:
    first = await waiting(files, "first")
    reads = [asyncio.create_task(files.text("ses_1", FILE)) for _ in range(3)]
    await asyncio.sleep(0)
    second, third = await waiting(files, "second"), await waiting(files, "third")
    assert await asyncio.gather(*reads) == ["first", "second", "third"]
    await asyncio.gather(first, second, third)


async def test_a_client_that_waits_on_is_not_forgotten(files: EditorFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor_files, "LINGER_SECONDS", 0.01)
    stays, goes = await waiting(files, "here"), await waiting(files)
    goes.cancel()
    await asyncio.sleep(0.05)
    assert await files.text("ses_1", FILE) == "here" and await stays == str(FILE)


async def test_a_client_that_is_gone_is_soon_forgotten(files: EditorFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor_files, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(editor_files, "ANSWER_SECONDS", 0.05)
    gone = await waiting(files)
    gone.cancel()
    assert await files.text("ses_1", FILE) is None, "it is not there, or does not answer"
    assert files.is_empty and await files.text("ses_1", FILE) is None


async def test_only_what_is_asked_is_answered_and_once(files: EditorFiles) -> None:
    task = asyncio.create_task(files.next("ses_1"))
    await asyncio.sleep(0)
    asked = asyncio.create_task(files.text("ses_1", FILE))
    file = await task
    assert not files.answer("ses_2", file.id, "of another session") and not files.answer("ses_1", "none", "")
    assert files.answer("ses_1", file.id, None) and not files.answer("ses_1", file.id, "late")
    assert await asked is None


async def test_a_server_that_stops_ends_the_wait(files: EditorFiles) -> None:
    task = await waiting(files)
    files.release()
    with pytest.raises(EditorsReleased):
        await task
    with pytest.raises(EditorsReleased):
        await files.next("ses_1")
