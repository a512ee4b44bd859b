"""Projects and their approvals, and what servers agree on about directories."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, LargeBinary, Row, cast, func, select, text

from app.storage.tables import APPROVAL, DIRECTORY_STATE, MESSAGE, PART, PROJECT, SESSION


def bodies_of_projects(connection: Connection, project_ids: Collection[str]) -> list[str]:
    return list(connection.execute(select(PROJECT.c.body).where(PROJECT.c.id.in_(project_ids))).scalars())


def projects(connection: Connection) -> list[str]:
    return list(connection.execute(select(PROJECT.c.body).order_by(PROJECT.c.updated.desc(), PROJECT.c.id)).scalars())


def approvals(connection: Connection, project_id: str) -> list[tuple[str, str]]:
    """(permission, pattern) of every approval in a project."""
    rows = connection.execute(select(APPROVAL.c.permission, APPROVAL.c.pattern).where(APPROVAL.c.project_id == project_id)).all()
    return [(row.permission, row.pattern) for row in rows]


def all_approvals(connection: Connection) -> list[tuple[str, str, str]]:
    """(project_id, permission, pattern), in the order of these."""
    columns = (APPROVAL.c.project_id, APPROVAL.c.permission, APPROVAL.c.pattern)
    rows = connection.execute(select(*columns).order_by(*columns)).all()
    return [(row.project_id, row.permission, row.pattern) for row in rows]


def directory_state(connection: Connection, directory: str, name: str) -> Row[Any] | None:
    of_name = (DIRECTORY_STATE.c.directory == directory, DIRECTORY_STATE.c.name == name)
    return connection.execute(select(DIRECTORY_STATE).where(*of_name)).one_or_none()


_DIRECTORY_STATES = select(DIRECTORY_STATE).order_by(DIRECTORY_STATE.c.revision)


def directory_states(connection: Connection, directory: str) -> Sequence[Row[Any]]:
    """The oldest first."""
    return connection.execute(_DIRECTORY_STATES.where(DIRECTORY_STATE.c.directory == directory)).all()


def directory_states_of(connection: Connection, prefix: str, value: str) -> Sequence[Row[Any]]:
    """Of a value, by the beginning of their name."""
    wanted = (DIRECTORY_STATE.c.name.startswith(prefix, autoescape=True), DIRECTORY_STATE.c.value == value)
    return connection.execute(_DIRECTORY_STATES.where(*wanted)).all()


def directory_states_after(connection: Connection, revision: int) -> Sequence[Row[Any]]:
    return connection.execute(_DIRECTORY_STATES.where(DIRECTORY_STATE.c.revision > revision)).all()


def newest_directory_state(connection: Connection) -> int:
    """A revision; 0 where there are none."""
    return connection.execute(select(func.max(DIRECTORY_STATE.c.revision))).scalar_one_or_none() or 0


def database_bytes(connection: Connection) -> int:
    """The bytes in use, of the whole database."""
    if connection.dialect.name == "sqlite":
        pages = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        return int(connection.execute(text(pages)).scalar_one())
    return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def project_bytes(connection: Connection, project_id: str) -> int:
    """The bytes of the messages and parts of a project's sessions. Reads all of them."""
    sessions = select(SESSION.c.id).where(SESSION.c.project_id == project_id)
    tables = [(MESSAGE.c.body, MESSAGE.c.session_id), (PART.c.body, PART.c.session_id)]
    sums = [select(func.sum(_bytes(connection, body))).where(session_id.in_(sessions)) for body, session_id in tables]
    return sum(connection.execute(query).scalar_one() or 0 for query in sums)


def _bytes(connection: Connection, body: ColumnElement[str]) -> ColumnElement[int]:
    """SQLite has `octet_length` only since 3.43."""
    return func.length(cast(body, LargeBinary)) if connection.dialect.name == "sqlite" else func.octet_length(body)
