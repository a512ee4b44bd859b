"""Files are opened beneath their directory while links are put into the way as fast as they can be."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from exchanging import exchanging

from app.tools import text_file
from app.tools.base import ToolError
from app.tools.text_file import folder_of, open_file
from app.util.project_files import HeldDirectory

WANTED, MOST = 30, 100_000
AT_FDCWD, RENAME_EXCHANGE = -100, 2
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="two names are exchanged at once on Linux only")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with `src/deep/file`; beside it `outside` with the same and another text."""
    for top, text in (("project/src", "inside"), ("outside", "secret")):
        (tmp_path / top / "deep").mkdir(parents=True)
        (tmp_path / top / "deep" / "file").write_text(text)
    return tmp_path / "project"


@contextmanager
def swapping(root: Path) -> Iterator[None]:
    """`src` is now the directory, now a link that leads outside."""
    over = threading.Event()
    (root / "link").symlink_to("../outside")
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    names = (AT_FDCWD, bytes(root / "src"), AT_FDCWD, bytes(root / "link"), RENAME_EXCHANGE)

    def swap() -> None:
        while not over.is_set():
            assert exchange(*names) == 0
        if (root / "src").is_symlink():
            assert exchange(*names) == 0

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        over.set()
        swapper.join()


def attempts(attempt: Callable[[int], str | None]) -> tuple[list[str | None], int]:
    """What the attempts gave, and how many met the link; there are as many as it takes for some of both."""
    given: list[str | None] = []
    refused = 0
    while len(given) < WANTED or refused < WANTED:
        assert len(given) + refused < MOST, f"{len(given)} attempts went well, {refused} met the link"
        try:
            given.append(attempt(len(given)))
        except (ToolError, OSError) as error:
            assert "link" in str(error)
            refused += 1
    return given, refused


@linux_only
def test_what_is_read_is_never_the_other_file(root: Path) -> None:
    def read(_: int) -> str | None:
        found = text_file.read(root / "src" / "deep" / "file", root)
        return found.text if found else None

    with swapping(root):
        given, _ = attempts(read)
    assert set(given) == {"inside"}


@linux_only
def test_what_is_written_is_never_outside(root: Path) -> None:
    file = root / "src" / "deep" / "file"

    def make_and_delete(number: int) -> str:
        text_file.write(file.with_name(f"new{number}"), b"made", root=root)
        text_file.write(file, b"made", root=root)
        text_file.delete(file, root)
        return "made"

    with swapping(root):
        attempts(make_and_delete)
    outside = root.parent / "outside"
    assert [path.name for path in outside.rglob("*")] == ["deep", "file"]
    assert (outside / "deep" / "file").read_text() == "secret"


@linux_only
def test_a_held_root_is_the_same_whatever_its_name_leads_to(root: Path) -> None:
    held, file = HeldDirectory(root / "src"), root / "src" / "deep" / "file"

    def change(number: int) -> str | None:
        found = text_file.read(file, held)
        text_file.write(file.with_name(f"new{number}"), b"made", root=held)
        text_file.delete(file.with_name(f"new{number}"), held)
        return found.text if found else None

    given, refused = set[str | None](), 0
    with exchanging(root / "src", root.parent / "outside", pause=0):
        while len(given) < 1 or refused < WANTED:
            try:
                given.add(change(refused))
            except ToolError as error:
                assert "another directory" in str(error)
                refused += 1
    assert given == {"inside"}
    assert sorted(path.name for path in (root.parent / "outside").rglob("*")) == ["deep", "file"]


def test_a_link_on_the_way_or_at_its_end_is_told(root: Path) -> None:
    (root / "linked").symlink_to("src")
    with pytest.raises(OSError, match="link"):
        open_file(root / "linked" / "deep" / "file", root)
    (root / "end").symlink_to("src/deep/file")
    with pytest.raises(ToolError, match="symbolic links"):
        text_file.read(root / "end", root)


def test_the_root_itself_may_be_named_by_a_link(root: Path) -> None:
    named = root.parent / "named"
    named.symlink_to(root)
    found = text_file.read(named / "src" / "deep" / "file", named)
    assert found and found.text == "inside"


def test_nothing_stays_open(root: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for path in (root / "src" / "deep" / "file", root / "none" / "file", root / "src" / "deep" / "file" / "below"):
        text_file.read(path, root)
    with folder_of(root / "new" / "folder" / "file", root, create=True):
        pass
    assert (root / "new" / "folder").is_dir()
    assert len(os.listdir("/dev/fd")) == before
