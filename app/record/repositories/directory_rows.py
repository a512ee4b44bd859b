"""Projects and their approvals, and what servers agree on about directories."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, LargeBinary, Row, bindparam, cast, func, select

from app.record.tables import APPROVAL, DIRECTORY_STATE, MESSAGE, PART, PROJECT, SESSION

# Projects.


def projects(connection: Connection, project_ids: Collection[str] | None = None) -> list[str]:
    """The bodies of some or all projects, the newest used first."""
    query = select(PROJECT.c.body).order_by(PROJECT.c.updated.desc(), PROJECT.c.id)
    if project_ids is not None:
        query = query.where(PROJECT.c.id.in_(project_ids))
    return list(connection.execute(query).scalars())


def project_bytes(connection: Connection, project_id: str) -> int:
    """The bytes of the messages and parts of a project's sessions. Reads all of them."""
    sessions = select(SESSION.c.id).where(SESSION.c.project_id == project_id)
    sums = [select(func.sum(_bytes(connection, of.c.body))).where(of.c.session_id.in_(sessions)) for of in (MESSAGE, PART)]
    return sum(connection.execute(query).scalar_one() or 0 for query in sums)


def _bytes(connection: Connection, body: ColumnElement[str]) -> ColumnElement[int]:
    """SQLite has `octet_length` only since 3.43."""
    return func.length(cast(body, LargeBinary)) if connection.dialect.name == "sqlite" else func.octet_length(body)


def all_approvals(connection: Connection) -> Sequence[Row[Any]]:
    """(project_id, permission, pattern), ordered by these."""
    columns = (APPROVAL.c.project_id, APPROVAL.c.permission, APPROVAL.c.pattern)
    return connection.execute(select(*columns).order_by(*columns)).all()


_APPROVALS = (
    select(APPROVAL).where(APPROVAL.c.project_id == bindparam("project")).order_by(APPROVAL.c.permission, APPROVAL.c.pattern)
)


def approvals(connection: Connection, project_id: str) -> list[tuple[str, str]]:
    """(permission, pattern) of every approval in a project."""
    return [(row.permission, row.pattern) for row in connection.execute(_APPROVALS, {"project": project_id})]


# Directories.

_STATES = select(DIRECTORY_STATE).order_by(DIRECTORY_STATE.c.revision)


def directory_states(connection: Connection, directory: str) -> Sequence[Row[Any]]:
    """Oldest first."""
    return connection.execute(_STATES.where(DIRECTORY_STATE.c.directory == directory)).all()


def directory_state(connection: Connection, directory: str, name: str) -> Row[Any] | None:
    return next((row for row in directory_states(connection, directory) if row.name == name), None)


def directory_states_of(connection: Connection, prefix: str, value: str) -> Sequence[Row[Any]]:
    """The states with this `value` whose names begin with `prefix`."""
    wanted = (DIRECTORY_STATE.c.name.startswith(prefix, autoescape=True), DIRECTORY_STATE.c.value == value)
    return connection.execute(_STATES.where(*wanted)).all()


_NEWER = _STATES.where(DIRECTORY_STATE.c.revision > bindparam("after"))


def directory_states_after(connection: Connection, revision: int) -> Sequence[Row[Any]]:
    return connection.execute(_NEWER, {"after": revision}).all()


def newest_directory_state(connection: Connection) -> int:
    """The newest revision; 0 without states."""
    return connection.execute(select(func.max(DIRECTORY_STATE.c.revision))).scalar_one() or 0
