"""Snapshots that another program took: which of them a repository of its holds completely."""

import re
from collections.abc import Collection
from pathlib import Path

from app.sandbox.git import Git, GitResult
from app.sandbox.sandbox import OFF
from app.snapshot.errors import SnapshotFailed
from app.util.project_files import HeldDirectory

_TIMEOUT_SECONDS = 600
_HASH = re.compile("[0-9a-f]{40}")


async def complete_trees(git_dir: Path, trees: Collection[str]) -> set[str]:
    """Those of the trees whose files are all there. Writes nothing to the repository. Raises SnapshotFailed."""
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
    environment = {"GIT_DIR": str(git_dir), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    stdin = "".join(f"{line}\n" for line in lines).encode()
    result = await Git(OFF, HeldDirectory(git_dir)).run(*args, env=environment, stdin=stdin, timeout=_TIMEOUT_SECONDS)
    if not result.ok:
        raise SnapshotFailed(f"git {args[0]} in {git_dir}: {result.stderr}")
    return result
