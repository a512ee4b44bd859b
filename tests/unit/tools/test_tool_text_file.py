import asyncio
import os
import threading
from pathlib import Path

import pytest

from app.tools import text_file
from app.tools.base import ToolError


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: os.mkfifo(path)], ids=["directory", "pipe"])
def test_only_regular_files(tmp_path: Path, make: object) -> None:
    path = tmp_path / "a"
    assert callable(make)
    make(path)
    for work in (lambda: text_file.read(path), lambda: text_file.write(path, b"x")):
        with pytest.raises(ToolError, match=r"directory|regular file"):
            work()


def test_devices_are_not_replaced() -> None:
    with pytest.raises(ToolError, match="regular file"):
        text_file.write(Path("/dev/null"), b"x")
    with pytest.raises(ToolError, match="regular file"):
        text_file.read(Path("/dev/zero"))


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(text_file.MAX_BYTES + 1)
    with pytest.raises(ToolError, match="too large"):
        text_file.read(path)


def test_a_write_is_one_step_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with path.open() as reader:
        stamp = text_file.write(path, b"new text")
        assert reader.read() == "old"
    assert path.read_text() == "new text"
    assert stamp == text_file.stamp(path)
    assert os.listdir(tmp_path) == ["a"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(ToolError, match="Could not write"):
        text_file.write(tmp_path / "file" / "below", b"x")
    with pytest.raises(ToolError, match="Could not write"):
        text_file.write(tmp_path / ("n" * 300), b"x")
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


async def test_cancelling_waits_for_the_work(tmp_path: Path) -> None:
    started, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    done: list[str] = []

    def work() -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(10)
        done.append("written")

    task = asyncio.create_task(text_file.finish_in_thread(work))
    await started.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["written"]
