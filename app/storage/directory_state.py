"""What servers must agree on about the directories that each of them has open: rows with a revision, which the others look for.

A server that works alone needs none of it: `LocalDirectoryStates` stores nothing.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.bus.base import Event
from app.schema.event import AnnouncedEvent
from app.storage.engine import Connection, Database
from app.storage.repositories import directory_rows
from app.storage.statements import Statements
from app.storage.writer import Change, Rows, Writer

EVERYWHERE = ""
"""In place of a directory: all of them."""

DISPOSED = "disposed"
"""A directory's state with this name: it was disposed of."""


@dataclass(frozen=True, slots=True)
class DirectoryState:
    directory: str
    name: str
    value: str
    revision: int


class DirectoryStates(Protocol):
    """Its coroutines raise StorageError."""

    is_shared: bool
    """Whether there may be other servers."""

    def announce(self, directory: str, event: AnnouncedEvent) -> Awaitable[None]:
        """To the clients of all servers. Need not be awaited."""
        ...

    def announce_change(self, directory: str, name: str, value: str, event: AnnouncedEvent, *, seen: bool = True) -> object:
        """Of something that each server observes: announced once, by the first that stores the new value. `seen`: this server
        saw it change; else it is announced if another value is stored."""

    async def put(self, directory: str, name: str, value: str = "") -> None:
        """Other servers find it among their `changes`."""

    async def dispose(self, directory: str, prefix: str, event: AnnouncedEvent) -> None:
        """Announces that a directory is disposed of, tells the other servers, and deletes its states that begin with `prefix`."""

    async def in_directory(self, directory: str) -> Sequence[DirectoryState]: ...

    async def find(self, prefix: str, value: str) -> DirectoryState | None:
        """The state of this value whose name begins with `prefix`."""

    async def changes(self) -> Sequence[DirectoryState]:
        """What other servers have put since the last call, the oldest first; nothing the first time."""


class LocalDirectoryStates:
    is_shared = False

    def __init__(self, announce: Callable[[str, AnnouncedEvent], Awaitable[None]]) -> None:
        self._announce = announce

    def announce(self, directory: str, event: AnnouncedEvent) -> Awaitable[None]:
        return self._announce(directory, event)

    def announce_change(self, directory: str, name: str, value: str, event: AnnouncedEvent, *, seen: bool = True) -> object:
        return self._announce(directory, event) if seen else None

    async def put(self, directory: str, name: str, value: str = "") -> None:
        pass

    async def dispose(self, directory: str, prefix: str, event: AnnouncedEvent) -> None:
        await self._announce(directory, event)

    async def in_directory(self, directory: str) -> Sequence[DirectoryState]:
        return []

    async def find(self, prefix: str, value: str) -> DirectoryState | None:
        return None

    async def changes(self) -> Sequence[DirectoryState]:
        return []


class SharedDirectoryStates:
    """Of the servers of one database; `server` is this one's name."""

    is_shared = True

    def __init__(self, database: Database, sql: Statements, writer: Writer, server: str) -> None:
        self._database = database
        self._sql = sql
        self._writer = writer
        self._server = server
        self._known: int | None = None
        """The newest revision that `changes` has seen."""

    def announce(self, directory: str, event: AnnouncedEvent) -> Awaitable[None]:
        return self._writer.announce(directory, event)

    def announce_change(self, directory: str, name: str, value: str, event: AnnouncedEvent, *, seen: bool = True) -> object:
        announced = Event.of(event, directory)
        change = Change(events=[announced])

        def compare_and_set(connection: Connection) -> None:
            stored = directory_rows.directory_state(connection, directory, name)
            is_new = seen if stored is None else stored.value != value
            change.events[:] = [announced] if is_new else []
            if stored is None or is_new:
                connection.execute(self._sql.put_directory_state, [self._row(directory, name, value)])

        change.work = compare_and_set
        return self._writer.post(change)

    async def put(self, directory: str, name: str, value: str = "") -> None:
        await self._writer.commit(Change([self._put(directory, name, value)]))

    async def dispose(self, directory: str, prefix: str, event: AnnouncedEvent) -> None:
        outdated = (self._sql.delete_directory_states, [{"of_directory": directory, "prefix": prefix}])
        await self._writer.commit(Change([self._put(directory, DISPOSED, ""), outdated], [Event.of(event, directory)]))

    async def in_directory(self, directory: str) -> Sequence[DirectoryState]:
        return await self._read(lambda connection: directory_rows.directory_states(connection, directory))

    async def find(self, prefix: str, value: str) -> DirectoryState | None:
        found = await self._read(lambda connection: directory_rows.directory_states_of(connection, prefix, value))
        return found[0] if found else None

    async def changes(self) -> Sequence[DirectoryState]:
        if self._known is None:
            self._known = await self._database.read(directory_rows.newest_directory_state)
            return []
        known = self._known
        rows = await self._database.read(lambda connection: directory_rows.directory_states_after(connection, known))
        self._known = max([known, *(row.revision for row in rows)])
        return [_state(row) for row in rows if row.server != self._server]

    async def _read(self, query: Callable[[Connection], Sequence[Any]]) -> list[DirectoryState]:
        return [_state(row) for row in await self._database.read(query)]

    def _put(self, directory: str, name: str, value: str) -> tuple[Any, Rows]:
        return self._sql.put_directory_state, [self._row(directory, name, value)]

    def _row(self, directory: str, name: str, value: str) -> Mapping[str, str]:
        return {"directory": directory, "name": name, "value": value, "server": self._server}


def _state(row: Any) -> DirectoryState:
    return DirectoryState(row.directory, row.name, row.value, row.revision)
