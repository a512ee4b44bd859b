"""Turns on one replica that stay where a test wants them, for the tests that meet them from another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from killable import PATIENCE, Client
from prompted_model import play
from replicas import Replicas
from turns import bash, call, say

Message = dict[str, Any]

OPTIONS = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
QUESTION = call("question", questions=[{"question": "Which?", "header": "Which", "options": OPTIONS}])


async def new_session(client: Client, **fields: Any) -> str:
    """With a title, so that none is made."""
    return str((await client.post("/session", {"title": "T", **fields}))["id"])


async def messages(client: Client, session: str) -> list[Message]:
    return await client.get(f"/session/{session}/message")


async def request(client: Client, method: str, path: str, body: Any = None) -> int:
    """The status of the answer."""
    return (await client.http.request(method, path, json={} if body is None and method != "GET" else body)).status_code


async def wait_until_stored(client: Client, session: str, text: str) -> None:
    await client.condition(f"/session/{session}/message", lambda found: text in str(found[1:]))


async def idle_everywhere(clients: list[Client]) -> None:
    for client in clients:
        await client.idle()


def streaming(hold: str) -> str:
    """A prompt: the answer is held in its middle."""
    return play([say("Half of it,", chunks=1), {"hold": hold}, say(" and the rest.", chunks=1)])


def waits(name: str) -> str:
    """A command that notes that it ran, and ends when it may go on."""
    return f"echo {name} >> log.txt; echo began {name}; for i in $(seq 1200); do [ -e go-{name} ] && break; sleep 0.05; done"


def let_go(replicas: Replicas, name: str) -> None:
    (replicas.workspace / f"go-{name}").touch()


@asynccontextmanager
async def tool_running(
    replicas: Replicas, client: Client, name: str, session: str | None = None
) -> AsyncIterator[tuple[str, asyncio.Task[Any]]]:
    """A session, a new one unless it is named, whose command runs until the block ends, and its prompt's answer."""
    session = session or await new_session(client)
    answering = asyncio.create_task(client.prompt(session, play([bash(waits(name))], [say()])))
    try:
        await wait_until_stored(client, session, f"began {name}")
        yield session, answering
    finally:
        let_go(replicas, name)
        await asyncio.wait({answering}, timeout=PATIENCE)
        answering.cancel()


async def asked(client: Client, session: str, kind: str = "permission") -> dict[str, Any]:
    """The request that the session waits for."""
    found = await client.condition(f"/{kind}", lambda found: any(one["sessionID"] == session for one in found))
    return next(one for one in found if one["sessionID"] == session)


def ran(replicas: Replicas, name: str) -> int:
    """How often a command noted that it ran."""
    log = replicas.workspace / "log.txt"
    return log.read_text().split().count(name) if log.exists() else 0
