"""What a snapshot holds, and that taking one changes nothing of the project."""

import asyncio
import hashlib
import os
import shutil
from pathlib import Path

import pytest
from git_files import files, git, server_git
from obstacles import OBSTACLES, put
from snapshot_project import Project

from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.snapshots import Snapshots, snapshot_dir

TWO_MIB = 2 * 1024 * 1024


async def test_the_same_files_give_the_same_hash_and_other_files_another(project: Project, snapshots: Snapshots) -> None:
    empty = await snapshots.track()
    assert await snapshots.patch(empty) == []
    trees = set()
    for i in range(20):  # of the same size in the same instant
        project.write("a.txt", f"{i:04}")
        trees.add(tree := await snapshots.track())
    assert len(trees | {empty}) == 21
    project.replace("a.txt")
    assert await snapshots.track() == empty
    project.write("a.txt", "0019")
    assert await snapshots.track() == await snapshots.track() == await project.snapshots().track() == tree


async def test_the_projects_repository_is_left_alone(project: Project, snapshots: Snapshots) -> None:
    def stamps() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (project.root / ".git").rglob("*")}

    project.write("a.txt", "one")
    project.commit()
    project.write("a.txt", "two")
    before = stamps()
    await snapshots.restore({project.root / "a.txt": await snapshots.track()})
    assert stamps() == before


async def test_folders_of_any_depth(project: Project, snapshots: Snapshots) -> None:
    folder, name = str(project.root), "/".join([*["d"] * 600, "a.txt"])
    for _ in range(600):
        os.mkdir(folder := f"{folder}/d")
    Path(folder, "a.txt").write_text("a")
    assert project.held(await snapshots.track()) == {name}


async def test_names_of_all_kinds_but_those_that_are_not_utf8(project: Project, snapshots: Snapshots) -> None:
    names = {
        "naïve/日本.txt",
        "with space",
        "tab\tand\nnewline",
        '"quoted"',
        "back\\slash",
        ":(glob)*",
        "-n",
        "[a]*?",
        "#x",
        "!y",
    }
    for name in (*names, os.fsdecode(b"caf\xe9")):
        project.write(name, "x")
    tree = await snapshots.track()
    assert project.held(tree) == names
    for name in names:
        project.write(name, "y")
    assert project.relative(await snapshots.patch(tree)) == names
    report = await snapshots.restore({project.root / name: tree for name in names})
    assert report.failures == [] and {(project.root / name).read_text() for name in names} == {"x"}


async def test_ignored_files_are_left_out_unless_the_project_tracks_them(project: Project, snapshots: Snapshots) -> None:
    project.write(".gitignore", "*.log\ndist/\n")
    project.write(".git/info/exclude", "by-exclude\n")
    project.write("deep/.gitignore", "local\n")
    ignore_file = project.write("../users-ignore", "by-user\n")
    project.git("config", "core.excludesFile", str(ignore_file))
    for name in ("a.log", "by-exclude", "by-user", "deep/local", "deep/a.txt", "dist/kept.js", "dist/other.js"):
        project.write(name, "x")
    project.git("add", "-f", "dist/kept.js")
    held = {".gitignore", "deep/.gitignore", "deep/a.txt", "dist/kept.js"}
    assert project.held(await snapshots.track()) == held
    project.write(".git/info/exclude", "by-exclude\nlater\n")
    project.write("later", "x")
    assert project.held(await snapshots.track()) == held


async def test_the_data_directory_is_left_out_even_inside_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path)
    project.data = project.root / "some [data] dir"
    project.write("some [data] dir/opensession.db", "x")
    project.write("some d dir/a.txt", "x")
    assert project.held(await project.snapshots().track()) == {"some d dir/a.txt"}
    monkeypatch.chdir(tmp_path)
    project.data = Path("data")
    shutil.rmtree(project.root / "some [data] dir")
    assert project.held(await project.snapshots().track()) == {"some d dir/a.txt"}, "also where it is named relatively"


async def test_large_and_special_files_are_seen_to_change_but_not_stored(project: Project, snapshots: Snapshots) -> None:
    project.write("small.bin", b"\0" * TWO_MIB)
    project.write("a", "x")
    large = project.write("large", os.urandom(TWO_MIB + 1))
    tree = await snapshots.track()
    assert await snapshots.track() == await project.snapshots().track() == tree
    with large.open("ab") as file:
        file.write(b"more")
    assert project.relative(await snapshots.patch(tree)) == {"large"}
    project.replace("large", "x", below="/inner.txt")
    project.replace("a")
    for name in ("a", "pipe"):
        os.mkfifo(project.root / name)
    assert project.relative(await snapshots.patch(tree)) == {"large", "large/inner.txt", "a"}
    assert sum(path.stat().st_size for path in project.data.rglob("*") if path.is_file()) < 100_000


async def test_repositories_inside_are_not_entered(project: Project, snapshots: Snapshots) -> None:
    for name in ("a.txt", "replaced"):
        project.write(name)
    other = Project(project.root.parent / "other")
    other.write("b.txt", "x")
    other.commit()
    project.git("submodule", "add", "--quiet", str(other.root), "sub")
    (project.root / "empty").mkdir()
    git(project.root / "empty", "init", "--quiet")
    tree = await snapshots.track()
    assert project.held(tree) == {"a.txt", "replaced", ".gitmodules"}
    project.write("sub/b.txt", "changed")
    assert await snapshots.track() == tree
    report = await snapshots.restore({project.root / "sub" / "b.txt": tree})
    assert "another git repository" in report.failures[0].reason
    project.replace("replaced")
    git(project.root, "init", "--quiet", "replaced")
    git(project.root / "replaced", "commit", "--allow-empty", "-qm", "first")
    assert project.relative(await snapshots.patch(tree)) == {"replaced"}
    assert project.held(await snapshots.track()) == {"a.txt", ".gitmodules"}


@pytest.mark.parametrize("kind", ["submodule", "worktree"])
async def test_a_submodule_or_a_linked_worktree_has_snapshots_of_its_own(
    project: Project, snapshots: Snapshots, tmp_path: Path, kind: str
) -> None:
    project.write("a.txt", "one")
    project.commit()
    outer = Project(tmp_path / "outer")
    checkout = outer.root / "sub" if kind == "submodule" else project.root.parent / "linked"
    if kind == "submodule":
        outer.git("submodule", "add", "--quiet", str(project.root), "sub")
    else:
        project.git("worktree", "add", "--quiet", str(checkout))
    theirs = Snapshots(tmp_path / "snapshots", server_git(checkout), checkout)
    tree = await theirs.track()
    assert tree == await snapshots.track()
    (checkout / "a.txt").write_text("two")
    assert await theirs.patch(tree) == [checkout / "a.txt"] and await snapshots.patch(tree) == []
    await theirs.restore({checkout / "a.txt": tree})
    assert (checkout / "a.txt").read_text() == "one"


async def test_directories_of_a_checkout_share_a_repository_and_each_covers_its_own(project: Project) -> None:
    names = ["outside.txt", "x/a.txt", "y/b.txt"]
    paths = [project.write(name, "one") for name in names]
    at_x, at_y = project.snapshots(project.root / "x"), project.snapshots(project.root / "y")
    tree, tree_y = await asyncio.gather(at_x.track(), at_y.track())
    for path in paths:
        path.write_text("two")
    assert project.relative(await at_x.patch(tree)) == {"x/a.txt"} and project.relative(await at_y.patch(tree_y)) == {"y/b.txt"}
    assert [diff.file for diff in await at_x.diff_full(tree, await at_x.track())] == ["x/a.txt"]
    report = await at_x.restore(dict.fromkeys(paths[:2], tree))
    assert [entry.path.name for entry in report.failures] == ["outside.txt"]
    assert [path.read_text() for path in paths] == ["two", "one", "two"]


async def test_a_link_in_place_of_a_directory_is_not_followed(project: Project, snapshots: Snapshots) -> None:
    elsewhere = project.root.parent / "elsewhere"
    project.write("../elsewhere/f", "other")
    for name in ("d", "same", "ignored"):
        project.write(f"{name}/f", "other" if name == "same" else "x")
    project.git("add", "-f", "ignored/f")
    project.write(".gitignore", "ignored\n")
    tree = await snapshots.track()
    for name in ("d", "same", "ignored"):
        project.replace(name, link=elsewhere)
    assert project.held(await snapshots.track()) == {".gitignore", "d", "same"}
    assert project.relative(await snapshots.patch(tree)) >= {"d", "d/f", "same", "same/f"}


async def test_calls_at_once_share_runs_and_none_is_older_than_its_call(project: Project, snapshots: Snapshots) -> None:
    await snapshots.track()

    async def write_then_track(name: str) -> bool:
        await asyncio.to_thread(project.write, name, name)
        return name in project.held(await snapshots.track())

    assert all(await asyncio.gather(*(write_then_track(f"file{i}") for i in range(20))))


async def test_a_repository_that_is_locked_damaged_or_gone_is_made_anew(project: Project, snapshots: Snapshots) -> None:
    file = project.write("a.txt", "x")
    tree = await snapshots.track()
    (project.git_dir / "index.lock").write_text("")
    project.write("b.txt")
    assert project.held(await snapshots.track()) == {"a.txt", "b.txt"}, "a lock that a killed server left is removed"
    project.replace("b.txt")
    (project.git_dir / "index").write_bytes(b"not an index")
    assert await snapshots.track() == tree
    shutil.rmtree(project.data)
    for left in ("config.lock", "HEAD.lock"):
        project.write(project.git_dir / left)
    assert await snapshots.track() == tree, "also where git was killed while it made one"
    file.write_text("y")
    await snapshots.restore({file: tree})
    assert file.read_text() == "x"


async def test_where_git_fails_there_is_no_snapshot_and_a_restore_touches_nothing(project: Project, snapshots: Snapshots) -> None:
    file = project.write("a.txt", "one")
    tree = await snapshots.track()
    file.write_text("two")
    shutil.rmtree(project.git_dir / "objects")
    (project.git_dir / "objects").write_text("")
    with pytest.raises(SnapshotFailed, match="git"):
        await snapshots.track()
    with pytest.raises(SnapshotFailed):
        await snapshots.restore({file: tree})
    assert file.read_text() == "two"
    shutil.rmtree(project.data)
    project.data.write_text("a file")
    with pytest.raises(SnapshotFailed, match="cannot be used"):
        await project.snapshots().track()


async def test_the_users_configuration_changes_nothing(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n autocrlf = true\n compression = nonsense\n[diff]\n external = false\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no-index"))
    snapshots = project.snapshots()
    project.write("a.txt", "one\r\n")
    tree = await snapshots.track()
    project.write("a.txt", "two\r\n")
    assert "--- a/a.txt" in await snapshots.diff(tree)
    await snapshots.restore({project.root / "a.txt": tree})
    assert files(project.root) == {"a.txt": ("file", b"one\r\n", False)}


async def test_a_set_up_cut_short_is_finished(project: Project, snapshots: Snapshots) -> None:
    project.write(".gitattributes", "* text=auto\n")
    file = project.write("a.txt", "one\r\n")
    project.git_dir.mkdir(parents=True)
    git(project.git_dir, "init", "--quiet", "--bare", str(project.git_dir))
    (project.git_dir / "info" / "attributes").unlink(missing_ok=True)
    tree = await snapshots.track()
    project.write("a.txt", "two")
    await snapshots.restore({file: tree})
    assert file.read_bytes() == b"one\r\n"


async def test_a_repository_stands_where_plugins_look_for_it_or_where_it_was_made(project: Project) -> None:
    path = str(project.root).encode()
    usual, former = hashlib.sha1(path).hexdigest(), hashlib.sha256(path).hexdigest()[:16]
    parent = project.data / "snapshot" / "global"
    assert snapshot_dir(project.data, "global", project.root) == parent / usual
    (parent / former).mkdir(parents=True)
    assert snapshot_dir(project.data, "global", project.root) == parent / former


async def test_a_plugin_that_writes_the_index_too_disturbs_no_snapshot(project: Project, snapshots: Snapshots) -> None:
    """As sudo-tee/opencode.nvim does to show diffs."""
    project.write("a.txt", "one")
    before = await snapshots.track()
    project.write("a.txt", "two")
    project.write("new.txt", "new")
    as_plugin = ("--git-dir", str(project.git_dir), "--work-tree", str(project.root))
    git(project.root, *as_plugin, "add", ".")
    assert git(project.root, *as_plugin, "diff", "--cached", "--name-only", before).split() == ["a.txt", "new.txt"]
    assert project.held(await snapshots.track()) == {"a.txt", "new.txt"}
    git(project.root, *as_plugin, "checkout", before, "--", "a.txt")
    assert project.relative(await snapshots.patch(before)) == {"new.txt"}


async def test_an_ignore_file_that_cannot_be_asked_for_is_left_out(project: Project, snapshots: Snapshots) -> None:
    """Its name is too long; one in a folder that may not be entered is closed in the same way."""
    project.write("a.txt", "one")
    project.git("config", "core.excludesFile", "a" * 300)
    assert "a.txt" in project.held(await snapshots.track())


@pytest.mark.parametrize("when", ["from the start", "later"])
@pytest.mark.parametrize("kind", OBSTACLES)
async def test_rules_that_are_no_file_of_the_project_are_left_out(
    project: Project, snapshots: Snapshots, kind: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the event loop nor the snapshot waits for them."""
    project.write("a.txt", "one")
    theirs, named = project.write("../theirs", "a.txt\n"), project.root / "rules"
    project.git("config", "core.excludesFile", str(named))
    if when == "later":
        named.touch()
        await snapshots.track()
    named.unlink(missing_ok=True)
    (project.root / ".git/info/exclude").unlink(missing_ok=True)
    monkeypatch.chdir(project.root / ".git/info")
    put(kind, project.root / ".git/info/exclude", theirs)
    if kind in ("fifo", "endless"):
        put(kind, named, theirs)
    async with asyncio.timeout(10):
        assert "a.txt" in project.held(await snapshots.track())
