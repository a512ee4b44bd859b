"""The second API from anywhere: what happens in a session on one replica is told, steered and ended on the others."""

import asyncio
import json
from typing import Any

from killable import Client
from prompted_model import play
from replica_turns import eventually, streaming
from replicas import Replicas
from turns import bash


async def create(client: Client) -> str:
    return str((await client.post("/api/session"))["data"]["id"])


async def prompt(client: Client, session: str, text: str, **fields: Any) -> dict[str, Any]:
    admitted: dict[str, Any] = (await client.post(f"/api/session/{session}/prompt", {"prompt": {"text": text}, **fields}))["data"]
    return admitted


async def history(client: Client, session: str) -> list[dict[str, Any]]:
    return list((await client.get(f"/api/session/{session}/history"))["data"])


async def listen(client: Client, session: str, heard: list[dict[str, Any]]) -> None:
    async with client.http.stream("GET", f"/api/session/{session}/event") as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                heard.append(json.loads(line[len("data: ") :]))


async def test_all_replicas_tell_the_same_events_with_the_same_numbers(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    session = await create(a)
    heard: list[dict[str, Any]] = []
    listening = asyncio.create_task(listen(b, session, heard))
    await prompt(a, session, play([bash("echo hi")]))
    await c.post(f"/api/session/{session}/wait")
    whole = await history(c, session)
    await eventually(lambda: len(heard) >= len(whole))
    listening.cancel()
    assert heard == whole == await history(a, session) == await history(b, session)
    assert whole[-1]["type"] == "session.next.step.ended"


async def test_a_turn_is_shown_as_active_and_interrupted_on_another_replica(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    session = await create(a)
    await prompt(a, session, streaming("interrupted"))
    assert session in (await b.get("/api/session/active"))["data"]
    queued = await prompt(b, session, "Later", delivery="queue", id="msg_later")
    assert await prompt(c, session, "Later", delivery="queue", id="msg_later") == queued
    await c.post(f"/api/session/{session}/interrupt")
    replicas.model.release("interrupted")
    await b.post(f"/api/session/{session}/wait")
    assert session not in (await b.get("/api/session/active"))["data"]
    found = (await c.get(f"/api/session/{session}/message?order=asc"))["data"]
    assert [message["type"] for message in found] == ["user", "assistant", "user", "assistant"]
    assert found[1]["finish"] == "error" and found[2]["id"] == "msg_later"
