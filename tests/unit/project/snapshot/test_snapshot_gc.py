"""Old snapshots go, those that were current within seven days stay."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from git_files import server_git
from snapshot_project import Project

from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.snapshots import Snapshots
from app.util.tasks import ProcessLocks

DAY = 24 * 3600


def age(path: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def age_all(project: Project, days: float) -> Path:
    """Make everything in the repository old; returns the directory of the refs that keep snapshots."""
    refs = project.git_dir / "refs" / "keep"
    for path in (*(project.git_dir / "objects").rglob("*"), *refs.iterdir()):
        age(path, days)
    return refs


async def restores(snapshots: Snapshots, file: Path, tree: str) -> bool:
    return (await snapshots.restore({file: tree})).failures == []


async def test_a_snapshot_goes_seven_days_after_it_was_current(project: Project, snapshots: Snapshots) -> None:
    file = project.write("a", "1")
    old = await snapshots.track()
    file.write_text("2")
    recent = await snapshots.track()
    refs = age_all(project, 8)
    age(refs / recent, 6)
    file.write_text("3")
    current = await snapshots.track()
    await snapshots.gc()
    file.write_text("4")
    assert not await restores(snapshots, file, old)
    assert await restores(snapshots, file, recent) and file.read_text() == "2"
    assert await restores(snapshots, file, current)


async def test_a_project_unchanged_for_weeks_keeps_its_snapshot(project: Project, snapshots: Snapshots) -> None:
    file = project.write("a", "1")
    tree = await snapshots.track()
    age_all(project, 30)
    later = project.snapshots()
    assert await later.track() == tree
    file.write_text("2")
    await later.track()
    await later.gc()
    assert await restores(later, file, tree) and file.read_text() == "1"


async def test_nothing_or_nothing_new_is_nothing_to_do(project: Project, snapshots: Snapshots) -> None:
    await snapshots.gc()
    project.write("a", "1")
    tree = await snapshots.track()
    await snapshots.gc()
    age(age_all(project, 30) / tree, 30)
    await snapshots.gc()
    assert [ref.name for ref in (project.git_dir / "refs" / "keep").iterdir()] == [tree]


async def test_of_too_many_the_older_ones_go_before_their_time(project: Project) -> None:
    file = project.root / "a"
    trees = []
    for _ in range(3):
        file.write_bytes(os.urandom(100_000))
        trees.append(await project.snapshots().track())
    refs = age_all(project, 5)
    age(refs / trees[1], 2)
    age(refs / trees[2], 0)
    full = project.snapshots(max_bytes=250_000)
    with pytest.raises(SnapshotFailed, match="OPENSESSION_MAX_SNAPSHOT_BYTES"):
        await full.track()
    await full.gc()
    assert {ref.name for ref in refs.iterdir()} == set(trees[1:])
    file.write_bytes(b"small")
    await full.track()


async def test_several_servers_collect_one_after_the_other(project: Project) -> None:
    """Git fails where another git collects already."""
    project.write("a", "1")
    locks, checkout = ProcessLocks(), server_git(project.root)
    servers = [Snapshots(project.data / "shared", checkout, project.root, [project.data], locks=locks) for _ in range(3)]
    for snapshots in servers:
        await snapshots.track()
    await asyncio.gather(*(snapshots.gc() for snapshots in servers))
