"""The sessions of all projects, the newest updated first, each with its project."""

from collections.abc import Sequence
from typing import Any

import orjson

from app.schema.session import ProjectSummary
from app.session import rows
from app.session.store import SessionsPage, Store
from app.storage.bodies import parsed
from app.storage.engine import Connection
from app.storage.repositories import directory_rows, session_rows
from app.storage.repositories.session_rows import SessionFilter


class AllSessions:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def directories(self, owner: str | None) -> list[str]:
        """In which there are sessions, of one user or of all."""
        return await self._store.query(session_rows.directories_of_sessions, owner)

    async def page(self, wanted: SessionFilter, limit: int) -> SessionsPage:
        """Its cursor is the time that the sessions of the next page were updated before."""
        found, projects, cursor = await self._store.query(_read, wanted, limit)
        sessions = rows.session_values(found)
        return SessionsPage(
            orjson.dumps([{**session, "project": projects.get(session["projectID"])} for session in sessions]), cursor
        )


def _read(
    connection: Connection, wanted: SessionFilter, limit: int
) -> tuple[Sequence[Any], dict[str, dict[str, Any]], int | None]:
    found, cursor = session_rows.updated_sessions(connection, wanted, limit)
    projects = [parsed(body) for body in directory_rows.projects(connection, {row.project_id for row in found})]
    summaries = [ProjectSummary.model_validate(project) for project in projects if project is not None]
    return found, {summary.id: summary.wire() for summary in summaries}, cursor
