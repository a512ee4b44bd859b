"""Checks the snapshot repositories of a data directory for `opensession doctor`."""

from functools import partial
from pathlib import Path

from app.sandbox.git import Git
from app.sandbox.sandbox import OFF
from app.snapshot.lock import repository_lock
from app.storage.maintenance import Finding
from app.storage.postgres import Locks
from app.util.project_files import HeldDirectory

SUBJECT = "snapshots"
_TIMEOUT_SECONDS = 600


async def check(data_dir: Path, locks: Locks | None = None) -> list[Finding]:
    places = sorted(path for path in (data_dir / "snapshot").glob("*/*") if (path / "HEAD").exists())
    found = [finding for place in places if (finding := await _check_one(place, locks)) is not None]
    return found or [Finding(SUBJECT, "fine", f"{len(places)} repositories, all sound")]


async def _check_one(place: Path, locks: Locks | None) -> Finding | None:
    async with repository_lock(place, locks).held():
        args = ["fsck", "--full", "--no-dangling", "--no-progress"]
        result = await Git(OFF, HeldDirectory(place)).run(*args, env={"GIT_DIR": str(place)}, timeout=_TIMEOUT_SECONDS)
    if result.ok:
        return None
    reason = (result.stderr or result.text).splitlines()
    return Finding(
        SUBJECT,
        "fault",
        f"{place} is damaged ({reason[0] if reason else f'git fsck ended with {result.code}'})",
        "move it away: new snapshots start from scratch, and steps before that can no longer be reverted",
        partial(place.rename, place.with_name(f"{place.name}.damaged")),
    )
