"""A restore brings back exactly the named files, and nothing is lost that could not be brought back again."""

import asyncio
import os

import pytest
from git_files import files, git, put_file
from snapshot_project import Project

from app.project.snapshot.capture import MAX_FILE_BYTES
from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.restore import RestoreReport
from app.project.snapshot.snapshots import Snapshots


def reasons(report: RestoreReport) -> dict[str, str]:
    return {entry.path.name: entry.reason for entry in report.failures}


async def test_restored_deleted_and_untouched(project: Project, snapshots: Snapshots) -> None:
    changed, same, other, gone = (project.write(name, "one") for name in ("changed", "same", "other", "deep/gone"))
    tree = await snapshots.track()
    changed.write_text("two")
    other.write_text("two")
    gone.unlink()
    made = project.write("made", "two")
    inode, then = same.stat().st_ino, files(project.root)
    for dry_run in (True, False):
        report = await snapshots.restore(dict.fromkeys((changed, same, gone, made), tree), dry_run=dry_run)
        assert set(report.restored) == {changed, gone}
        assert (report.deleted, report.unchanged, report.failures) == ([made], [same], [])
        assert (files(project.root) == then) is dry_run, "a dry run only reports"
    assert (changed.read_text(), gone.read_text(), made.exists(), other.read_text()) == ("one", "one", False, "two")
    assert same.stat().st_ino == inode


async def test_each_path_may_come_from_a_snapshot_of_its_own(project: Project, snapshots: Snapshots) -> None:
    trees = []
    for text in ("1", "2", "3"):
        a, b = project.write("a", text), project.write("b", text)
        trees.append(await snapshots.track())
    await snapshots.restore({a: trees[0], b: trees[1]})
    assert (a.read_text(), b.read_text()) == ("1", "2")


CONTENTS = [b"", b"\0\xff\xfe\r\n", b"a\r\nb\r\n", b"a\nb\r\nc\r", "日本\n".encode("utf-16"), b"$Id$\n"]


async def test_bytes_come_back_whatever_the_attributes_say(project: Project, snapshots: Snapshots) -> None:
    project.write(".gitattributes", "* text=auto eol=crlf ident filter=lfs working-tree-encoding=UTF-16\n")
    project.git("config", "filter.lfs.clean", "tr a-z A-Z")
    project.git("config", "filter.lfs.required", "true")
    written = [project.write(f"file{at}", content) for at, content in enumerate(CONTENTS)]
    tree = await snapshots.track()
    for file in written:
        file.write_bytes(b"something else")
    await snapshots.restore(dict.fromkeys(written, tree))
    assert [file.read_bytes() for file in written] == CONTENTS


async def test_the_executable_bit_comes_back_and_other_permissions_stay(project: Project, snapshots: Snapshots) -> None:
    modes = {"script": (0o755, 0o644, 0o755), "text": (0o644, 0o755, 0o644), "secret": (0o600, 0o600, 0o600)}
    modes["own"] = (0o700, 0o600, 0o700)
    paths = [project.write(name, "1") for name in modes]
    for path in paths:
        path.chmod(modes[path.name][0])
    tree = await snapshots.track()
    for path in paths:
        path.chmod(modes[path.name][1])
    for path in paths[2:]:
        path.write_text("2")
    report = await snapshots.restore(dict.fromkeys(paths, tree))
    assert set(report.restored) == set(paths)
    assert {path.name: path.stat().st_mode & 0o777 for path in paths} == {name: mode[2] for name, mode in modes.items()}


async def test_directories_emptied_by_a_deletion_go_but_not_the_sessions_own(project: Project) -> None:
    snapshots = project.snapshots(project.root / "work")
    (project.root / "work").mkdir()
    tree = await snapshots.track()
    made = [project.write(f"work/{name}", "x") for name in ("a/b/c", "a/d", "e")]
    await snapshots.restore(dict.fromkeys(made, tree))
    assert sorted(path.name for path in project.root.rglob("*") if ".git" not in path.parts) == ["work"]


async def test_a_linked_parent_is_never_followed(project: Project, snapshots: Snapshots) -> None:
    outside = project.root.parent / "outside"
    outside.mkdir()
    for name in ("changed", "same"):
        project.write(f"d/{name}", "one")
    tree = await snapshots.track()
    for name in ("changed", "made"):
        (outside / name).write_text("theirs")
    project.replace("d", link=outside)
    report = await snapshots.restore({project.root / "d" / name: tree for name in ("changed", "same", "made")})
    assert reasons(report) == dict.fromkeys(("changed", "same"), "a file or a link stands where its directory was")
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"changed": "theirs", "made": "theirs"}


async def test_what_cannot_be_restored_is_reported_and_the_others_are(project: Project, snapshots: Snapshots) -> None:
    outside = project.root.parent / "outside"
    outside.write_text("x")
    project.write(".gitignore", "*.log\n")
    project.write("sub/inside", "x")
    git(project.root / "sub", "init", "--quiet")
    for name in ("replaced", "taken/inner", "lost", "good"):
        project.write(name, "1")
    tree = await snapshots.track()
    project.replace("replaced", "precious", below="/b.log")
    project.replace("taken", "a file")
    log, good = project.write("a.log", "precious"), project.write("good", "2")
    names = ("replaced", "taken/inner", "sub/inside", "a.log", ".git/HEAD", "../outside", "good")
    then = files(project.root)
    report = await snapshots.restore({**{project.root / name: tree for name in names}, project.root / "lost": "1" * 40})
    told = reasons(report)
    assert told.pop("HEAD") and told.pop("outside")
    assert told == {
        "replaced": "a directory with other files stands in its place",
        "inner": "a file or a link stands where its directory was",
        "inside": "it belongs to another git repository inside this one",
        "a.log": "it is ignored, so no snapshot holds it",
        "lost": "its snapshot is no longer kept or cannot be read",
    }
    assert (report.restored, report.deleted, log.read_text()) == ([good], [], "precious")
    assert files(project.root) == {**then, "good": ("file", b"1", False)}
    assert reasons(await snapshots.restore({outside: tree})).keys() == {"outside"}
    assert outside.read_text() == "x" and (project.root / ".git" / "HEAD").exists()


async def test_what_is_changed_while_a_restore_begins_stays_and_is_named(project: Project, snapshots: Snapshots) -> None:
    """The snapshot that would undo the restore lacks it."""
    for name in ("edited", "made", "linked", "also", "d/f"):
        project.write(name, "first")
    tree = await snapshots.track()
    (project.root / "made").unlink()
    project.replace("d")
    project.write("d", "a file")
    for name in ("edited", "linked", "new", "renewed"):
        project.write(name, "second")
    (project.root / "also").unlink()
    (project.root / "also").hardlink_to(project.root / "linked")

    async def a_person(_before: str) -> None:
        for name in ("edited", "made", "renewed"):
            project.write(name, "a person's")

    wanted = ("edited", "made", "linked", "also", "new", "renewed", "d", "d/f")
    report = await snapshots.restore({project.root / name: tree for name in wanted}, before_restore=a_person)
    assert {item.path.name: item.reason for item in report.failures} == dict.fromkeys(
        ("edited", "made", "renewed"), "it was changed meanwhile"
    )
    assert {(project.root / name).read_text() for name in ("edited", "made", "renewed")} == {"a person's"}
    assert {(project.root / name).read_text() for name in ("linked", "also", "d/f")} == {"first"}
    assert not (project.root / "new").exists()


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
    was = dict.fromkeys(("shrank", "rewritten"), "it was larger than 2 MiB when the snapshot was taken")
    assert reasons(report) == {**was, **dict.fromkeys(("grew", "made"), "it is larger than 2 MiB")}
    assert report.unchanged == [same] and files(project.root) == then


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


@pytest.mark.parametrize("kind", ["link", "other directory"])
async def test_nothing_is_restored_into_another_directory(project: Project, snapshots: Snapshots, kind: str) -> None:
    a, gone, outside = project.write("a", "1"), project.write("deep/gone", "1"), project.root.parent / "outside"
    tree = await snapshots.track()
    a.write_text("2")
    gone.unlink()
    put_file(outside / "a", "theirs")

    async def replace(_: str) -> None:
        project.root.rename(project.root.with_name("aside"))
        project.root.symlink_to(outside) if kind == "link" else outside.rename(project.root)

    report = await snapshots.restore({a: tree, gone: tree}, before_restore=replace)
    assert reasons(report).keys() == {"a", "gone"}
    with pytest.raises(SnapshotFailed):
        await snapshots.restore({a: tree, gone: tree})
    with pytest.raises(SnapshotFailed):
        await snapshots.track()
    assert files(project.root) == {"a": ("file", b"theirs", False)}


async def test_many_files_and_a_cancelled_restore_goes_on_to_its_end(project: Project, snapshots: Snapshots) -> None:
    many = [project.write(f"d{i % 10}/f{i}", f"{i}") for i in range(700)]
    tree = await snapshots.track()
    for file in many:
        file.unlink()
    assert len((await snapshots.restore(dict.fromkeys(many, tree))).restored) == 700
    for file in many[:200]:
        file.write_text("changed")
    restoring = asyncio.create_task(snapshots.restore(dict.fromkeys(many, tree)))
    await asyncio.sleep(0)
    restoring.cancel()
    await asyncio.wait([restoring])
    assert restoring.cancelled()
    await snapshots.track()
    assert [file.read_text() for file in many] == [f"{i}" for i in range(700)]


async def test_what_a_killed_server_left_beside_a_file_is_removed_by_the_restore_that_undoes_its_own(
    project: Project, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project.write("a.txt", "one")
    tree = await snapshots.track()
    project.write("a.txt", "two")
    later = await snapshots.track()
    with monkeypatch.context() as killed:
        killed.setattr(os, "replace", lambda *_, **__: (_ for _ in ()).throw(OSError("killed")))
        killed.setattr(os, "unlink", lambda *_, **__: None)
        await snapshots.restore({path: tree})
    assert len(list(path.parent.glob(".opensession-*"))) == 1
    await snapshots.restore({path: later})
    assert path.read_text() == "two" and not list(path.parent.glob(".opensession-*"))
