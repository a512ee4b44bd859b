"""A restore brings back exactly the named files, and nothing is lost that could not be brought back again."""

import asyncio
import os
from pathlib import Path

import pytest
from git_files import files, git, state
from snapshot_project import Project

from app.project.snapshot.capture import MAX_FILE_BYTES
from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.restore import RestoreReport
from app.project.snapshot.snapshots import Snapshots


def reasons(report: RestoreReport) -> dict[str, str]:
    return {entry.path.name: entry.reason for entry in report.failures}


async def test_restored_deleted_and_untouched(project: Project, snapshots: Snapshots) -> None:
    changed = project.write("changed.txt", "one")
    same = project.write("same.txt", "one")
    other = project.write("other.txt", "one")
    gone = project.write("deep/gone.txt", "one")
    tree = await snapshots.track()
    changed.write_text("two")
    other.write_text("two")
    gone.unlink()
    made = project.write("made.txt", "two")
    inode = same.stat().st_ino
    report = await snapshots.restore(dict.fromkeys((changed, same, gone, made), tree))
    assert set(report.restored) == {changed, gone}
    assert report.deleted == [made]
    assert report.unchanged == [same]
    assert report.failures == []
    assert (changed.read_text(), gone.read_text(), made.exists(), other.read_text()) == ("one", "one", False, "two")
    assert same.stat().st_ino == inode


async def test_each_path_may_come_from_a_snapshot_of_its_own(project: Project, snapshots: Snapshots) -> None:
    a, b = project.write("a", "1"), project.write("b", "1")
    first = await snapshots.track()
    a.write_text("2")
    b.write_text("2")
    second = await snapshots.track()
    a.write_text("3")
    b.write_text("3")
    await snapshots.restore({a: first, b: second})
    assert (a.read_text(), b.read_text()) == ("1", "2")


async def test_the_reports_snapshot_undoes_the_restore(project: Project, snapshots: Snapshots) -> None:
    project.write("a", "1")
    project.write("dir/b", "1")
    tree = await snapshots.track()
    (project.root / "a").unlink()
    project.write("a/now a directory", "2")
    project.write("dir/b", "2").chmod(0o755)
    project.write("new", "2")
    then = files(project.root)
    paths = await snapshots.patch(tree)
    report = await snapshots.restore(dict.fromkeys(paths, tree))
    assert files(project.root) != then
    await snapshots.restore(dict.fromkeys(paths, report.before))
    assert files(project.root) == then


async def test_a_dry_run_only_reports(project: Project, snapshots: Snapshots) -> None:
    changed = project.write("changed", "1")
    tree = await snapshots.track()
    changed.write_text("2")
    made = project.write("made", "2")
    report = await snapshots.restore({changed: tree, made: tree}, dry_run=True)
    assert (report.restored, report.deleted) == ([changed], [made])
    assert (changed.read_text(), made.read_text()) == ("2", "2")


@pytest.mark.parametrize("content", [b"", b"\0\xff\xfe\r\n", b"a\r\nb\r\n", b"a\nb\r\nc\r", "日本\n".encode("utf-16"), b"$Id$\n"])
async def test_bytes_come_back_whatever_the_attributes_say(project: Project, snapshots: Snapshots, content: bytes) -> None:
    project.write(".gitattributes", "* text=auto eol=crlf ident filter=lfs working-tree-encoding=UTF-16\n")
    project.git("config", "filter.lfs.clean", "tr a-z A-Z")
    project.git("config", "filter.lfs.required", "true")
    file = project.write("file", content)
    tree = await snapshots.track()
    file.write_bytes(b"something else")
    await snapshots.restore({file: tree})
    assert file.read_bytes() == content


async def test_the_executable_bit(project: Project, snapshots: Snapshots) -> None:
    script, text = project.write("script", "x"), project.write("text", "x")
    script.chmod(0o755)
    tree = await snapshots.track()
    script.chmod(0o644)
    text.chmod(0o755)
    report = await snapshots.restore({script: tree, text: tree})
    assert set(report.restored) == {script, text}
    assert (script.stat().st_mode & 0o777, text.stat().st_mode & 0o777) == (0o755, 0o644)


async def test_other_permissions_of_a_file_stay(project: Project, snapshots: Snapshots) -> None:
    secret, script = project.write("secret", "1"), project.write("script", "1")
    secret.chmod(0o600)
    script.chmod(0o700)
    tree = await snapshots.track()
    secret.write_text("2")
    script.write_text("2")
    script.chmod(0o600)
    await snapshots.restore({secret: tree, script: tree})
    assert (secret.stat().st_mode & 0o777, script.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_links(project: Project, snapshots: Snapshots) -> None:
    link, dangling, file = project.root / "link", project.root / "dangling", project.write("file", "x")
    link.symlink_to("file")
    dangling.symlink_to("/nowhere/é")
    tree = await snapshots.track()
    link.unlink()
    link.write_text("now a file")
    dangling.unlink()
    file.unlink()
    file.symlink_to("/etc/passwd")
    made = project.root / "made"
    made.symlink_to("file")
    report = await snapshots.restore(dict.fromkeys((link, dangling, file, made), tree))
    assert report.failures == []
    assert [state(path) for path in (link, dangling, file, made)] == [
        ("link", "file"),
        ("link", "/nowhere/é"),
        ("file", b"x", False),
        None,
    ]


async def test_a_file_that_became_a_directory_and_the_reverse(project: Project, snapshots: Snapshots) -> None:
    project.write("a", "file")
    project.write("b/inner/deep", "file")
    tree = await snapshots.track()
    (project.root / "a").unlink()
    project.write("a/inner/deep", "x")
    (project.root / "b/inner/deep").unlink()
    (project.root / "b/inner").rmdir()
    (project.root / "b").rmdir()
    project.write("b", "x")
    report = await snapshots.restore(dict.fromkeys(await snapshots.patch(tree), tree))
    assert report.failures == []
    assert files(project.root) == {"a": ("file", b"file", False), "b/inner/deep": ("file", b"file", False)}


async def test_a_directory_that_holds_other_files_is_not_replaced(project: Project, snapshots: Snapshots) -> None:
    project.write(".gitignore", "*.log\n")
    project.write("a", "file")
    tree = await snapshots.track()
    (project.root / "a").unlink()
    log = project.write("a/b.log", "precious")
    report = await snapshots.restore({project.root / "a": tree})
    assert reasons(report) == {"a": "a directory with other files stands in its place"}
    assert log.read_text() == "precious"


async def test_directories_emptied_by_a_deletion_go_but_not_the_sessions_own(project: Project) -> None:
    snapshots = project.snapshots(project.root / "work")
    (project.root / "work").mkdir()
    tree = await snapshots.track()
    made = [project.write("work/a/b/c", "x"), project.write("work/a/d", "x"), project.write("work/e", "x")]
    await snapshots.restore(dict.fromkeys(made, tree))
    assert sorted(path.name for path in project.root.rglob("*") if ".git" not in path.parts) == ["work"]


async def test_a_linked_parent_is_never_followed(project: Project, snapshots: Snapshots) -> None:
    outside = project.root.parent / "outside"
    outside.mkdir()
    project.write("d/changed", "one")
    project.write("d/same", "one")
    tree = await snapshots.track()
    for name in ("changed", "same"):
        (project.root / "d" / name).unlink()
    (project.root / "d").rmdir()
    (outside / "changed").write_text("theirs")
    (outside / "made").write_text("theirs")
    (project.root / "d").symlink_to(outside)
    paths = [project.root / "d" / name for name in ("changed", "same", "made")]
    report = await snapshots.restore(dict.fromkeys(paths, tree))
    assert reasons(report) == dict.fromkeys(("changed", "same"), "a file or a link stands where its directory was")
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"changed": "theirs", "made": "theirs"}


async def test_paths_outside_the_worktree_are_refused(project: Project, snapshots: Snapshots) -> None:
    outside = project.root.parent / "outside"
    outside.write_text("x")
    tree = await snapshots.track()
    report = await snapshots.restore({outside: tree, project.root / ".." / "outside": tree})
    assert len(report.failures) == 2
    assert outside.read_text() == "x"


async def test_gits_own_files_are_refused(project: Project, snapshots: Snapshots) -> None:
    report = await snapshots.restore({project.root / ".git" / "HEAD": await snapshots.track()})
    assert (report.deleted, len(report.failures)) == ([], 1)
    assert (project.root / ".git" / "HEAD").exists()


async def test_large_files_are_left_alone_and_reported(project: Project, snapshots: Snapshots) -> None:
    large = b"x" * (MAX_FILE_BYTES + 1)
    grew, shrank = project.write("grew", "small"), project.write("shrank", large)
    rewritten, same = project.write("rewritten", large), project.write("same", large)
    tree = await snapshots.track()
    grew.write_bytes(large)
    shrank.write_text("small")
    rewritten.write_bytes(large + b"y")
    made = project.write("made", large)
    then = files(project.root)
    paths = await snapshots.patch(tree)
    assert set(paths) == {grew, shrank, rewritten, made}
    report = await snapshots.restore(dict.fromkeys([*paths, same], tree))
    assert reasons(report) == {
        "grew": "it is larger than 2 MiB",
        "shrank": "it was larger than 2 MiB when the snapshot was taken",
        "rewritten": "it was larger than 2 MiB when the snapshot was taken",
        "made": "it is larger than 2 MiB",
    }
    assert report.unchanged == [same]
    assert files(project.root) == then


async def test_ignored_files_are_left_alone_and_reported(project: Project, snapshots: Snapshots) -> None:
    project.write(".gitignore", "*.log\n")
    tree = await snapshots.track()
    log = project.write("a.log", "precious")
    report = await snapshots.restore({log: tree})
    assert reasons(report) == {"a.log": "it is ignored, so no snapshot holds it"}
    assert log.exists()


async def test_files_of_a_repository_inside_are_left_alone_and_reported(project: Project, snapshots: Snapshots) -> None:
    project.write("sub/a", "x")
    git(project.root / "sub", "init", "--quiet")
    report = await snapshots.restore({project.root / "sub" / "a": await snapshots.track()})
    assert reasons(report) == {"a": "it belongs to another git repository inside this one"}


async def test_what_permissions_forbid_is_reported(project: Project, snapshots: Snapshots) -> None:
    locked, unreadable = project.write("locked/a", "1"), project.write("unreadable", "1")
    tree = await snapshots.track()
    locked.write_text("2")
    unreadable.write_text("2")
    unreadable.chmod(0)
    locked.parent.chmod(0o500)
    report = await snapshots.restore({locked: tree, unreadable: tree})
    locked.parent.chmod(0o700)
    root_may_do_all = os.geteuid() == 0
    assert reasons(report) == ({} if root_may_do_all else {"a": "permission denied", "unreadable": "it is not readable"})


async def test_a_file_that_cannot_be_written_is_reported_and_the_others_restored(project: Project, snapshots: Snapshots) -> None:
    inner, good = project.write("taken/inner", "1"), project.write("good", "1")
    tree = await snapshots.track()
    inner.unlink()
    inner.parent.rmdir()
    project.write("taken", "a file")
    good.write_text("2")
    report = await snapshots.restore({inner: tree, good: tree})
    assert reasons(report) == {"inner": "a file or a link stands where its directory was"}
    assert (good.read_text(), (project.root / "taken").read_text()) == ("1", "a file")


async def test_a_snapshot_that_is_gone_is_reported_for_its_files_only(project: Project, snapshots: Snapshots) -> None:
    lost, found = project.write("lost", "1"), project.write("found", "1")
    tree = await snapshots.track()
    found.write_text("2")
    report = await snapshots.restore({lost: "1" * 40, found: tree})
    assert reasons(report) == {"lost": "its snapshot is no longer kept or cannot be read"}
    assert report.restored == [found]


async def test_a_cancelled_restore_goes_on_to_its_end(project: Project, snapshots: Snapshots) -> None:
    files = [project.write(f"f{i}", "1") for i in range(200)]
    tree = await snapshots.track()
    for file in files:
        file.write_text("2")
    restoring = asyncio.create_task(snapshots.restore(dict.fromkeys(files, tree)))
    await asyncio.sleep(0)
    restoring.cancel()
    await asyncio.wait([restoring])
    assert restoring.cancelled()
    await snapshots.track()
    assert {file.read_text() for file in files} == {"1"}


async def test_many_files(project: Project, snapshots: Snapshots) -> None:
    files: list[Path] = [project.write(f"d{i % 10}/f{i}", f"{i}") for i in range(700)]
    tree = await snapshots.track()
    for file in files:
        file.unlink()
    report = await snapshots.restore(dict.fromkeys(files, tree))
    assert len(report.restored) == 700
    assert [file.read_text() for file in files] == [f"{i}" for i in range(700)]


async def test_what_a_killed_server_left_beside_a_file_is_removed_by_the_restore_that_undoes_its_own(
    project: Project, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project.write("a.txt", "one")
    tree = await snapshots.track()
    assert tree is not None
    project.write("a.txt", "two")
    later = await snapshots.track()
    assert later is not None
    with monkeypatch.context() as killed:
        killed.setattr(os, "rename", lambda *_, **__: (_ for _ in ()).throw(OSError("killed")))
        killed.setattr(os, "unlink", lambda *_, **__: None)
        await snapshots.restore({path: tree})
    assert len(list(path.parent.glob(".opensession-*"))) == 1
    await snapshots.restore({path: later})
    assert path.read_text() == "two" and not list(path.parent.glob(".opensession-*"))


@pytest.mark.parametrize("kind", ["link", "other directory"])
async def test_nothing_is_restored_into_another_directory(project: Project, snapshots: Snapshots, kind: str) -> None:
    a, gone, outside = project.write("a", "1"), project.write("deep/gone", "1"), project.root.parent / "outside"
    tree = await snapshots.track()
    a.write_text("2")
    gone.unlink()
    outside.mkdir()
    (outside / "a").write_text("theirs")

    async def replace(_: str) -> None:
        project.root.rename(project.root.with_name("aside"))
        project.root.symlink_to(outside) if kind == "link" else outside.rename(project.root)

    report = await snapshots.restore({a: tree, gone: tree}, before_restore=replace)
    assert reasons(report).keys() == {"a", "gone"}
    assert files(project.root) == {"a": ("file", b"theirs", False)}
    with pytest.raises(SnapshotFailed):
        await snapshots.restore({a: tree, gone: tree})
    with pytest.raises(SnapshotFailed):
        await snapshots.track()
    assert files(project.root) == {"a": ("file", b"theirs", False)}
