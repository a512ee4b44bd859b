"""Work on snapshots beside taking them: those of another program, checks for `opensession doctor`, and collecting those of
checkouts that no server has open."""

import re
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path

from app.project.sandbox.git import WITHOUT_CONFIGURATION, Git, GitResult
from app.project.sandbox.sandbox import OFF
from app.project.snapshot.lock import SnapshotFailed, collection_lock, repository_lock
from app.project.snapshot.repository import Repository
from app.record.maintenance import Finding
from app.record.postgres import Locks
from app.util.project_files import HeldDirectory

_TIMEOUT_SECONDS = 600
_HASH = re.compile("[0-9a-f]{40}")


async def complete_trees(git_dir: Path, trees: Collection[str]) -> set[str]:
    """The trees among these all of whose files exist. Writes nothing to the repository. Raises SnapshotFailed."""
    wanted = sorted(filter(_HASH.fullmatch, trees))
    if not wanted:
        return set()
    checked = await _git(git_dir, ["cat-file", "--batch-check"], wanted)
    found = {line.split()[0] for line in checked.text.splitlines() if line.split()[1:2] == ["tree"]}
    if not found or await _is_complete(git_dir, found):
        return found
    return {tree for tree in found if await _is_complete(git_dir, {tree})}


async def _is_complete(git_dir: Path, trees: Collection[str]) -> bool:
    listed = await _git(git_dir, ["rev-list", "--objects", "--missing=print", "--no-object-names", "--stdin"], sorted(trees))
    return not any(line.startswith(b"?") for line in listed.stdout.splitlines())


async def _git(git_dir: Path, args: list[str], lines: Collection[str]) -> GitResult:
    environment = {"GIT_DIR": str(git_dir), **WITHOUT_CONFIGURATION}
    stdin = "".join(f"{line}\n" for line in lines).encode()
    result = await Git(OFF, HeldDirectory(git_dir)).run(*args, env=environment, stdin=stdin, timeout=_TIMEOUT_SECONDS)
    if not result.ok:
        raise SnapshotFailed(f"git {args[0]} in {git_dir}: {result.stderr}")
    return result


SUBJECT = "snapshots"


async def check(data_dir: Path, locks: Locks | None = None) -> list[Finding]:
    places = sorted(path for path in (data_dir / "snapshot").glob("*/*") if (path / "HEAD").exists())
    found = [finding for place in places if (finding := await _check_one(place, locks)) is not None]
    return found or [Finding(SUBJECT, "fine", f"{len(places)} repositories, all sound")]


async def _check_one(place: Path, locks: Locks | None) -> Finding | None:
    async with repository_lock(place, locks):
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


async def collect_repositories(data_dir: Path, project_ids: Iterable[str], locks: Locks) -> None:
    """Collects the snapshots of these projects. Raises SnapshotFailed."""
    folders = [(data_dir / "snapshot" / project_id).absolute() for project_id in sorted(project_ids)]
    for git_dir in [git_dir for folder in folders for git_dir in sorted(folder.glob("*"))]:
        if (git_dir / "refs" / "keep").is_dir():
            async with collection_lock(git_dir, locks):
                await Repository(git_dir, Git(OFF, HeldDirectory(git_dir)), git_dir, "", []).collect()
