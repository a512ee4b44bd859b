"""Events from anywhere: what one replica commits the clients of all hear once, in one order, also by the second API."""

import asyncio
import json
import time
from statistics import quantiles
from typing import Any

from figures import Figure
from journal_checks import not_heard
from killable import Client
from long_form import LONG, SLACK
from polling import until
from prompted_model import play
from replica_turns import messages, new_session, request, streaming
from replicas import Replicas
from turns import bash, say, texts

from app.users.tokens import TokenStore

ROUNDS = 40 if LONG else 10
FOREIGN_P95 = 0.15 * SLACK
"""Seconds from an event at the replica that works to the same event at another one's client."""


async def test_events_are_heard_on_all_replicas_with_the_same_ids_in_the_same_order(
    replicas: Replicas, clients: list[Client], figure: Figure
) -> None:
    async with replicas.followers("full", "delta") as followers:
        await asyncio.gather(*(_many_turns(client) for client in clients for _ in range(2)))
        assert await not_heard(replicas, followers) == []
        stored = replicas.head() - (followers[0].start or 0)
        heard = [{one.id: one.at for one in follower.events} for follower in followers]
    late = [max(times[key] for times in heard) - min(times[key] for times in heard) for key in heard[0]]
    p95 = quantiles(late, n=20)[-1]
    figure(f"{stored} events, {len(followers)} clients: 0 missed, 0 twice; first to last client p95 {p95 * 1000:.0f} ms")


async def _many_turns(client: Client) -> None:
    session = await new_session(client)
    for number in range(ROUNDS // 5):
        await client.prompt(session, play([bash(f"echo {number}")], [say("Said so.", chunks=4, delay=0.01)]))


async def test_deltas_are_heard_on_all_replicas(replicas: Replicas, clients: list[Client], figure: Figure) -> None:
    text = " ".join(f"word {number}" for number in range(40))
    async with replicas.followers("full", "delta") as followers:
        session = await new_session(clients[0])
        began = time.monotonic()
        answer = await clients[0].prompt(session, play([say(text, chunks=40, delay=0.05)]))
        took = time.monotonic() - began
        (part,) = [part["id"] for part in answer["parts"] if part["type"] == "text"]
        await until(lambda: all(follower.texts.get(part) == text for follower in followers), seconds=5)
        first = [follower.first_texts[part] - began for follower in followers]
    late = [one - min(first) for one in first]
    figure(f"an answer of {took:.1f} s: its first text heard at most {max(late) * 1000:.0f} ms later by another's client")
    assert max(late) < 1.0 * SLACK


async def test_commits_are_heard_by_clients_of_other_replicas_at_once(
    replicas: Replicas, clients: list[Client], figure: Figure
) -> None:
    session, late = await new_session(clients[0]), []
    async with replicas.followers() as followers:
        for number in range(3 * ROUNDS):
            await clients[0].http.patch(f"/session/{session}", json={"title": str(number)})
            acknowledged = time.monotonic()
            upto = replicas.head()
            await until(lambda upto=upto: all(follower.cursor >= upto for follower in followers), seconds=10)
            times = [next(one.at for one in follower.events if one.id == upto) for follower in followers]
            late.append(max(times) - acknowledged)
    p95 = quantiles(late, n=20)[-1]
    figure(f"commit → another replica's client: p50 {sorted(late)[len(late) // 2] * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms")
    assert p95 < FOREIGN_P95


async def test_a_page_is_never_older_than_what_a_stream_has_shown(
    replicas: Replicas, clients: list[Client], figure: Figure
) -> None:
    """At each event of A's stream, B and C are asked for what it tells of."""
    a, *others = clients
    session, reads, older = await new_session(a), 0, 0
    turns = [*([bash(f"echo {number}")] for number in range(ROUNDS // 2)), [say("Done.")]]
    async with replicas.followers() as followers:
        answering, shown_to = asyncio.create_task(a.prompt(session, play(*turns))), 0
        while not answering.done() or shown_to < len(followers[0].events):
            events, shown_to = followers[0].events[shown_to:], len(followers[0].events)
            told = [heard.event["properties"]["part"] for heard in events if "part" in heard.event["properties"]]
            parts = {part["id"]: part for part in told}
            for other in others if parts else ():
                read = {part["id"]: part for message in await messages(other, session) for part in message["parts"]}
                reads += 1
                older += any(key not in read or _progress(read[key]) < _progress(part) for key, part in parts.items())
            await asyncio.sleep(0.001)
        assert texts(await answering) == ["Done."]
    figure(f"{reads} pages read on other replicas, {older} of them older than the stream")
    assert older == 0 and reads


def _progress(part: dict[str, Any]) -> int:
    return ["pending", "running", "completed", "error"].index(part["state"]["status"]) if part["type"] == "tool" else 0


async def test_a_client_moves_between_replicas_and_misses_nothing(
    replicas: Replicas, clients: list[Client], figure: Figure
) -> None:
    """It goes on at the next replica with the id of the last event that it has, while turns run on all."""
    async with replicas.followers() as followers:
        working = asyncio.gather(*(_many_turns(client) for client in clients))
        ids, cursor, moves = [], str(followers[0].start), 0
        while not working.done() or int(cursor) < replicas.head():
            async for found in _a_few_events(clients[moves % 3], cursor):
                ids.append(found)
                cursor = str(found)
            moves += 1
        await working
        stored = [seq for seq, _ in replicas.journal(followers[0].start or 0, int(cursor))]
    figure(f"{moves} moves, {len(stored)} events: {len(set(stored) - set(ids))} missed, {len(ids) - len(set(ids))} twice")
    assert ids == stored


async def _a_few_events(client: Client, cursor: str) -> Any:
    """At most ten, and none that takes longer than a moment."""
    left = 10
    async with client.http.stream("GET", "/event", headers={"last-event-id": cursor}) as response:
        lines = response.aiter_lines()
        while left:
            try:
                line = await asyncio.wait_for(anext(lines), 0.5)
            except (TimeoutError, StopAsyncIteration):
                return
            if line.startswith("id: "):
                left -= 1
                yield int(line[4:])


async def listen(client: Client, session: str, heard: list[dict[str, Any]]) -> None:
    async with client.http.stream("GET", f"/api/session/{session}/event") as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                heard.append(json.loads(line[len("data: ") :]))


async def test_all_replicas_tell_the_same_events_with_the_same_numbers(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    session = (await a.post("/api/session"))["data"]["id"]
    heard: list[dict[str, Any]] = []
    listening = asyncio.create_task(listen(b, session, heard))
    await a.post(f"/api/session/{session}/prompt", {"prompt": {"text": play([bash("echo hi")])}})
    await c.post(f"/api/session/{session}/wait")
    whole, *others = [(await client.get(f"/api/session/{session}/history"))["data"] for client in (c, a, b)]
    await until(lambda: len(heard) >= len(whole))
    listening.cancel()
    assert heard == whole and others == [whole] * 2
    assert whole[-1]["type"] == "session.next.step.ended"


async def test_a_turn_is_shown_as_active_and_interrupted_on_another_replica(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    session = (await a.post("/api/session"))["data"]["id"]
    path, later = f"/api/session/{session}/prompt", {"prompt": {"text": "Later"}, "delivery": "queue", "id": "msg_later"}
    await a.post(path, {"prompt": {"text": streaming("interrupted")}})
    assert session in (await b.get("/api/session/active"))["data"]
    assert (await b.post(path, later))["data"] == (await c.post(path, later))["data"]
    await c.post(f"/api/session/{session}/interrupt")
    replicas.model.release("interrupted")
    await b.post(f"/api/session/{session}/wait")
    assert session not in (await b.get("/api/session/active"))["data"]
    found = (await c.get(f"/api/session/{session}/message?order=asc"))["data"]
    assert [message["type"] for message in found] == ["user", "assistant", "user", "assistant"]
    assert found[1]["finish"] == "error" and found[2]["id"] == "msg_later"


# The logins.


async def test_logins_made_through_one_replica_are_valid_on_all(replicas: Replicas) -> None:
    """Tokens of clients are files of the volume, those of event streams rows. A server that was closed by a token does not open
    by itself, so they end with this test, the last one."""
    tokens = TokenStore(replicas.directory / "data")
    token = tokens.create("anywhere")
    header = {"Authorization": f"Bearer {token}"}
    try:
        async with replicas.clients() as clients:
            a, b, _ = clients
            assert [await request(client, "GET", "/session") for client in clients] == [401] * 3
            given = await asyncio.gather(*(client.http.get("/session", headers=header) for client in clients))
            assert [response.status_code for response in given] == [200] * 3
            issued = (await a.http.post("/auth/event-token", headers=header)).json()["token"]
            opened = [await _stream_status(client, issued) for client in (b, *clients)]
            assert opened == [200, 401, 401, 401]
            tokens.revoke("anywhere")
            given = await asyncio.gather(*(client.http.get("/session", headers=header) for client in clients))
            assert [response.status_code for response in given] == [401] * 3
    finally:
        (replicas.directory / "data" / "tokens.json").unlink()
        replicas.end()


async def _stream_status(client: Client, token: str) -> int:
    async with client.http.stream("GET", f"/event?token={token}") as response:
        return response.status_code
