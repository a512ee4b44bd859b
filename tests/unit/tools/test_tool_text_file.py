"""Files as tools read and write them: in one step, beneath their directory, one at a time, and known by when they were read."""

import asyncio
import os
import threading
from pathlib import Path

import pytest
from exchanging import exchanges, exchanging
from ordinary_user import ordinary_user

from app.tools import text_file
from app.tools.base import ToolError
from app.tools.text_file import FileTimes, Stamp, hold_all
from app.util import beneath
from app.util.project_files import HeldDirectory
from app.util.tasks import ProcessLocks


@pytest.mark.parametrize("kind", ["directory", "pipe", "device"])
def test_only_regular_files_are_read_and_written(tmp_path: Path, kind: str) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (read, written) = (Path("/dev/zero"), Path("/dev/null")) if kind == "device" else (tmp_path / kind,) * 2
    open_before = len(os.listdir("/dev/fd"))
    with pytest.raises(ToolError, match=r"directory|regular file"):
        text_file.read(read)
    with pytest.raises(ToolError, match=r"directory|regular file"):
        text_file.write(written, b"x")
    assert len(os.listdir("/dev/fd")) == open_before


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.truncate(tmp_path / "a", text_file.MAX_BYTES + 1)
    with pytest.raises(ToolError, match="too large"):
        text_file.read(tmp_path / "a")


def test_a_write_is_one_step_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with path.open() as reader:
        stamp = text_file.write(path, b"new text")
        assert reader.read() == "old"
    assert path.read_text() == "new text"
    assert stamp == text_file.stamp(path)
    for wrong in (path / "below", tmp_path / ("n" * 300)):
        with pytest.raises(ToolError, match="Could not write"):
            text_file.write(wrong, b"x")
    assert path.read_text() == "new text"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root chooses its groups")
def test_a_file_stays_its_groups() -> None:
    with ordinary_user(4711) as directory:
        path = directory / "a"
        path.write_text("old")
        os.chown(path, -1, 4711)
        text_file.write(path, b"new")
        assert (path.read_text(), path.stat().st_gid) == ("new", 4711)


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


# Beneath their directory.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with `src/deep/file`; beside it `outside` with the same and another text."""
    for top, text in (("project/src", "inside"), ("outside", "secret")):
        (tmp_path / top / "deep").mkdir(parents=True)
        (tmp_path / top / "deep" / "file").write_text(text)
    return tmp_path / "project"


@exchanges
@pytest.mark.parametrize(("is_held", "wanted", "why"), [(False, 30, "link"), (True, 1, "another directory")])
def test_nothing_outside_is_read_or_written_while_a_link_comes_and_goes(root: Path, is_held: bool, wanted: int, why: str) -> None:
    """There are as many attempts as it takes for some to go well and some to meet the link. A directory that is held is itself
    what the link takes the place of."""
    file, outside = root / "src" / "deep" / "file", root.parent / "outside"
    top = HeldDirectory(root / "src") if is_held else root
    given, refused = list[str | None](), 0
    with exchanging(root / "src", outside, pause=0):
        while len(given) < wanted or refused < 30:
            assert len(given) + refused < 100_000, f"{len(given)} attempts went well, {refused} met the link"
            try:
                found = text_file.read(file, top)
                new = file.with_name(f"new{refused}")
                text_file.write(new, b"made", root=top)
                text_file.write(file, b"inside", root=top)
                text_file.delete(new, top)
                given.append(found and found.text)
            except (ToolError, OSError) as error:
                assert why in str(error)
                refused += 1
    assert {*given} == {"inside"}
    assert [path.name for path in outside.rglob("*")] == ["deep", "file"]
    assert (outside / "deep" / "file").read_text() == "secret"


def test_a_link_on_the_way_or_at_its_end_is_told(root: Path) -> None:
    (root / "linked").symlink_to("src")
    with pytest.raises(OSError, match="link"):
        beneath.open_file(root / "linked" / "deep" / "file", root)
    (root / "end").symlink_to("src/deep/file")
    with pytest.raises(ToolError, match="symbolic links"):
        text_file.read(root / "end", root)
    named = root.parent / "named"
    named.symlink_to(root)
    found = text_file.read(named / "src" / "deep" / "file", named)
    assert found and found.text == "inside", "the root itself may be named by a link"


def test_nothing_stays_open(root: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for path in (root / "src" / "deep" / "file", root / "none" / "file", root / "src" / "deep" / "file" / "below"):
        text_file.read(path, root)
    with beneath.folder_of(root / "new" / "folder" / "file", root, create=True):
        pass
    assert (root / "new" / "folder").is_dir()
    assert len(os.listdir("/dev/fd")) == before


# When they were read.


def stamp(path: Path) -> Stamp:
    return Stamp.of(path.stat())


def test_a_change_to_an_older_time_is_noticed_by_any_name_of_the_file(root: Path) -> None:
    file, times = root / "src" / "deep" / "file", FileTimes()
    (root / "link").symlink_to(file)
    times.record("ses_1", root / "link", stamp(root / "link"))
    times.check("ses_1", file, stamp(file))
    os.utime(file, ns=(0, 1_000))
    with pytest.raises(ToolError, match="modified"):
        times.check("ses_1", file, stamp(file))


def test_memory_is_bounded_and_the_oldest_goes_first(tmp_path: Path) -> None:
    times = FileTimes(capacity=2)
    for name in "abac":
        (tmp_path / name).write_text("x")
        times.record("ses_1", tmp_path / name, stamp(tmp_path / name))
    times.check("ses_1", tmp_path / "a", stamp(tmp_path / "a"))
    times.check("ses_1", tmp_path / "c", stamp(tmp_path / "c"))
    with pytest.raises(ToolError, match="must read"):
        times.check("ses_1", tmp_path / "b", stamp(tmp_path / "b"))


# One at a time.


async def test_a_link_is_locked_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    locks = ProcessLocks()

    async def touch() -> None:
        async with hold_all(locks, [tmp_path / "link"]):
            pass

    async with asyncio.timeout(60):
        async with hold_all(locks, [tmp_path / "a"]):
            waiting = asyncio.create_task(touch())
            await asyncio.sleep(0)
            assert not waiting.done()
        await waiting


async def test_two_that_want_the_same_two_files_never_wait_for_each_other(tmp_path: Path) -> None:
    locks, one, two = ProcessLocks(), tmp_path / "1", tmp_path / "2"

    async def both(*paths: Path) -> None:
        async with hold_all(locks, paths):
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(*[both(one, two) for _ in range(20)], *[both(two, one) for _ in range(20)])
