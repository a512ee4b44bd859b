"""Snapshots of directories without git: what they cover, and where there are none."""

import os
import subprocess
import time
from itertools import count
from pathlib import Path

import pytest
from git_files import files, git
from snapshot_project import Project, counted_git

from app.project.snapshot import capture, extent
from app.project.snapshot.capture import MAX_FILE_BYTES
from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.snapshots import Snapshots

PROGRAM = "#!/bin/sh\ntouch {mark}\ncat\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, has_git=False)


async def covered(project: Project, snapshots: Snapshots) -> set[str]:
    """The files whose changes are seen: each gets another line, or goes."""
    tree = await snapshots.track()
    for path in project.root.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            path.write_bytes(path.read_bytes() + b"more\n")
    return project.relative(await snapshots.patch(tree))


async def test_a_repository_inside_at_which_git_ends_is_left_out_as_any_other(project: Project, snapshots: Snapshots) -> None:
    project.write("a.txt", "one")
    project.write("sub/b.txt", "one")
    for command in (("init", "--quiet"), ("add", "."), ("commit", "-qm", "first")):
        git(project.root / "sub", *command)
    project.write("sub/.git/commondir", f"{project.data}/gone/deep\n")
    subprocess.run(["mkdir", "-p", "/".join("d" * 1200)], cwd=project.root, check=True)
    before = await snapshots.track()
    subprocess.run(["rm", "-r", project.root / "d"], check=True)
    assert project.held(before) == {"a.txt"}
    project.write("a.txt", "two")
    after = await snapshots.track()
    assert project.relative(await snapshots.patch(before, after)) == {"a.txt"}
    project.replace("sub/.git")
    assert project.held(await snapshots.track()) == {"a.txt", "sub/b.txt"}


async def test_edits_are_seen_and_taken_back(project: Project, snapshots: Snapshots) -> None:
    for name in ("a", "deep/er/b", "with\nnewline", "日本"):
        project.write(name, f"{name}\r\n")
    project.replace("link", link="deep")
    before, tree = files(project.root), await snapshots.track()
    project.write("a", "other")
    project.write("new", "new")
    project.replace("with\nnewline")
    project.replace("link")
    changed = await snapshots.patch(tree)
    assert project.relative(changed) == {"a", "new", "with\nnewline", "link"}
    after, report = files(project.root), await snapshots.restore(dict.fromkeys(changed, tree))
    assert files(project.root) == before and report.failures == []
    await snapshots.restore(dict.fromkeys(changed, report.before))
    assert files(project.root) == after
    assert [path.name for path in project.root.iterdir() if path.name.startswith(".git")] == []


async def test_ignore_rules_hold(project: Project, snapshots: Snapshots) -> None:
    for name, rule in ((".gitignore", "*.log"), ("sub/.gitignore", "/made"), (".ignore", "/out/"), ("sub/.ignore", "*.tmp")):
        project.write(name, f"{rule}\n")
    kept = {"a", "sub/a", "sub/out/a", "a.tmp"}
    made = [f"sub/{made}/a" for made in extent.MADE_BY_TOOLS]
    for name in (*kept, "a.log", "out/a", "out/deep/a", "sub/a.tmp", "sub/deep/b.tmp", "sub/made", *made):
        project.write(name, "x")
    assert await covered(project, snapshots) >= kept
    assert {name for name in await covered(project, project.snapshots()) if "ignore" not in name} == kept


async def test_rules_that_come_later_hold_for_new_files(project: Project, snapshots: Snapshots) -> None:
    project.write("old.tmp", "x")
    tree = await snapshots.track()
    project.write(".ignore", "*.tmp\n")
    project.write("new.tmp", "x")
    project.write("old.tmp", "y")
    assert project.relative(await snapshots.patch(tree)) == {".ignore", "old.tmp"}
    report = await snapshots.restore({project.root / "new.tmp": tree})
    assert [failure.reason for failure in report.failures] == ["it is ignored, so no snapshot holds it"]


async def test_repositories_inside_are_left_alone(project: Project, snapshots: Snapshots) -> None:
    for name in ("one", "deep/two", "fresh"):
        inner = project.write(f"{name}/f", "x").parent
        git(inner, "init", "--quiet")
        if name != "fresh":
            git(inner, "add", "-A")
            git(inner, "commit", "-qm", "first")
    project.write("f", "x")
    project.write("deep/f", "x")
    submodule = project.root / "one"
    git(submodule, "submodule", "add", "--quiet", str(project.root / "deep/two"), "sub")
    tree = await snapshots.track()
    assert await covered(project, snapshots) == {"f", "deep/f"}
    for name in ("one/f", "deep/two/f", "one/sub/f", "fresh/f"):
        report = await snapshots.restore({project.root / name: tree})
        assert "another git repository" in report.failures[0].reason, name


async def test_an_unchanged_directory_needs_no_git(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "SETTLED_MS", 100)
    os.utime(project.write("sub/a", "x"), (1, 1))
    snapshots = project.snapshots()
    tree = await snapshots.track()
    with counted_git(tmp_path) as runs:
        deadline, before = time.monotonic() + 30, -1
        while runs() > before:
            assert time.monotonic() < deadline, "git was run each time"
            before = runs()
            assert await snapshots.track() == tree


async def test_nothing_of_the_directory_runs(project: Project, snapshots: Snapshots, tmp_path: Path) -> None:
    """Its own `.git`, which nobody has believed, repositories in it, and what names programs."""
    marks = tmp_path / "marks"
    marks.mkdir()
    project.write("f", "x")
    for place in (project.root, project.root / "inner"):
        place.mkdir(exist_ok=True)
        git(place, "init", "--quiet")
        program = tmp_path / f"run-{place.name}"
        program.write_text(PROGRAM.format(mark=marks / place.name))
        program.chmod(0o755)
        for name in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "core.sshCommand"):
            git(place, "config", name, str(program))
        for hook in ("post-index-change", "post-checkout", "reference-transaction"):
            (place / ".git" / "hooks").mkdir(exist_ok=True)
            (place / ".git" / "hooks" / hook).symlink_to(program)
        (place / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (project.root / ".gitmodules").write_text('[submodule "inner"]\n\tpath = inner\n\turl = ext::sh -c touch%20marks/x\n')
    tree = await snapshots.track()
    project.write("f", "changed")
    changed = await snapshots.patch(tree)
    assert project.relative(changed) >= {"f"}
    await snapshots.diff_full(tree, await snapshots.track())
    await snapshots.restore(dict.fromkeys(changed, tree))
    await snapshots.no_undo()
    assert (project.root / "f").read_text() == "x" and list(marks.iterdir()) == []


@pytest.mark.parametrize("name", [".gitignore", "deep/.gitignore", "deep/.ignore", "inner/.git/HEAD", "deep/.gitattributes"])
async def test_files_that_never_end_are_told_at_once(project: Project, snapshots: Snapshots, name: str) -> None:
    project.write("a")
    (project.root / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(project.root / name)
    began = time.monotonic()
    told = await snapshots.no_undo()
    assert told is not None and name in told and "ordinary" in told
    assert time.monotonic() - began < 10


async def test_odd_files_are_in_nobodys_way(project: Project, snapshots: Snapshots) -> None:
    project.write("a", "x")
    os.mkfifo(project.root / "pipe")
    for name, target in (("loop", "loop"), ("up", ".."), ("gone", "/nowhere")):
        project.replace(name, link=target)
    os.truncate(project.write("huge"), 1024**4)
    project.write(os.fsdecode(b"\xff\xfe"), "x")
    closed = project.write("closed/inner").parent
    closed.chmod(0)
    try:
        assert await snapshots.no_undo() is None
        tree = await snapshots.track()
        project.write("a", "y")
        assert project.relative(await snapshots.patch(tree)) == {"a"}
    finally:
        closed.chmod(0o755)


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extent, "MAX_FILES", 50)
    monkeypatch.setattr(extent, "MAX_BYTES", 3 * MAX_FILE_BYTES)


@pytest.mark.usefixtures("small_bounds")
async def test_many_files_are_too_many_unless_rules_leave_them_out(project: Project, snapshots: Snapshots) -> None:
    inner = project.root / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    for folder in ("inner", "deep/node_modules"):
        for n in range(60):
            project.write(f"{folder}/{n}")
    assert await snapshots.no_undo() is None, "other repositories and what tools make do not count"
    for n in range(60):
        project.write(f"many/{n}")
    assert "more than" in (await snapshots.no_undo() or "")
    project.write(".ignore", "many\n")
    assert await snapshots.no_undo() is None and await covered(project, snapshots) == {".ignore"}
    project.write(".ignore", "")
    assert "more than" in (await snapshots.no_undo() or "")
    with pytest.raises(SnapshotFailed, match="50 allowed"):
        await snapshots.track()


@pytest.mark.usefixtures("small_bounds")
async def test_much_content_is_too_much_but_for_files_that_are_never_stored(project: Project, snapshots: Snapshots) -> None:
    os.truncate(project.write("huge"), 100 * MAX_FILE_BYTES)
    assert await snapshots.no_undo() is None
    for n in range(4):
        os.truncate(project.write(f"large{n}"), MAX_FILE_BYTES)
    assert "larger" in (await snapshots.no_undo() or "")


def test_counting_stops_at_the_bound_and_in_time() -> None:
    taken, seconds = count(), count(step=2)
    assert extent.excess(next(taken) * 0 for _ in count())
    assert next(taken) <= extent.MAX_FILES + 1
    assert extent.excess((0 for _ in range(100)), lambda: next(seconds)) == extent.SLOW


def test_the_home_directory_and_what_holds_it_are_never_covered_and_without_git_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "anna"
    monkeypatch.setenv("HOME", str(home))
    for directory in (home, home.parent, tmp_path):
        assert "home" in (extent.refusal(directory) or "")
    assert extent.refusal(Path("/")) and extent.refusal(home / "project") is extent.refusal(tmp_path / "elsewhere") is None
    monkeypatch.setenv("PATH", "")
    assert extent.refusal(tmp_path / "elsewhere") == "git is not installed"
