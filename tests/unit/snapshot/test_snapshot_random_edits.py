"""Random edits, then a restore of what they changed: the named files are as they were, all others as the edits left them."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from git_files import files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from long_form import LONG
from snapshot_project import Project

NAMES = st.sampled_from(["a", "b", "日本", "with space", "x.txt", "a.sh"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"one\r\ntwo\r\n", b"one\ntwo\n", b"\0\1\2", b"", b"0000", b"1111", "日本\n".encode()]),
)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATHS, CONTENTS),
        st.tuples(st.just("link"), PATHS, PATHS),
        st.tuples(st.just("rename"), PATHS, PATHS),
        st.tuples(st.just("chmod"), PATHS, st.sampled_from([0o644, 0o755])),
        st.tuples(st.just("delete"), PATHS, st.none()),
    ),
    max_size=12,
)


def edit(root: Path, kind: str, path: str, detail: object) -> None:
    """Do one edit, making room for it as a person would; never through a link."""
    target = root / path
    if any((root / parent).is_symlink() for parent in Path(path).parents):
        return
    match kind, detail:
        case "delete", _:
            remove(target)
        case "chmod", int(mode) if target.is_file() and not target.is_symlink():
            target.chmod(mode)
        case "write", bytes(content):
            make_room(root, path)
            target.write_bytes(content)
        case "link", str(destination):
            make_room(root, path)
            target.symlink_to(destination)
        case "rename", str(source) if os.path.lexists(root / source) and can_move(source, path, root):
            make_room(root, path)
            (root / source).rename(target)


def can_move(source: str, path: str, root: Path) -> bool:
    nested = Path(path).is_relative_to(source) or Path(source).is_relative_to(path)
    return not nested and not any((root / parent).is_symlink() for parent in Path(source).parents)


def make_room(root: Path, path: str) -> None:
    remove(root / path)
    for parent in [*Path(path).parents][-2::-1]:
        if (root / parent).is_file():
            (root / parent).unlink()
    (root / path).parent.mkdir(parents=True, exist_ok=True)


def remove(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    elif os.path.lexists(target):
        target.unlink()


@settings(max_examples=40 if LONG else 15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(before=EDITS, after=EDITS, chosen=st.sets(st.integers(0, 30)), has_git=st.booleans())
def test_a_restore_is_exact(before: list[tuple], after: list[tuple], chosen: set[int], has_git: bool) -> None:
    with tempfile.TemporaryDirectory() as base:
        asyncio.run(edit_and_restore(Project(Path(base), has_git=has_git), before, after, chosen))


async def edit_and_restore(project: Project, before: list[tuple], after: list[tuple], chosen: set[int]) -> None:
    snapshots = project.snapshots()
    for step in before:
        edit(project.root, *step)
    then, tree = files(project.root), await snapshots.track()
    for step in after:
        edit(project.root, *step)
    now = files(project.root)

    changed = await snapshots.patch(tree)
    assert project.relative(changed) == {path for path in then.keys() | now.keys() if then.get(path) != now.get(path)}

    some = [path for i, path in enumerate(changed) if i not in chosen]
    report = await snapshots.restore(dict.fromkeys(some, tree))
    named = project.relative(some) - {str(entry.path.relative_to(project.root)) for entry in report.failures}
    result = files(project.root)
    assert {path: result.get(path) for path in named} == {path: then.get(path) for path in named}
    assert {path: state for path, state in result.items() if path not in named} == {
        path: state for path, state in now.items() if path not in named
    }
    assert len(some) < len(changed) or report.failures == []

    await snapshots.restore(dict.fromkeys(some, report.before))
    assert files(project.root) == now
    await snapshots.restore(dict.fromkeys(changed, tree))
    assert files(project.root) == then
