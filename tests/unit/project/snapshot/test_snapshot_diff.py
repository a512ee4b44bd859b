from pathlib import Path

import pytest
from snapshot_project import Project, counted_git

from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.snapshots import Snapshots
from app.schema.session import FileDiff


async def diffs_of(snapshots: Snapshots, before: str) -> dict[str, FileDiff]:
    return {diff.file: diff for diff in await snapshots.diff_full(before, await snapshots.track())}


def patch_of(name: str, *lines: str) -> str:
    return "\n".join([f"Index: {name}", "=" * 67, f"--- {name}\t", f"+++ {name}\t", *lines, ""])


async def test_full_diffs(project: Project, snapshots: Snapshots) -> None:
    project.write("changed.txt", "one\ntwo\n")
    project.write("gone.txt", "bye\n")
    before = await snapshots.track()
    project.write("changed.txt", "one\n2\nthree\n")
    (project.root / "gone.txt").unlink()
    project.write("日本/new.txt", "hello")
    changed, gone, new = (await diffs_of(snapshots, before)).values()
    assert changed.wire() == {
        "file": "changed.txt",
        "before": "one\ntwo\n",
        "after": "one\n2\nthree\n",
        "additions": 2,
        "deletions": 1,
        "patch": patch_of("changed.txt", "@@ -1,2 +1,3 @@", " one", "-two", "+2", "+three"),
        "status": "modified",
    }
    assert (gone.before, gone.after, gone.additions, gone.deletions, gone.status) == ("bye\n", "", 0, 1, "deleted")
    assert (new.before, new.after, new.additions, new.deletions, new.status) == ("", "hello", 1, 0, "added")
    assert gone.patch == patch_of("gone.txt", "@@ -1 +0,0 @@", "-bye")
    assert new.patch == patch_of("日本/new.txt", "@@ -0,0 +1 @@", "+hello", "\\ No newline at end of file")


async def test_a_patch_is_its_own_files_whatever_lines_it_has(project: Project, snapshots: Snapshots) -> None:
    before = await snapshots.track()
    odd = "diff --git a/x b/x\n@@ -1 +1 @@\nindex 1..2\n\n"
    for name in ("a", "diff --git", 'with "quotes"\n', "empty", "z"):
        project.write(name, "" if name == "empty" else f"{odd}{name}\n")
    diffs = await diffs_of(snapshots, before)
    assert diffs["empty"].patch == patch_of("empty")
    for name in ("a", "diff --git", 'with "quotes"\n', "z"):
        lines = diffs[name].after.splitlines()
        assert diffs[name].patch == patch_of(name, f"@@ -0,0 +1,{len(lines)} @@", *(f"+{line}" for line in lines))


async def test_no_change_is_no_diff(snapshots: Snapshots) -> None:
    tree = await snapshots.track()
    assert await snapshots.diff_full(tree, tree) == []
    assert await snapshots.diff(tree) == ""


async def test_a_rename_is_a_deletion_and_an_addition(project: Project, snapshots: Snapshots) -> None:
    file = project.write("old.txt", "same\n" * 20)
    before = await snapshots.track()
    file.rename(project.root / "new.txt")
    diffs = await diffs_of(snapshots, before)
    assert (diffs["old.txt"].deletions, diffs["new.txt"].additions) == (20, 20)


async def test_binary_and_large_files_have_neither_text_nor_counts(project: Project, snapshots: Snapshots) -> None:
    before = await snapshots.track()
    project.write("image.png", b"\x89PNG\0\1\2")
    project.write("large.txt", b"x\n" * 2_000_000)
    assert await diffs_of(snapshots, before) == {
        name: FileDiff(file=name, before="", after="", additions=0, deletions=0, status="added")
        for name in ("image.png", "large.txt")
    }


async def test_text_that_is_not_utf8_is_shown_with_replacements(project: Project, snapshots: Snapshots) -> None:
    before = await snapshots.track()
    project.write("latin1.txt", "café\n".encode("latin-1"))
    assert (await diffs_of(snapshots, before))["latin1.txt"].after == "caf\ufffd\n"


async def test_changes_of_type_and_of_mode(project: Project, snapshots: Snapshots) -> None:
    project.write("to-link", "text\n")
    project.write("script", "x\n")
    project.write("to-directory", "x\n")
    before = await snapshots.track()
    (project.root / "to-link").unlink()
    (project.root / "to-link").symlink_to("script")
    (project.root / "script").chmod(0o755)
    (project.root / "to-directory").unlink()
    project.write("to-directory/a", "y\n")
    diffs = await diffs_of(snapshots, before)
    assert diffs["to-link"].before == "text\n"
    assert diffs["to-link"].after == "script"
    assert (diffs["script"].before, diffs["script"].after, diffs["script"].additions) == ("x\n", "x\n", 0)
    assert diffs["to-directory"].deletions == 1
    assert diffs["to-directory/a"].additions == 1
    assert len(diffs) == 4


async def test_names_that_look_like_gits_own_output(project: Project, snapshots: Snapshots) -> None:
    before = await snapshots.track()
    names = {":100644", "1\t2\tx", "-\t-\ty", "a\nb"}
    for name in names:
        project.write(name, "x\n")
    diffs = await diffs_of(snapshots, before)
    assert {name: diff.after for name, diff in diffs.items()} == dict.fromkeys(names, "x\n")


async def test_unified_text(project: Project, snapshots: Snapshots) -> None:
    project.write("日本.txt", "one\n")
    before = await snapshots.track()
    project.write("日本.txt", "two\n")
    text = await snapshots.diff(before)
    assert text.startswith("diff --git a/日本.txt b/日本.txt")
    assert text.endswith("-one\n+two")
    assert await snapshots.diff(before, before) == ""


async def test_many_files_take_few_processes(project: Project, snapshots: Snapshots, tmp_path: Path) -> None:
    for i in range(300):
        project.write(f"f{i}", f"{i}\n")
    before = await snapshots.track()
    for i in range(300):
        project.write(f"f{i}", f"{i}!\n")
    after = await snapshots.track()
    with counted_git(tmp_path) as count:
        assert len(await snapshots.diff_full(before, after)) == 300
        assert count() == 2


async def test_a_snapshot_that_is_gone_is_reported(snapshots: Snapshots) -> None:
    tree = await snapshots.track()
    for unknown in ("0" * 39 + "1", "--output=/tmp/x"):
        with pytest.raises(SnapshotFailed):
            await snapshots.diff_full(unknown, tree)
