"""kill -9 in the middle of turns: a client of the second API that comes back has each event of its session once."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx2
from killable import Client, Servers
from long_form import LONG

KILLS = 20 if LONG else 3
TURN = [{"text": "one two three four five", "chunks": 10, "delay": 0.02}]


def turn(number: int) -> list[list[dict[str, Any]]]:
    read = {"tool": "read", "args": {"filePath": "a.txt", "limit": number + 1}}
    return [[*TURN, read], TURN]


async def listen(client: Client, session: str, heard: list[dict[str, Any]]) -> None:
    """Until the connection breaks, behind the last event that was heard."""
    after = heard[-1]["durable"]["seq"] if heard else 0
    try:
        async with client.http.stream("GET", f"/api/session/{session}/event?after={after}") as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    heard.append(json.loads(line[len("data: ") :]))
    except httpx2.HTTPError:
        return


async def history(client: Client, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        after = found[-1]["durable"]["seq"] if found else 0
        page = await client.get(f"/api/session/{session}/history?after={after}")
        found += page["data"]
        if not page["hasMore"]:
            return found


async def test_what_a_client_has_heard_stays_and_what_follows_comes_once(tmp_path: Path) -> None:
    servers, heard = Servers(tmp_path), []
    chance, session = random.Random(7), ""
    for number in range(KILLS):
        servers.play(turn(number))
        async with servers.start() as client:
            session = session or str((await client.post("/api/session"))["data"]["id"])
            listening = asyncio.create_task(listen(client, session, heard))
            known, begun = len(heard), chance.randrange(1, 8)
            await client.post(f"/api/session/{session}/prompt", {"prompt": {"text": f"Prompt {number}"}})
            await client.condition("/api/session/active", lambda _, least=known + begun: len(heard) >= least)
            client.process.kill()
            await listening
    servers.play([TURN] * 2 * KILLS)
    async with servers.start() as client:
        listening = asyncio.create_task(listen(client, session, heard))
        assert (await client.http.post(f"/api/session/{session}/wait")).status_code == 204
        whole = await history(client, session)
        messages = (await client.get(f"/api/session/{session}/message?order=asc&limit=200"))["data"]
        await client.condition("/api/session/active", lambda _: len(heard) >= len(whole))
        client.process.kill()
        await listening
    seqs = [event["durable"]["seq"] for event in heard]
    assert seqs == sorted(set(seqs))
    of_whole = {event["durable"]["seq"]: event for event in whole}
    assert [seq for seq in seqs if seq in of_whole] == list(of_whole), (
        "what is still said of the messages was heard, in its order"
    )
    prompted = [event["data"]["prompt"]["text"] for event in heard if event["type"] == "session.next.prompted"]
    assert prompted == [f"Prompt {number}" for number in range(KILLS)]
    ended = {
        event["data"]["assistantMessageID"]
        for event in whole
        if event["type"].startswith("session.next.step.") and "started" not in event["type"]
    }
    assert ended == {message["id"] for message in messages if message["type"] == "assistant"}
