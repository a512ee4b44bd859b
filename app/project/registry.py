"""The stored projects."""

from collections.abc import Callable
from typing import TypeVar

import orjson
from pydantic import ValidationError

from app.events.bus.base import Event
from app.project.discovery import NO_PROJECT, ProjectInfo
from app.record import tables
from app.record.engine import Connection, Database
from app.record.repositories import session_rows
from app.record.tables import parsed
from app.record.writer import Tx, Writer
from app.schema.errors import NotFound
from app.schema.event import EventProjectUpdated
from app.schema.project import Project, ProjectCommands, ProjectIcon, ProjectTime
from app.util import clock


class ProjectNotFound(NotFound):
    tag = "ProjectNotFoundError"

    def __init__(self, project_id: str) -> None:
        super().__init__(f"Project not found: {project_id}", projectID=project_id)


class Projects:
    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    async def get(self, project_id: str) -> Project:
        return await self._database.read(lambda connection: _stored(connection, project_id))

    async def find(self, project_id: str) -> Project | None:
        try:
            return await self.get(project_id)
        except NotFound:
            return None

    async def all_json(self) -> bytes:
        bodies = await self._database.read(session_rows.projects)
        return orjson.dumps([project for body in bodies if (project := parsed(body)) is not None])

    async def visible_json(self, may_enter: Callable[[str], bool]) -> bytes:
        """The projects with a checkout in a directory that `may_enter` allows."""
        bodies = await self._database.read(session_rows.projects)
        projects = [Project.model_validate(found) for body in bodies if (found := parsed(body)) is not None]
        shown = [each.with_sandboxes_in(may_enter) for each in projects if each.id != NO_PROJECT]
        return b"[%b]" % b",".join(each.wire_json() for each in shown if may_enter(each.worktree) or each.sandboxes)

    async def register(self, found: ProjectInfo) -> None:
        """Stores the project of a directory in use, and moves to it the directory's sessions from before it was a repository."""
        moved = {"from_project": NO_PROJECT, "in_directory": str(found.checkout), "to_project": found.id}

        def register(tx: Tx) -> None:
            self._put(tx, self._as_found(tx, found))
            if found.id != NO_PROJECT:
                tx.execute(tx.sql.move_sessions, moved)

        await self._writer.commit(register)

    def _as_found(self, tx: Tx, found: ProjectInfo) -> Project:
        now = clock.now_ms()
        try:
            project = _stored(tx.connection, found.id)
        except NotFound:
            project = Project(id=found.id, worktree=str(found.worktree), time=ProjectTime(created=now, updated=now))
        project.worktree, project.vcs, project.time.updated = str(found.worktree), found.vcs, now
        if found.checkout != found.worktree and str(found.checkout) not in project.sandboxes:
            project.sandboxes = [*project.sandboxes, str(found.checkout)]
        return project

    async def add_checkout(self, project_id: str, checkout: str) -> None:
        """Must run before the checkout's directory is used."""

        def add(project: Project) -> None:
            if checkout not in project.sandboxes:
                project.sandboxes = [*project.sandboxes, checkout]

        await self._edit(project_id, add)

    async def remove_checkout(self, project_id: str, checkout: str) -> None:
        def remove(project: Project) -> None:
            project.sandboxes = [path for path in project.sandboxes if path != checkout]

        await self._edit(project_id, remove)

    async def initialized(self, project_id: str) -> None:
        """Notes that the project's AGENTS.md has been written."""

        def note(project: Project) -> None:
            project.time.initialized = project.time.updated = clock.now_ms()

        await self._edit(project_id, note)

    async def update(
        self, project_id: str, *, name: str | None, icon: ProjectIcon | None, commands: ProjectCommands | None
    ) -> Project:
        """What is None stays, also within `icon` and `commands`; an empty text removes what stands there."""

        def update(project: Project) -> None:
            project.name = project.name if name is None else name
            project.icon = _merged(ProjectIcon, project.icon, icon)
            project.commands = _merged(ProjectCommands, project.commands, commands)
            project.time.updated = clock.now_ms()

        return await self._edit(project_id, update)

    async def _edit(self, project_id: str, change: Callable[[Project], None]) -> Project:
        """Reads, changes and stores the project in one transaction. Raises NotFound."""

        def edit(tx: Tx) -> Project:
            project = _stored(tx.connection, project_id)
            before = project.model_copy(deep=True)
            change(project)
            if project != before:
                self._put(tx, project)
            return project

        return await self._writer.commit(edit)

    def _put(self, tx: Tx, project: Project) -> None:
        row = {"id": project.id, "updated": project.time.updated, "body": project.wire_json().decode()}
        tx.put(tx.sql.put_project, row)
        tx.announce(Event.of(EventProjectUpdated(properties=project)))


M = TypeVar("M", ProjectIcon, ProjectCommands)


def _merged(kind: type[M], *layers: M | None) -> M | None:
    fields = {name: text for layer in layers if layer for name, text in layer.wire().items()}
    kept = {name: text for name, text in fields.items() if text}
    return kind(**kept) if kept else None


def _stored(connection: Connection, project_id: str) -> Project:
    """Raises NotFound."""
    body = session_rows.body_of(connection, tables.PROJECT, project_id)
    if body is None:
        raise ProjectNotFound(project_id)
    try:
        return Project.model_validate_json(body)
    except ValidationError as error:
        raise NotFound(f"What is stored of project {project_id} is damaged") from error
