"""Imports the sessions of an OpenCode directory, and the snapshots that they name.

Each is stored in one transaction, together with a row about what was imported: an import that is killed can be continued, and a
later one finds what is new.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app.project.discovery import NO_PROJECT, ProjectInfo, discover
from app.project.location import Location
from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.maintenance import complete_trees
from app.project.snapshot.snapshots import Snapshots, snapshot_dir
from app.record import tables
from app.record.postgres import Locks
from app.record.repositories import session_rows
from app.record.writer import Writer
from app.schema.errors import NotFound
from app.schema.part import PatchPart, SnapshotPart, StepFinishPart, StepStartPart
from app.schema.project import Project
from app.schema.session import FileDiff
from app.sessions.store import Store
from app.transfer.document import SessionDocument, SessionHistory
from app.transfer.importing import Destination, Importer, SessionChanged
from app.transfer.opencode.history import history_of
from app.transfer.opencode.records import ImportOutcome, ImportReport, JsonObject, Problem, SourceReader, SourceSession, created

_PLACED_HERE = {"project_id", "owner", "share", "path", "cost", "tokens"}
"""Fields that differ between the source and here even if nobody changed the session."""


def decide_import(source: str, imported: str | None, stored: str | None) -> ImportOutcome:
    """Decides by a session's fingerprints: in the source, as it was imported last, and as it is stored here."""
    if imported is None:
        if stored is None:
            return ImportOutcome.IMPORTED
        return ImportOutcome.UNCHANGED if stored == source else ImportOutcome.EXISTS
    if stored is None:
        return ImportOutcome.DELETED_HERE
    if imported == source:  # it may have changed here
        return ImportOutcome.UNCHANGED
    return ImportOutcome.UPDATED if stored in (imported, source) else ImportOutcome.CHANGED_HERE


def fingerprint(history: SessionHistory) -> str:
    """A hash of the content, which shows whether a session has changed since it was imported."""
    digest = hashlib.sha256(history.info.model_dump_json(exclude=_PLACED_HERE, exclude_none=True).encode())
    for value in (*history.messages, *history.todo, *history.diff):
        digest.update(b"\n" + value.wire_json())
    return digest.hexdigest()


def is_in(directory: Path, session: SourceSession) -> bool:
    named = session.info.get("directory")
    return isinstance(named, str) and any(Path(named).is_relative_to(each) for each in (directory, directory.resolve()))


def trees_of(history: SessionHistory) -> set[str]:
    """The snapshots that a revert of the session, or its diff, needs."""
    trees = {history.info.revert.snapshot} if history.info.revert else set()
    for message in history.messages:
        for part in message.parts:
            if isinstance(part, StepStartPart | StepFinishPart | SnapshotPart):
                trees.add(part.snapshot)
            elif isinstance(part, PatchPart):
                trees.add(part.hash)
    return {tree for tree in trees if tree}


class SnapshotImport:
    """`source`: OpenCode's directory `snapshot`: a repository for each project, since 1.18 for each of its checkouts."""

    def __init__(self, source: Path, data_dir: Path, locks: Locks, *, max_bytes: int | None, dry_run: bool = False) -> None:
        self._source = source
        self._data_dir = data_dir
        self._locks = locks
        self._max_bytes = max_bytes
        self._dry_run = dry_run
        self._wanted: dict[tuple[str, ProjectInfo], set[str]] = {}

    def want(self, project_id: str, here: ProjectInfo | None, trees: set[str]) -> None:
        """`project_id`: the source's. Without a checkout here there is nothing to restore."""
        if here is not None and here.git is not None and trees:
            self._wanted.setdefault((project_id, here), set()).update(trees)

    async def run(self, report: ImportReport) -> None:
        for (project_id, here), trees in self._wanted.items():
            own = snapshot_dir(self._data_dir, here.id, here.checkout)
            missing = trees - await complete_trees(own, trees) if (own / "HEAD").exists() else set(trees)
            project = self._source / project_id
            for repository in [head.parent for head in sorted([*project.glob("HEAD"), *project.glob("*/HEAD")])]:
                try:
                    found = await self._adopt(repository, missing, here, own)
                except SnapshotFailed as error:
                    report.problems.append(Problem(str(repository), str(error)))
                    continue
                report.snapshots += len(found)
                missing -= found
            report.missing_snapshots += len(missing)

    async def _adopt(self, repository: Path, trees: set[str], here: ProjectInfo, own: Path) -> set[str]:
        """Copies to `own` those of the snapshots that the repository has; a dry run only returns them. Raises SnapshotFailed."""
        found = await complete_trees(repository, trees)
        if found and not self._dry_run:
            assert here.git is not None  # nothing else is wanted
            snapshots = Snapshots(own, here.git, here.checkout, [self._data_dir], max_bytes=self._max_bytes, locks=self._locks)
            await snapshots.adopt(repository, found)
        return found


_DIFFS = TypeAdapter(list[FileDiff])

ImportProgress = Callable[[int, int], None]
"""Called with the number of sessions that are done, and of all."""


class OpenCodeImport:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        importer: Importer,
        snapshots: SnapshotImport,
        *,
        dry_run: bool = False,
    ) -> None:
        """A dry run changes nothing, and reports the same."""
        self._store = store
        self._writer = writer
        self._importer = importer
        self._snapshots = snapshots
        self._dry_run = dry_run
        self._imported: Mapping[str, str] = {}
        self._projects: Mapping[str, JsonObject] = {}
        self._locations: dict[str, ProjectInfo | None] = {}
        self._report = ImportReport()

    async def run(self, readers: Sequence[SourceReader], directory: Path | None, progress: ImportProgress) -> ImportReport:
        """`directory`: only the sessions in it."""
        self._imported = await self._store.query(session_rows.imported_sessions)
        for reader in readers:
            projects = await asyncio.to_thread(lambda r: list(r.projects()), reader)
            self._projects = {str(project.get("id")): project for project in projects}
            await self._take_all(reader, directory, progress)
            self._report.problems += [*reader.problems, *await asyncio.to_thread(reader.orphans)]
        await self._snapshots.run(self._report)
        return self._report

    async def _take_all(self, reader: SourceReader, directory: Path | None, progress: ImportProgress) -> None:
        # The oldest first, because lists show what was stored last at the top.
        sessions = sorted(await asyncio.to_thread(reader.sessions), key=lambda session: created(session.info))
        wanted = [session for session in sessions if directory is None or is_in(directory, session)]
        for done, session in enumerate(wanted):
            progress(done, len(wanted))
            history, problems = await asyncio.to_thread(_read, reader, session)
            self._report.problems += problems
            if history is not None:
                await self._take(history)
        progress(len(wanted), len(wanted))

    async def _take(self, history: SessionHistory) -> None:
        outcome = await self._store_one(history)
        self._report.outcomes[outcome] += 1
        if outcome in (ImportOutcome.IMPORTED, ImportOutcome.UPDATED):
            self._report.messages += len(history.messages)
        if outcome in (ImportOutcome.IMPORTED, ImportOutcome.UPDATED, ImportOutcome.UNCHANGED):
            here = await self._find(history.info.directory)
            self._snapshots.want(history.info.project_id, here, trees_of(history))

    async def _store_one(self, history: SessionHistory) -> ImportOutcome:
        session_id, source = history.info.id, await asyncio.to_thread(fingerprint, history)
        imported = self._imported.get(session_id)
        if imported == source and session_id in await self._store.query(session_rows.owners, [session_id]):
            return ImportOutcome.UNCHANGED
        stored = await self._stored(session_id)
        outcome = decide_import(source, imported, await asyncio.to_thread(fingerprint, stored) if stored else None)
        if self._dry_run or outcome not in (ImportOutcome.IMPORTED, ImportOutcome.UPDATED):
            return outcome
        is_here = await self._find(history.info.directory) is not None
        destination = Destination(await self._location(history), is_here=is_here)
        if stored is None:
            await self._put_project(destination.location.project_id)
            document = SessionDocument.model_construct(**dict(history), children=[])
            await self._importer.store(document, destination, source)
            return outcome
        try:
            await self._importer.replace(stored, history, destination, source)
        except SessionChanged:
            return ImportOutcome.CHANGED_HERE
        return outcome

    async def _stored(self, session_id: str) -> SessionHistory | None:
        """The stored session; None if there is none."""
        try:
            info, messages = await self._store.session_and_messages(session_id)
        except NotFound:
            return None
        diffs = await self._store.query(session_rows.body_of, tables.DIFF, session_id)
        todos = await self._store.todos(session_id)
        diff = _DIFFS.validate_json(diffs) if diffs else []
        return SessionHistory.model_construct(info=info, messages=messages, todo=todos, diff=diff)

    async def _find(self, directory: str) -> ProjectInfo | None:
        """None if the directory is not on this machine."""
        if directory not in self._locations:
            is_here = directory.startswith("/") and await asyncio.to_thread(os.path.isdir, directory)  # a Path may raise
            self._locations[directory] = await discover(Path(directory)) if is_here else None
        return self._locations[directory]

    async def _location(self, history: SessionHistory) -> Location:
        """The session's location, with the project that is found for its directory; with the source's if that is not here."""
        directory, found = history.info.directory, await self._find(history.info.directory)
        if found is None:
            return Location(directory, history.info.project_id, "/", is_git=history.info.project_id != NO_PROJECT)
        return Location(directory, found.id, str(found.checkout), is_git=found.vcs is not None)

    async def _put_project(self, project_id: str) -> None:
        """A project that is stored already stays as it is."""
        stored = await self._store.query(session_rows.body_of, tables.PROJECT, project_id)
        if stored is not None or project_id not in self._projects:
            return
        with suppress(ValidationError):  # without a stored project, its first use makes one
            project = Project.model_validate(self._projects[project_id])
            row = {"id": project.id, "updated": project.time.updated, "body": project.wire_json().decode()}
            await self._writer.commit(lambda tx: tx.put(tx.sql.put_project, row))


def _read(reader: SourceReader, session: SourceSession) -> tuple[SessionHistory | None, list[Problem]]:
    reader.read(session)
    try:
        return history_of(session)
    finally:
        session.messages, session.todos, session.diffs = [], [], []  # frees their memory
