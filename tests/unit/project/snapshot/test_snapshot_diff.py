from pathlib import Path

import pytest
from snapshot_project import Project, counted_git

from app.project.snapshot import repository
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
    project.replace("gone.txt")
    project.write("日本/new.txt", "hello")
    changed, gone, new = (await diffs_of(snapshots, before)).values()
    patch = patch_of("changed.txt", "@@ -1,2 +1,3 @@", " one", "-two", "+2", "+three")
    texts = {"before": "one\ntwo\n", "after": "one\n2\nthree\n", "patch": patch}
    assert changed.wire() == {"file": "changed.txt", **texts, "additions": 2, "deletions": 1, "status": "modified"}
    assert (gone.before, gone.after, gone.additions, gone.deletions, gone.status) == ("bye\n", "", 0, 1, "deleted")
    assert (new.before, new.after, new.additions, new.deletions, new.status) == ("", "hello", 1, 0, "added")
    assert gone.patch == patch_of("gone.txt", "@@ -1 +0,0 @@", "-bye")
    assert new.patch == patch_of("日本/new.txt", "@@ -0,0 +1 @@", "+hello", "\\ No newline at end of file")


async def test_a_patch_is_its_own_files_whatever_lines_and_name_it_has(project: Project, snapshots: Snapshots) -> None:
    before = await snapshots.track()
    odd = "diff --git a/x b/x\n@@ -1 +1 @@\nindex 1..2\n\n"
    names = {"a", "diff --git", 'with "quotes"\n', "z", ":100644", "1\t2\tx", "-\t-\ty", "a\nb"}
    for name in names:
        project.write(name, f"{odd}{name}\n")
    project.write("empty")
    diffs = await diffs_of(snapshots, before)
    assert diffs.keys() == {*names, "empty"} and diffs["empty"].patch == patch_of("empty")
    for name in names:
        lines = diffs[name].after.splitlines()
        assert diffs[name].after == f"{odd}{name}\n"
        assert diffs[name].patch == patch_of(name, f"@@ -0,0 +1,{len(lines)} @@", *(f"+{line}" for line in lines))


async def test_renames_other_types_and_what_is_no_text(project: Project, snapshots: Snapshots) -> None:
    project.write("old.txt", "same\n" * 20)
    for name in ("to-link", "script", "to-directory"):
        project.write(name, "x\n")
    before = await snapshots.track()
    (project.root / "old.txt").rename(project.root / "new.txt")
    project.write("image.png", b"\x89PNG\0\1\2")
    project.write("large.txt", b"x\n" * 2_000_000)
    project.write("latin1.txt", "café\n".encode("latin-1"))
    project.replace("to-link", link="script")
    (project.root / "script").chmod(0o755)
    project.replace("to-directory", "y\n", below="/a")
    diffs = await diffs_of(snapshots, before)
    assert (diffs.pop("old.txt").deletions, diffs.pop("new.txt").additions) == (20, 20)
    for name in ("image.png", "large.txt"):
        assert diffs.pop(name) == FileDiff(file=name, before="", after="", additions=0, deletions=0, status="added")
    assert diffs.pop("latin1.txt").after == "caf\ufffd\n"
    link, script = diffs.pop("to-link"), diffs.pop("script")
    assert (link.before, link.after) == ("x\n", "script")
    assert (script.before, script.after, script.additions) == ("x\n", "x\n", 0)
    assert (diffs.pop("to-directory").deletions, diffs.pop("to-directory/a").additions) == (1, 1)
    assert diffs == {}


async def test_unified_text(project: Project, snapshots: Snapshots) -> None:
    project.write("日本.txt", "one\n")
    before = await snapshots.track()
    project.write("日本.txt", "two\n")
    text = await snapshots.diff(before)
    assert text.startswith("diff --git a/日本.txt b/日本.txt") and text.endswith("-one\n+two")
    assert await snapshots.diff_full(before, before) == [] and await snapshots.diff(before, before) == ""


async def test_large_changes_are_shown_as_far_as_they_fit(
    project: Project, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt"):
        project.write(name, "old\n")
    before = await snapshots.track()
    project.write("a.txt", "new\n")
    project.write("b.txt", "x\n" * 5000)
    monkeypatch.setattr(repository, "MAX_PATCH_BYTES", 5000)
    monkeypatch.setattr("app.project.snapshot.snapshots.MAX_TEXT_BYTES", 2000)
    text = await snapshots.diff(before)
    assert text.endswith("-old\n+new") and "b.txt" not in text
    found = (await diffs_of(snapshots, before)).values()
    assert [(diff.before, diff.after, diff.patch, diff.additions) for diff in found] == [
        ("old\n", "new\n", None, 1),
        ("", "", None, 5000),
    ]


async def test_many_files_take_few_processes(project: Project, snapshots: Snapshots, tmp_path: Path) -> None:
    trees = []
    for text in ("one", "two"):
        for i in range(300):
            project.write(f"f{i}", f"{i} {text}\n")
        trees.append(await snapshots.track())
    with counted_git(tmp_path) as count:
        assert len(await snapshots.diff_full(*trees)) == 300
        assert count() == 2


async def test_a_snapshot_that_is_gone_is_reported(snapshots: Snapshots) -> None:
    tree = await snapshots.track()
    for unknown in ("0" * 39 + "1", "--output=/tmp/x"):
        with pytest.raises(SnapshotFailed):
            await snapshots.diff_full(unknown, tree)
