"""Collecting the snapshots of checkouts that no server has open: old ones go, as they do where a server works."""

from collections.abc import Iterable
from pathlib import Path

from app.sandbox.git import Git
from app.sandbox.sandbox import OFF
from app.snapshot.lock import collection_lock
from app.snapshot.repository import Repository
from app.storage.postgres import Locks
from app.util.project_files import HeldDirectory


async def collect_repositories(data_dir: Path, project_ids: Iterable[str], locks: Locks) -> None:
    """Of projects. Raises SnapshotFailed."""
    for project_id in sorted(project_ids):
        for git_dir in sorted((data_dir / "snapshot" / project_id).glob("*")):
            if (git_dir / "refs" / "keep").is_dir():
                async with collection_lock(git_dir.absolute(), locks).held():
                    place = git_dir.absolute()
                    await Repository(place, Git(OFF, HeldDirectory(place)), place, "", []).collect()
