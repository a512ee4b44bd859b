"""The sessions of all projects, the newest updated first, each with its project."""

from collections.abc import Sequence
from typing import Any

import orjson

from app.schema.session import ProjectSummary
from app.session import rows
from app.session.store import SessionsPage, Store
from app.storage.bodies import is_valid_body
from app.storage.engine import Connection
from app.storage.repositories import directory_rows, session_rows
from app.storage.repositories.session_rows import AllSessionsFilter


class AllSessions:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def directories(self, owner: str | None) -> list[str]:
        """In which there are sessions, of one user or of all."""
        return await self._store.query(session_rows.directories_of_sessions, owner)

    async def page(self, wanted: AllSessionsFilter) -> SessionsPage:
        """Its cursor is the time that the sessions of the next page were updated before."""
        found, projects, cursor = await self._store.query(_read, wanted)
        sessions = [_with_project(row, projects) for row in found if is_valid_body(row.body)]
        return SessionsPage(rows.json_array(sessions), cursor)


def _read(connection: Connection, wanted: AllSessionsFilter) -> tuple[Sequence[Any], dict[str, bytes], int | None]:
    found, cursor = session_rows.updated_sessions(connection, wanted)
    bodies = directory_rows.bodies_of_projects(connection, {row.project_id for row in found})
    summaries = [ProjectSummary.model_validate_json(body) for body in bodies if is_valid_body(body)]
    return found, {summary.id: summary.wire_json() for summary in summaries}, cursor


def _with_project(row: Any, projects: dict[str, bytes]) -> bytes:
    return b'%b,"project":%b}' % (row.body.encode()[:-1], projects.get(row.project_id, orjson.dumps(None)))
