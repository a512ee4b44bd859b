import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest
from git_files import server_git
from snapshot_project import Project

from app.project.snapshot.lock import TIMEOUT_SECONDS, SnapshotFailed, lock, repository_lock
from app.project.snapshot.snapshots import Snapshots
from app.util.tasks import ProcessLocks

HOLD = "import fcntl, os, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock until its input is closed."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def lock_in(folder: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> AbstractAsyncContextManager[int | None]:
    return lock(folder / "lock", "", None, timeout_seconds)


async def test_one_holder_at_a_time(tmp_path: Path) -> None:
    holders = most = 0

    async def hold() -> None:
        nonlocal holders, most
        async with lock_in(tmp_path):
            holders += 1
            most = max(most, holders)
            await asyncio.sleep(0)
            holders -= 1

    await asyncio.gather(*(hold() for _ in range(20)))
    assert (holders, most) == (0, 1)


async def taken(folder: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
    async with lock_in(folder, timeout_seconds):
        pass


async def test_another_process_is_waited_for_until_a_timeout_ends_with_a_reason(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path / "lock") as holder:
        with pytest.raises(SnapshotFailed, match="another process"):
            await taken(tmp_path, 0)
        taking = asyncio.create_task(taken(tmp_path))
        done, _ = await asyncio.wait([taking], timeout=0.1)
        assert not done and holder.stdin is not None
        holder.stdin.close()
        await asyncio.wait_for(taking, 10)


async def test_servers_of_one_database_lock_by_it(project: Project) -> None:
    """Here by the locks of one process, which say that they keep servers apart."""

    class SharedLocks(ProcessLocks):
        is_shared = True

    shared, name = SharedLocks(), f"snapshots {project.data / 'shared'}"
    snapshots = Snapshots(project.data / "shared", server_git(project.root), project.root, [project.data], locks=shared)
    async with shared.lock(name):
        taking = asyncio.create_task(snapshots.track())
        await asyncio.wait([taking], timeout=0.1)
        assert not taking.done()
        with pytest.raises(SnapshotFailed, match="another server"):
            async with lock(project.data / "lock", name, shared, timeout_seconds=0):
                pass
    assert await taking == await snapshots.track()
    assert not (project.data / "shared" / "opensession.lock").exists()


async def test_a_process_that_inherits_the_lock_keeps_it(tmp_path: Path) -> None:
    async with lock_in(tmp_path) as descriptor:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[descriptor])
    with pytest.raises(SnapshotFailed):
        await taken(tmp_path, 0)
    child.communicate()
    await taken(tmp_path, 0)


async def test_servers_in_several_processes_share_a_data_directory(project: Project) -> None:
    for i in range(50):
        project.write(f"f{i}", str(i))
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        trees = await asyncio.to_thread(pool.starmap, track_often, [(project.root, project.data)] * 2)
    assert set(trees[0] + trees[1]) == {await project.snapshots().track()}


def track_often(root: Path, data: Path) -> list[str]:
    os.chdir(root)
    project = object.__new__(Project)
    project.root, project.data = root, data

    async def track() -> list[str]:
        return [await project.snapshots().track() for _ in range(5)]

    return asyncio.run(track())


async def test_a_cancelled_caller_leaves_the_snapshot_to_the_others(project: Project, snapshots: Snapshots) -> None:
    async with repository_lock(project.git_dir.absolute(), None):
        leaving, staying = asyncio.create_task(snapshots.track()), asyncio.create_task(snapshots.track())
        done, _ = await asyncio.wait([leaving, staying], timeout=0.1)
        assert not done
        leaving.cancel()
    assert await staying == await snapshots.track()
    assert leaving.cancelled()


async def test_a_failed_snapshot_does_not_fail_the_next(project: Project, snapshots: Snapshots) -> None:
    project.data.write_text("a file")
    with pytest.raises(SnapshotFailed):
        await snapshots.track()
    project.data.unlink()
    assert project.held(await snapshots.track()) == set()
