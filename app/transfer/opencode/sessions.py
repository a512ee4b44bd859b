"""Imports the sessions of an OpenCode directory.

Each is stored in one transaction, together with a row that says what was imported: an import that is killed goes on where it
was, and a later one finds what is new.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app.project.discovery import NO_PROJECT, ProjectInfo, discover
from app.project.location import Location
from app.schema.errors import NotFound
from app.schema.project import Project
from app.schema.session import FileDiff
from app.session.store import Store
from app.storage import tables
from app.storage.repositories import session_rows
from app.storage.writer import Tx, Writer
from app.transfer.document import SessionDocument, SessionHistory
from app.transfer.importer import Destination, Importer, SessionChanged
from app.transfer.opencode.decision import decide, fingerprint, in_order, is_in, trees_of
from app.transfer.opencode.history import history_of
from app.transfer.opencode.records import JsonObject, Problem, SourceReader, SourceSession
from app.transfer.opencode.report import ImportOutcome, ImportReport
from app.transfer.opencode.snapshots import SnapshotImport

_DIFFS = TypeAdapter(list[FileDiff])

ImportProgress = Callable[[int, int], None]
"""Called with how many sessions are done, and of how many."""


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
            self._projects = {
                str(project.get("id")): project for project in await asyncio.to_thread(lambda r: list(r.projects()), reader)
            }
            await self._take_all(reader, directory, progress)
            self._report.problems += [*reader.problems, *await asyncio.to_thread(reader.orphans)]
        await self._snapshots.run(self._report)
        return self._report

    async def _take_all(self, reader: SourceReader, directory: Path | None, progress: ImportProgress) -> None:
        sessions = in_order(await asyncio.to_thread(reader.sessions))
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
        if imported == source and await self._importer.stored([session_id]):
            return ImportOutcome.UNCHANGED
        stored = await self._stored(session_id)
        here = await asyncio.to_thread(fingerprint, stored) if stored else None
        outcome = decide(source, imported, here)
        if self._dry_run or outcome not in (ImportOutcome.IMPORTED, ImportOutcome.UPDATED):
            return outcome
        is_here = await self._find(history.info.directory) is not None
        destination = Destination(await self._location(history), is_here=is_here)
        row = {"id": session_id, "fingerprint": source}

        def note(tx: Tx) -> None:
            tx.execute(tx.sql.put_imported, row)

        if stored is None:
            await self._put_project(destination.location.project_id)
            document = SessionDocument.model_construct(**dict(history), children=[])
            await self._importer.store(document, destination, note)
            return outcome
        try:
            await self._importer.replace(stored, history, destination, note)
        except SessionChanged:
            return ImportOutcome.CHANGED_HERE
        return outcome

    async def _stored(self, session_id: str) -> SessionHistory | None:
        """What is stored here. None if there is no such session."""
        try:
            info = await self._store.session(session_id)
        except NotFound:
            return None
        messages = await self._store.messages(session_id)
        diffs = await self._store.query(session_rows.body_of, tables.DIFF, session_id)
        todos = await self._store.todos(session_id)
        diff = _DIFFS.validate_json(diffs) if diffs else []
        return SessionHistory.model_construct(info=info, messages=messages, todo=todos, diff=diff)

    async def _find(self, directory: str) -> ProjectInfo | None:
        """None if the directory is not on this machine."""
        if directory not in self._locations:
            is_here = await asyncio.to_thread(Path(directory).is_dir)
            self._locations[directory] = await discover(Path(directory)) if is_here else None
        return self._locations[directory]

    async def _location(self, history: SessionHistory) -> Location:
        """With the project that the server finds for the directory. The source's, if there is no such directory."""
        directory, found = history.info.directory, await self._find(history.info.directory)
        if found is None:
            return Location(directory, history.info.project_id, "/", is_git=history.info.project_id != NO_PROJECT)
        return Location(directory, found.id, str(found.checkout), is_git=found.vcs is not None)

    async def _put_project(self, project_id: str) -> None:
        """One that is stored here already stays as it is."""
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
        session.forget_history()
