"""The states of directories that servers must agree on: rows with a revision, by which a server finds those of others."""

from collections.abc import Awaitable, Sequence
from typing import Any

from sqlalchemy import Row, Select, bindparam, func, select

from app.events.bus.base import Event
from app.record.engine import Database
from app.record.tables import DIRECTORY_STATE
from app.record.writer import Tx, Writer
from app.schema.event import AnnouncedEvent

EVERYWHERE = ""
"""Instead of a directory: all directories."""

DISPOSED = "disposed"
"""The state with this name says that the directory was disposed of."""

DirectoryState = Row[Any]
"""A row of `directory_state`."""

_NEWEST = select(func.coalesce(func.max(DIRECTORY_STATE.c.revision), 0))
_STATES = select(DIRECTORY_STATE).order_by(DIRECTORY_STATE.c.revision)
_NEWER = _STATES.where(DIRECTORY_STATE.c.revision > bindparam("after"))


class DirectoryStates:
    """The states that the servers of one database share. Its coroutines raise StorageError. `server`: this one's name; None if it
    works alone, and stores nothing."""

    def __init__(self, database: Database, writer: Writer, server: str | None) -> None:
        self._database = database
        self._writer = writer
        self._server = server
        self._known: int | None = None
        """The newest revision that `changes` has seen."""

    @property
    def is_shared(self) -> bool:
        """Whether there may be other servers."""
        return self._server is not None

    def announce(self, directory: str, event: AnnouncedEvent) -> Awaitable[None]:
        """Announces to the clients of all servers. Need not be awaited."""
        return self._writer.announce(directory, event)

    def announce_change(self, directory: str, name: str, value: str, event: AnnouncedEvent, *, seen: bool = True) -> None:
        """Announces, once for all servers, a change that each of them observes: the first to store the new value does. `seen`:
        announce it even if nothing was stored before, because this server saw it change."""

        def compare_and_set(tx: Tx) -> None:
            of_name = _STATES.where(DIRECTORY_STATE.c.directory == directory, DIRECTORY_STATE.c.name == name)
            stored = tx.connection.execute(of_name).one_or_none()
            is_new = seen if stored is None else stored.value != value
            if stored is None or is_new:
                self._put(tx, directory, name, value)
            if is_new:
                tx.announce(Event.of(event, directory))

        if self.is_shared:
            self._writer.post(compare_and_set)
        elif seen:
            self.announce(directory, event)

    async def put(self, directory: str, name: str, value: str = "") -> None:
        """Other servers find the state among their `changes`."""
        if self.is_shared:
            await self._writer.commit(lambda tx: self._put(tx, directory, name, value))

    async def dispose(self, directory: str, prefix: str, event: AnnouncedEvent) -> None:
        """Announces that a directory is disposed of, notifies other servers, and deletes its states that begin with `prefix`."""

        def dispose(tx: Tx) -> None:
            if self.is_shared:
                self._put(tx, directory, DISPOSED, "")
                tx.execute(tx.sql.delete_directory_states, {"of_directory": directory, "prefix": prefix})
            tx.announce(Event.of(event, directory))

        await self._writer.commit(dispose)

    async def in_directory(self, directory: str) -> Sequence[DirectoryState]:
        """Oldest first."""
        return await self._read(_STATES.where(DIRECTORY_STATE.c.directory == directory))

    async def find(self, prefix: str, value: str) -> DirectoryState | None:
        """The state of this value whose name begins with `prefix`."""
        wanted = (DIRECTORY_STATE.c.name.startswith(prefix, autoescape=True), DIRECTORY_STATE.c.value == value)
        return next(iter(await self._read(_STATES.where(*wanted))), None)

    async def changes(self) -> Sequence[DirectoryState]:
        """The states that other servers have put since the last call, oldest first; none the first time."""
        if self._known is None:
            self._known = await self._database.read(lambda connection: connection.execute(_NEWEST).scalar_one())
            return []
        after = {"after": self._known}
        rows = await self._database.read(lambda connection: connection.execute(_NEWER, after).all())
        self._known = max([self._known, *(row.revision for row in rows)])
        return [row for row in rows if row.server != self._server]

    async def _read(self, query: Select[Any]) -> Sequence[DirectoryState]:
        return await self._database.read(lambda connection: connection.execute(query).all()) if self.is_shared else []

    def _put(self, tx: Tx, directory: str, name: str, value: str) -> None:
        row = {"directory": directory, "name": name, "value": value, "server": self._server}
        tx.execute(tx.sql.put_directory_state, row)
