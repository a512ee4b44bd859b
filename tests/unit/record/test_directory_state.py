"""What servers of one database must agree on about directories."""

from typing import Any

import orjson
import pytest
from storage_parts import Storage

from app.record.directory_state import DISPOSED, DirectoryStates
from app.record.tables import DIRECTORY_STATE
from app.schema.event import BranchName, EventServerInstanceDisposed, EventVcsBranchUpdated, OfDirectory


@pytest.fixture
def servers(storage: Storage) -> list[DirectoryStates]:
    return [DirectoryStates(storage.database, storage.writer, name) for name in "abc"]


def see(server: DirectoryStates, name: str, **options: bool) -> None:
    server.announce_change("/d", "branch", name, EventVcsBranchUpdated(properties=BranchName(branch=name)), **options)


async def announced(storage: Storage) -> list[dict[str, Any]]:
    await storage.writer.barrier()
    return [orjson.loads(event.payload)["properties"] for event in storage.bus.events]


async def names(server: DirectoryStates) -> list[tuple[str, str, str]]:
    return [(state.directory, state.name, state.value) for state in await server.changes()]


async def test_each_server_finds_what_the_others_have_put_since_it_looked_last(servers: list[DirectoryStates]) -> None:
    a, b, c = servers
    await a.put("/d", "before", "1")
    assert [await names(server) for server in servers] == [[], [], []]
    await a.put("/d", "mcp x", "off")
    await b.put("/e", "configuration")
    assert await names(a) == [("/e", "configuration", "")]
    assert await names(b) == [("/d", "mcp x", "off")]
    await a.put("/d", "mcp x", "on")
    assert await names(c) == [("/e", "configuration", ""), ("/d", "mcp x", "on")], "an older value is not told any more"
    assert await names(c) == []
    assert [(state.name, state.value) for state in await b.in_directory("/d")] == [("before", "1"), ("mcp x", "on")]


async def test_a_disposal_is_found_and_deletes_what_was_chosen(storage: Storage, servers: list[DirectoryStates]) -> None:
    a, b, _ = servers
    await b.changes()
    for name, directory in (("branch", "/d"), ("mcp x", "/d"), ("mcp x", "/e"), ("mcp y", "/d")):
        await a.put(directory, name, "v")
    await b.changes()
    await a.dispose("/d", "mcp ", EventServerInstanceDisposed(properties=OfDirectory(directory="/d")))
    assert await names(b) == [("/d", DISPOSED, "")]
    assert [state.name for state in await b.in_directory("/d")] == ["branch", DISPOSED]
    assert [state.name for state in await b.in_directory("/e")] == ["mcp x"]
    assert await announced(storage) == [{"directory": "/d"}]
    await a.put("/d", "mcp z", "v")
    assert await names(b) == [("/d", "mcp z", "v")], "its revision is a new one although the newest rows are gone"


async def test_what_several_servers_see_is_announced_once(storage: Storage, servers: list[DirectoryStates]) -> None:
    for name in ("main", "other", "main"):
        for server in servers:
            see(server, name)
        await storage.writer.barrier()
    assert [event["branch"] for event in await announced(storage)] == ["main", "other", "main"]


async def test_what_a_server_finds_at_first_is_announced_if_another_was_known(
    storage: Storage, servers: list[DirectoryStates]
) -> None:
    a, b, c = servers
    see(a, "main", seen=False)
    assert await announced(storage) == [], "nobody has known another"
    see(b, "other", seen=False)
    see(c, "other")
    see(a, "other")
    assert await announced(storage) == [{"branch": "other"}]


async def test_a_server_that_works_alone_stores_nothing(storage: Storage) -> None:
    states = DirectoryStates(storage.database, storage.writer, None)
    see(states, "main", seen=False)
    see(states, "main")
    await states.put("/d", "configuration")
    assert (await announced(storage), await states.in_directory("/d")) == ([{"branch": "main"}], [])
    assert await storage.count(DIRECTORY_STATE) == 0
