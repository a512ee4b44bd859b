"""The states of directories that servers must agree on: rows with a revision, by which a server finds those of others."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.events.bus.base import Event
from app.record.engine import Connection, Database
from app.record.repositories import directory_rows
from app.record.writer import Tx, Writer
from app.schema.event import AnnouncedEvent

EVERYWHERE = ""
"""Instead of a directory: all directories."""

DISPOSED = "disposed"
"""The state with this name says that the directory was disposed of."""


@dataclass(frozen=True, slots=True)
class DirectoryState:
    directory: str
    name: str
    value: str
    revision: int


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
            stored = directory_rows.directory_state(tx.connection, directory, name)
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
        return await self._read(lambda connection: directory_rows.directory_states(connection, directory))

    async def find(self, prefix: str, value: str) -> DirectoryState | None:
        """The state of this value whose name begins with `prefix`."""
        found = await self._read(lambda connection: directory_rows.directory_states_of(connection, prefix, value))
        return found[0] if found else None

    async def changes(self) -> Sequence[DirectoryState]:
        """The states that other servers have put since the last call, oldest first; none the first time."""
        if self._known is None:
            self._known = await self._database.read(directory_rows.newest_directory_state)
            return []
        known = self._known
        rows = await self._database.read(lambda connection: directory_rows.directory_states_after(connection, known))
        self._known = max([known, *(row.revision for row in rows)])
        return [_state(row) for row in rows if row.server != self._server]

    async def _read(self, query: Callable[[Connection], Sequence[Any]]) -> list[DirectoryState]:
        return [_state(row) for row in await self._database.read(query)] if self.is_shared else []

    def _put(self, tx: Tx, directory: str, name: str, value: str) -> None:
        row = {"directory": directory, "name": name, "value": value, "server": self._server}
        tx.execute(tx.sql.put_directory_state, row)


def _state(row: Any) -> DirectoryState:
    return DirectoryState(row.directory, row.name, row.value, row.revision)
