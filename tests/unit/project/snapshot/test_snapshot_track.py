"""What a snapshot holds, and that taking one changes nothing of the project."""

import asyncio
import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from git_files import files, git, server_git
from obstacles import OBSTACLES, put
from snapshot_project import Project

from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.snapshots import Snapshots, snapshot_dir

TWO_MIB = 2 * 1024 * 1024


def held(project: Project, tree: str) -> set[str]:
    """Names in a snapshot, placeholders too."""
    [git_dir] = (project.data / "snapshot" / "global").iterdir()
    output = subprocess.run(
        ["git", "--git-dir", git_dir, "ls-tree", "-r", "-z", "--name-only", tree], check=True, capture_output=True
    )
    return {os.fsdecode(name) for name in output.stdout.split(b"\0") if name}


async def test_the_same_files_give_the_same_hash_and_other_files_another(project: Project, snapshots: Snapshots) -> None:
    project.write("a.txt", "one")
    first = await snapshots.track()
    assert await snapshots.track() == first
    project.write("a.txt", "two")
    second = await snapshots.track()
    assert second != first
    project.write("a.txt", "one")
    assert await snapshots.track() == first
    assert await project.snapshots().track() == first


async def test_an_empty_project_has_a_snapshot(snapshots: Snapshots) -> None:
    tree = await snapshots.track()
    assert await snapshots.patch(tree) == []


async def test_a_change_of_the_same_size_in_the_same_instant_is_seen(project: Project, snapshots: Snapshots) -> None:
    file = project.write("a.txt", "0000")
    trees = set()
    for i in range(20):
        file.write_text(f"{i:04}")
        trees.add(await snapshots.track())
    assert len(trees) == 20


async def test_the_projects_repository_is_left_alone(project: Project, snapshots: Snapshots) -> None:
    project.write("a.txt", "one")
    project.git("add", "a.txt")
    project.git("commit", "-qm", "first")
    project.write("a.txt", "two")
    before = {path: path.stat().st_mtime_ns for path in (project.root / ".git").rglob("*")}
    await snapshots.restore({project.root / "a.txt": await snapshots.track()})
    assert {path: path.stat().st_mtime_ns for path in (project.root / ".git").rglob("*")} == before


async def test_names_of_all_kinds(project: Project, snapshots: Snapshots) -> None:
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
    for name in names:
        project.write(name, "x")
    tree = await snapshots.track()
    assert held(project, tree) == names
    for name in names:
        project.write(name, "y")
    assert project.relative(await snapshots.patch(tree)) == names
    report = await snapshots.restore({project.root / name: tree for name in names})
    assert report.failures == []
    assert {(project.root / name).read_text() for name in names} == {"x"}


async def test_a_name_that_is_not_utf8_is_left_out(project: Project, snapshots: Snapshots) -> None:
    project.write("a.txt")
    (project.root / os.fsdecode(b"caf\xe9")).write_text("x")
    assert held(project, await snapshots.track()) == {"a.txt"}


async def test_ignored_files_are_left_out(project: Project, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(".gitignore", "*.log\n")
    project.write(".git/info/exclude", "by-exclude\n")
    project.write("deep/.gitignore", "local\n")
    ignore_file = project.root.parent / "users-ignore"
    ignore_file.write_text("by-user\n")
    project.git("config", "core.excludesFile", str(ignore_file))
    for name in ("a.log", "by-exclude", "by-user", "deep/local", "deep/a.txt"):
        project.write(name, "x")
    assert held(project, await snapshots.track()) == {".gitignore", "deep/.gitignore", "deep/a.txt"}


async def test_a_later_exclude_is_heeded(project: Project, snapshots: Snapshots) -> None:
    await snapshots.track()
    project.write(".git/info/exclude", "secret\n")
    project.write("secret", "x")
    assert held(project, await snapshots.track()) == set()


async def test_an_ignored_file_that_the_project_tracks_is_held(project: Project, snapshots: Snapshots) -> None:
    project.write(".gitignore", "dist/\n")
    project.write("dist/kept.js", "x")
    project.write("dist/other.js", "x")
    project.git("add", "-f", "dist/kept.js")
    assert held(project, await snapshots.track()) == {".gitignore", "dist/kept.js"}


async def test_the_data_directory_is_left_out_even_inside_the_project(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.data = project.root / "some [data] dir"
    project.write("some [data] dir/opensession.db", "x")
    project.write("some d dir/a.txt", "x")
    assert held(project, await project.snapshots().track()) == {"some d dir/a.txt"}


async def test_a_large_file_is_seen_to_change_but_not_stored(project: Project, snapshots: Snapshots) -> None:
    project.write("small.bin", b"\0" * TWO_MIB)
    large = project.write("large.bin", os.urandom(TWO_MIB + 1))
    tree = await snapshots.track()
    assert await snapshots.track() == tree
    assert await project.snapshots().track() == tree
    with large.open("ab") as file:
        file.write(b"more")
    assert project.relative(await snapshots.patch(tree)) == {"large.bin"}
    assert sum(path.stat().st_size for path in project.data.rglob("*") if path.is_file()) < 100_000


async def test_a_large_file_that_becomes_a_directory(project: Project, snapshots: Snapshots) -> None:
    large = project.write("large", b"\0" * (TWO_MIB + 1))
    tree = await snapshots.track()
    large.unlink()
    project.write("large/inner.txt", "x")
    assert project.relative(await snapshots.patch(tree)) == {"large", "large/inner.txt"}


async def test_special_files_do_not_disturb(project: Project, snapshots: Snapshots) -> None:
    file = project.write("a", "x")
    tree = await snapshots.track()
    file.unlink()
    os.mkfifo(file)
    os.mkfifo(project.root / "pipe")
    assert project.relative(await snapshots.patch(tree)) == {"a"}


async def test_repositories_inside_are_not_entered(project: Project, snapshots: Snapshots) -> None:
    project.write("a.txt")
    other = project.root.parent / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    (other / "b.txt").write_text("x")
    git(other, "add", ".")
    git(other, "commit", "-qm", "first")
    project.git("submodule", "add", "--quiet", str(other), "sub")
    (project.root / "empty").mkdir()
    git(project.root / "empty", "init", "--quiet")
    tree = await snapshots.track()
    assert held(project, tree) == {"a.txt", ".gitmodules"}
    project.write("sub/b.txt", "changed")
    assert await snapshots.track() == tree
    report = await snapshots.restore({project.root / "sub" / "b.txt": tree})
    assert "another git repository" in report.failures[0].reason


async def test_a_file_replaced_by_a_repository(project: Project, snapshots: Snapshots) -> None:
    project.write("a", "x")
    tree = await snapshots.track()
    (project.root / "a").unlink()
    (project.root / "a").mkdir()
    git(project.root / "a", "init", "--quiet")
    git(project.root / "a", "commit", "--allow-empty", "-qm", "first")
    assert project.relative(await snapshots.patch(tree)) == {"a"}
    assert held(project, await snapshots.track()) == set()


async def test_a_submodule_is_a_project_of_its_own(tmp_path: Path) -> None:
    outer = Project(tmp_path / "outer")
    inner = Project(tmp_path / "inner")
    inner.write("b.txt", "one")
    inner.git("add", ".")
    inner.git("commit", "-qm", "first")
    outer.git("submodule", "add", "--quiet", str(inner.root), "sub")
    checkout = outer.root / "sub"
    snapshots = Snapshots(tmp_path / "snapshots", server_git(checkout), checkout)
    tree = await snapshots.track()
    (checkout / "b.txt").write_text("two")
    assert await snapshots.patch(tree) == [checkout / "b.txt"]
    await snapshots.restore({checkout / "b.txt": tree})
    assert (checkout / "b.txt").read_text() == "one"


async def test_linked_worktrees_have_snapshots_of_their_own(project: Project, snapshots: Snapshots) -> None:
    project.write("a.txt", "one")
    project.git("add", ".")
    project.git("commit", "-qm", "first")
    linked = project.root.parent / "linked"
    project.git("worktree", "add", "--quiet", str(linked))
    theirs = Snapshots(project.data / "snapshot" / "linked", server_git(linked), linked)
    tree = await theirs.track()
    assert tree == await snapshots.track()
    (linked / "a.txt").write_text("two")
    assert await theirs.patch(tree) == [linked / "a.txt"]
    assert await snapshots.patch(tree) == []


async def test_a_subdirectory_is_covered_alone(project: Project) -> None:
    project.write("outside.txt", "one")
    project.write("sub/inside.txt", "one")
    snapshots = project.snapshots(project.root / "sub")
    tree = await snapshots.track()
    project.write("outside.txt", "two")
    project.write("sub/inside.txt", "two")
    assert project.relative(await snapshots.patch(tree)) == {"sub/inside.txt"}
    assert [diff.file for diff in await snapshots.diff_full(tree, await snapshots.track())] == ["sub/inside.txt"]
    report = await snapshots.restore({project.root / "outside.txt": tree, project.root / "sub/inside.txt": tree})
    assert [entry.path.name for entry in report.failures] == ["outside.txt"]
    assert (project.root / "sub/inside.txt").read_text() == "one"


async def test_two_directories_of_a_checkout_may_share_a_repository(project: Project) -> None:
    project.write("x/a.txt", "one")
    project.write("y/b.txt", "one")
    at_x, at_y = project.snapshots(project.root / "x"), project.snapshots(project.root / "y")
    tree_x, tree_y = await asyncio.gather(at_x.track(), at_y.track())
    project.write("x/a.txt", "two")
    project.write("y/b.txt", "two")
    assert project.relative(await at_x.patch(tree_x)) == {"x/a.txt"}
    assert project.relative(await at_y.patch(tree_y)) == {"y/b.txt"}


async def test_a_link_in_place_of_a_directory_is_not_followed(project: Project, snapshots: Snapshots) -> None:
    elsewhere = project.root.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "f").write_text("other")
    project.write("d/f", "x")
    project.write("same/f", "other")
    tree = await snapshots.track()
    for name in ("d", "same"):
        (project.root / name / "f").unlink()
        (project.root / name).rmdir()
        (project.root / name).symlink_to(elsewhere)
    assert held(project, await snapshots.track()) == {"d", "same"}
    assert project.relative(await snapshots.patch(tree)) == {"d", "d/f", "same", "same/f"}


async def test_an_ignored_link_in_place_of_a_directory(project: Project, snapshots: Snapshots) -> None:
    project.write(".gitignore", "d\n")
    project.write("d/f", "x")
    project.git("add", "-f", "d/f")
    await snapshots.track()
    elsewhere = project.root.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "f").write_text("other")
    (project.root / "d" / "f").unlink()
    (project.root / "d").rmdir()
    (project.root / "d").symlink_to(elsewhere)
    assert held(project, await snapshots.track()) == {".gitignore"}


async def test_calls_at_once_share_runs_and_none_is_older_than_its_call(project: Project, snapshots: Snapshots) -> None:
    await snapshots.track()

    async def write_then_track(name: str) -> bool:
        await asyncio.to_thread(project.write, name, name)
        return name in held(project, await snapshots.track())

    assert all(await asyncio.gather(*(write_then_track(f"file{i}") for i in range(20))))


async def test_an_index_lock_left_by_a_killed_server_is_cleaned_up(project: Project, snapshots: Snapshots) -> None:
    await snapshots.track()
    [git_dir] = (project.data / "snapshot" / "global").iterdir()
    (git_dir / "index.lock").write_text("")
    project.write("a.txt")
    assert held(project, await snapshots.track()) == {"a.txt"}


async def test_a_damaged_index_is_made_anew(project: Project, snapshots: Snapshots) -> None:
    project.write("a.txt", "x")
    tree = await snapshots.track()
    [git_dir] = (project.data / "snapshot" / "global").iterdir()
    (git_dir / "index").write_bytes(b"not an index")
    assert await snapshots.track() == tree


async def test_a_repository_removed_meanwhile_is_made_anew(project: Project, snapshots: Snapshots) -> None:
    project.write("a.txt", "x")
    tree = await snapshots.track()
    subprocess.run(["rm", "-r", project.data], check=True)
    assert await snapshots.track() == tree
    project.write("a.txt", "y")
    await snapshots.restore({project.root / "a.txt": tree})
    assert (project.root / "a.txt").read_text() == "x"


async def test_where_git_fails_there_is_no_snapshot_and_a_restore_touches_nothing(project: Project, snapshots: Snapshots) -> None:
    file = project.write("a.txt", "one")
    tree = await snapshots.track()
    file.write_text("two")
    [git_dir] = (project.data / "snapshot" / "global").iterdir()
    for folder in (git_dir / "objects").iterdir():
        subprocess.run(["rm", "-r", folder], check=True)
    (git_dir / "objects").rmdir()
    (git_dir / "objects").write_text("")
    with pytest.raises(SnapshotFailed, match="git"):
        await snapshots.track()
    with pytest.raises(SnapshotFailed):
        await snapshots.restore({file: tree})
    assert file.read_text() == "two"


async def test_a_data_directory_that_cannot_be_written_is_reported(project: Project) -> None:
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
    project.write("a.txt", "one\r\n")
    git_dir = snapshot_dir(project.data, "global", project.root)
    git_dir.mkdir(parents=True)
    git(git_dir, "init", "--quiet", "--bare", str(git_dir))
    (git_dir / "info" / "attributes").unlink(missing_ok=True)
    tree = await snapshots.track()
    project.write("a.txt", "two")
    await snapshots.restore({project.root / "a.txt": tree})
    assert (project.root / "a.txt").read_bytes() == b"one\r\n"


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
    git_dir = snapshot_dir(project.data, "global", project.root)
    as_plugin = ("--git-dir", str(git_dir), "--work-tree", str(project.root))
    git(project.root, *as_plugin, "add", ".")
    assert git(project.root, *as_plugin, "diff", "--cached", "--name-only", before).split() == ["a.txt", "new.txt"]
    assert held(project, await snapshots.track()) == {"a.txt", "new.txt"}
    git(project.root, *as_plugin, "checkout", before, "--", "a.txt")
    assert project.relative(await snapshots.patch(before)) == {"new.txt"}


async def test_the_data_directory_may_be_named_relatively(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root.parent)
    project.data = Path("data")
    project.write("a.txt")
    assert held(project, await project.snapshots().track()) == {"a.txt"}


@pytest.mark.parametrize("when", ["from the start", "later"])
@pytest.mark.parametrize("kind", OBSTACLES)
async def test_rules_that_are_no_file_of_the_project_are_left_out(
    project: Project, snapshots: Snapshots, kind: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the event loop nor the snapshot waits for them."""
    project.write("a.txt", "one")
    theirs = project.root.parent / "theirs"
    theirs.write_text("a.txt\n")
    named = project.root / "rules"
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
        assert "a.txt" in held(project, await snapshots.track())
