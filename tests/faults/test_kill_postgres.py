"""A server on PostgreSQL is killed (-9) within a turn and followed at once by another, which has its heartbeat alone to go by."""

import time
from pathlib import Path
from typing import Any

import pytest
from figures import Figure
from killable import Client, Servers
from long_form import SLACK
from postgres import PostgresServer, migrated
from turns import assert_finished, bash, say, texts, tools

RECOVERED_WITHIN = 9.0
LOOKED_WITHIN = 3.0 * SLACK
"""Of a start that takes longer than it takes a lease to be stale."""


@pytest.fixture
def servers(tmp_path: Path, postgres: PostgresServer) -> Servers:
    made = Servers(tmp_path, OPENSESSION_DATABASE_URL=migrated(postgres))
    made.configure({"permission": {"bash": {"*": "allow", "make *": "ask"}}})
    return made


async def messages(client: Client, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await client.get(f"/session/{session}/message")
    return found


async def test_what_a_killed_server_left_is_recovered_when_its_leases_are_stale(servers: Servers, figure: Figure) -> None:
    servers.play([[bash("echo ran >> log.txt; echo sh''own; sleep 60")], [bash("make asked")]])
    async with servers.start() as client:
        cut, asking = [await client.session() for _ in range(2)]
        await client.prompt(cut, path="prompt_async")
        await client.condition(f"/session/{cut}/message", lambda found: "shown" in str(found))
        await client.prompt(asking, path="prompt_async")
        (request,) = await client.condition("/permission", bool)
    killed = time.monotonic()
    servers.play([[say("Anew.")], [say("Went on.")]])
    async with servers.start() as client:
        answers = time.monotonic() - killed
        assert await client.get("/permission") == [request]
        await client.condition(f"/session/{cut}/message", lambda found: texts(found[-1]) == ["Anew."])
        await client.condition("/session/status", lambda found: list(found) == [asking])
        took = time.monotonic() - killed
        assert took < max(RECOVERED_WITHIN, answers + LOOKED_WITHIN)
        await client.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await client.idle()
        for session in (cut, asking):
            assert_finished(await messages(client, session))
        assert texts((await messages(client, asking))[-1]) == ["Went on."]
        assert tools(await messages(client, cut))[0]["state"]["error"] == "[Tool execution was interrupted]"
        assert (servers.workspace / "log.txt").read_text().split() == ["ran"]
        assert await client.get("/permission") == []
    figure(f"gone on with, and asked again, {took:.1f} s after the kill; the next server answered after {answers:.1f} s")
