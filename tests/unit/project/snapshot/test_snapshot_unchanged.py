"""A tree in which nothing has changed is told without git, and one in which anything has is never taken for it."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from git_files import git
from snapshot_project import Project, counted_git

from app.project.snapshot import capture
from app.project.snapshot.capture import SETTLED_MS, StatCache
from app.project.snapshot.snapshots import Snapshots
from app.util import clock

TWO_MIB = 2 * 1024 * 1024


@pytest.fixture
def an_hour_later() -> None:
    """What the test writes lies back far enough to be relied on."""
    clock.set_source(lambda: time.time() + 3600)


@pytest.fixture
def grown(project: Project, an_hour_later: None) -> Project:
    """A checkout with something of everything."""
    project.write(".gitignore", "*.log\n/build/\ndist/\n")
    project.write("a.txt", "0000")
    project.write("deep/er/b.txt", "one")
    project.write("deep/.gitignore", "local\n")
    for name in ("debug.log", "by-user", "build/out/c.o", "dist/kept.js"):
        project.write(name, "x")
    project.git("add", "-f", "dist/kept.js")
    project.write("large.bin", b"0" * (TWO_MIB + 1))
    project.replace("link", link="a.txt")
    (project.root / "empty" / "inner").mkdir(parents=True)
    project.write("../dotfiles-ignore", "by-user\n")
    (project.root.parent / "users-ignore").symlink_to(project.root.parent / "dotfiles-ignore")
    project.git("config", "core.excludesFile", str(project.root.parent / "users-ignore"))
    return project


async def looked_at(snapshots: Snapshots) -> str:
    """Its tree, when it is known well enough to be told without git."""
    await snapshots.track()
    return await snapshots.track()


async def exact(project: Project, directory: Path | None = None) -> str:
    """The tree as a server says that has just started."""
    return await project.snapshots(directory).track()


def rewrite(path: Path, content: bytes) -> None:
    """The same size and modification time as before."""
    before = path.stat()
    wait_for_clock(path)
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def wait_for_clock(path: Path) -> None:
    """Until a change of the path gets another time than it has."""
    scratch = path.parent.parent / "scratch"
    changed, scratch_time = path.lstat().st_ctime_ns, 0
    while scratch_time <= changed:
        scratch.write_text("x")
        scratch_time = scratch.stat().st_ctime_ns


def replace_by_twin(project: Project) -> None:
    twin = project.root.parent / "twin"
    twin.write_text("1111")
    before = (project.root / "a.txt").stat()
    os.utime(twin, ns=(before.st_atime_ns, before.st_mtime_ns))
    twin.rename(project.root / "a.txt")


def make_repository(project: Project, folder: str) -> None:
    (project.root / folder).mkdir(exist_ok=True)
    git(project.root / folder, "init", "--quiet")


EDITS: dict[str, Callable[[Project], object]] = {
    "a new file": lambda p: p.write("new.txt", "x"),
    "a new file in an empty directory": lambda p: p.write("empty/inner/new.txt", "x"),
    "a new directory": lambda p: p.write("new/er/new.txt", "x"),
    "a file that is gone": lambda p: (p.root / "deep/er/b.txt").unlink(),
    "the same size and time": lambda p: rewrite(p.root / "a.txt", b"1111"),
    "another file in its place": replace_by_twin,
    "an executable bit": lambda p: (p.root / "a.txt").chmod(0o755),
    "a link that leads elsewhere": lambda p: p.replace("link", link="b.txt"),
    "a file that became a directory": lambda p: p.replace("a.txt", "x", below="/inside"),
    "a large file": lambda p: rewrite(p.root / "large.bin", b"1" * (TWO_MIB + 1)),
    "an ignored file that the project tracks": lambda p: p.write("dist/kept.js", "y"),
    "a rule less": lambda p: p.write(".gitignore", "*.log\n/build/\n"),
    "a rule more": lambda p: rewrite(p.root / ".gitignore", b"*.lag\n/build/\ndist/\n"),
    "a rule less below": lambda p: (p.write("deep/local", "x"), p.write("deep/.gitignore", "lacol\n")),
    "new rules": lambda p: (p.write("empty/.gitignore", "*.txt\n"), p.write("empty/new.txt", "x")),
    "a rule of the checkout": lambda p: (p.write("deep/er/new", "x"), p.write(".git/info/exclude", "debug.log\n")),
    "a rule of the user, behind a link": lambda p: (p.root.parent / "dotfiles-ignore").write_text("a.txt\n"),
    "a repository inside": lambda p: (make_repository(p, "inside"), p.write("inside/new.txt", "x")),
    "a repository around files": lambda p: (make_repository(p, "deep"), p.write("deep/new.txt", "x")),
    "a pipe": lambda p: os.mkfifo(p.root / "pipe"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
async def test_every_change_is_seen(edit: Callable[[Project], object], grown: Project, tmp_path: Path) -> None:
    snapshots = grown.snapshots()
    before = await looked_at(snapshots)
    with counted_git(tmp_path) as count:
        assert await snapshots.track() == before and count() == 0
        edit(grown)
        after = await snapshots.track()
        assert count() > 0
    assert after == await exact(grown)


async def test_no_rule_and_no_file_is_forgotten_when_it_comes_back(grown: Project) -> None:
    snapshots = grown.snapshots()
    before = await looked_at(snapshots)
    (grown.root / "a.txt").unlink()
    without = await looked_at(snapshots)
    grown.write("a.txt", "0000")
    assert without != before
    assert await looked_at(snapshots) == before


async def test_what_is_ignored_costs_nothing(grown: Project, tmp_path: Path) -> None:
    grown.write("dist/other.js", "x")
    snapshots = grown.snapshots()
    before = await looked_at(snapshots)
    with counted_git(tmp_path) as count:
        for ignored in ("debug.log", "build/out/new.o", "dist/other.js", ".git/config"):
            with (grown.root / ignored).open("a") as file:
                file.write("# more\n")
            assert await snapshots.track() == before and count() == 0, ignored


@pytest.mark.parametrize("how", ["nested", "submodule"])
async def test_with_a_repository_inside_git_is_asked_each_time(how: str, grown: Project, tmp_path: Path) -> None:
    make_repository(grown, "inside")
    grown.write("inside/b.txt", "x")
    if how == "submodule":
        for command in (("add", "."), ("commit", "-qm", "first")):
            git(grown.root / "inside", *command)
        grown.git("submodule", "add", "--quiet", "./inside", "inside")
    snapshots = grown.snapshots()
    before = await looked_at(snapshots)
    with counted_git(tmp_path) as count:
        assert await snapshots.track() == before and count() > 0
    (grown.root / "inside" / ".git").rename(grown.root / "was-git")
    assert await snapshots.track() == await exact(grown)


async def test_a_subdirectory_goes_by_the_rules_above_it(grown: Project, tmp_path: Path) -> None:
    grown.write("deep/c.log", "x")
    snapshots = grown.snapshots(grown.root / "deep")
    before = await looked_at(snapshots)
    grown.write("a.txt", "another")
    with counted_git(tmp_path) as count:
        assert await snapshots.track() == before and count() == 0
    grown.write(".gitignore", "/build/\n")
    after = await snapshots.track()
    assert before != after == await exact(grown, grown.root / "deep")


async def test_what_another_server_wrote_to_the_index_is_read(grown: Project) -> None:
    one, two = grown.snapshots(), grown.snapshots()
    before = await looked_at(one)
    grown.write("a.txt", "1111")
    assert await two.track() != before
    grown.write("a.txt", "0000")
    assert await two.track() == before == await one.track()


async def test_a_repository_that_is_gone_is_made_anew(grown: Project) -> None:
    snapshots = grown.snapshots()
    before = await looked_at(snapshots)
    grown.git_dir.rename(grown.data / "gone")
    assert await snapshots.track() == before and await snapshots.has(before)


async def test_what_was_changed_just_now_is_looked_at_by_git(
    project: Project, snapshots: Snapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the test itself takes."""
    monkeypatch.setattr(capture, "SETTLED_MS", 60_000)
    project.write("a.txt", "x")
    await looked_at(snapshots)
    with counted_git(tmp_path) as count:
        await snapshots.track()
        assert count() > 0


def test_paths_are_relied_on_when_their_last_change_lies_back(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    changed_ms = max(file.stat().st_ctime_ns, tmp_path.stat().st_ctime_ns) // 1_000_000
    assert StatCache.of([str(file), str(tmp_path)], [], changed_ms + SETTLED_MS - 50) is None
    assert StatCache.of([str(file), str(tmp_path)], [], changed_ms + SETTLED_MS + 50) is not None
    os.utime(file, (file.stat().st_atime, file.stat().st_mtime + 3600))
    assert StatCache.of([str(file)], [], changed_ms + 60_000) is None


async def test_random_edits(grown: Project) -> None:
    """One directory, edited again and again, is told as one that was never seen before."""
    chance = random.Random(7)
    snapshots = grown.snapshots()
    names = [
        "a.txt",
        "deep/er/b.txt",
        "deep/local",
        "new/x.log",
        "new/y.txt",
        "empty/inner/z.txt",
        "build/c.o",
        "deep/.gitignore",
    ]
    for _ in range(25):
        path = grown.root / chance.choice(names)
        wait_for_clock(path if path.exists() else path.parent if path.parent.exists() else grown.root)
        if chance.random() < 0.4:
            path.unlink(missing_ok=True)
        else:
            grown.write(str(path.relative_to(grown.root)), chance.choice(["*.txt\n", "local\n", "b.txt\n"]))
        assert await snapshots.track() == await exact(grown)
        assert await looked_at(snapshots) == await exact(grown)
