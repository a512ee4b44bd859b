"""Takes over the snapshots that imported sessions name, so that their reverts work."""

from pathlib import Path

from app.project.discovery import ProjectInfo
from app.snapshot.adopt import complete_trees
from app.snapshot.errors import SnapshotFailed
from app.snapshot.snapshots import Snapshots, snapshot_dir
from app.storage.postgres import Locks
from app.transfer.opencode.records import Problem
from app.transfer.opencode.report import ImportReport


class SnapshotImport:
    """`source` is OpenCode's directory `snapshot`: a repository for each project, since 1.18 for each of its checkouts."""

    def __init__(self, source: Path, data_dir: Path, locks: Locks, *, max_bytes: int | None, dry_run: bool = False) -> None:
        self._source = source
        self._data_dir = data_dir
        self._locks = locks
        self._max_bytes = max_bytes
        self._dry_run = dry_run
        self._wanted: dict[tuple[str, ProjectInfo], set[str]] = {}

    def want(self, project_id: str, here: ProjectInfo | None, trees: set[str]) -> None:
        """`project_id` is the source's. Without a checkout here there is nothing to restore."""
        if here is not None and here.git is not None and trees:
            self._wanted.setdefault((project_id, here), set()).update(trees)

    async def run(self, report: ImportReport) -> None:
        for (project_id, here), trees in self._wanted.items():
            missing = await self._without_those_here(here, trees)
            for repository in self._repositories(project_id):
                try:
                    found = await complete_trees(repository, missing)
                    if found and not self._dry_run:
                        await self._snapshots(here).adopt(repository, found)
                except SnapshotFailed as error:
                    report.problems.append(Problem(str(repository), str(error)))
                    continue
                report.snapshots += len(found)
                missing -= found
            report.missing_snapshots += len(missing)

    async def _without_those_here(self, here: ProjectInfo, trees: set[str]) -> set[str]:
        own = snapshot_dir(self._data_dir, here.id, here.checkout)
        return trees - await complete_trees(own, trees) if (own / "HEAD").exists() else set(trees)

    def _repositories(self, project_id: str) -> list[Path]:
        project = self._source / project_id
        return [head.parent for head in sorted([*project.glob("HEAD"), *project.glob("*/HEAD")])]

    def _snapshots(self, here: ProjectInfo) -> Snapshots:
        own = snapshot_dir(self._data_dir, here.id, here.checkout)
        assert here.git is not None  # nothing else is wanted
        return Snapshots(own, here.git, here.checkout, [self._data_dir], max_bytes=self._max_bytes, locks=self._locks)
