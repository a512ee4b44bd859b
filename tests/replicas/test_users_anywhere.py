"""Users of several servers: what is whose holds on each of them at once."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
from prompted_model import play
from replicas import Replica, Replicas
from sse_reader import EventReader
from turns import say

SECRET = "marked-secret-of-anna"


def opensession(replicas: Replicas, *arguments: str) -> str:
    command = [sys.executable, "-m", "app.cli", *arguments]
    done = subprocess.run(
        command, env=replicas.all[0].environment, cwd=replicas.workspace, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def add_users(replicas: Replicas, **roles: str) -> dict[str, str]:
    """A token of each."""
    for name, role in roles.items():
        opensession(replicas, "user", "add", name, "--role", role)
    return {name: opensession(replicas, "token", "create", name, "--user", name) for name in roles}


class UserClient:
    """One user at one replica."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def call(self, method: str, path: str, body: Any = None, *, expect: int = 200) -> Any:
        response = await self.http.request(method, path, json=body)
        assert response.status_code == expect, f"{method} {path}: {response.status_code} {response.text}"
        return json.loads(response.content) if response.content.strip() else None

    @asynccontextmanager
    async def events(self, **query: str) -> AsyncIterator[EventReader]:
        async with self.http.stream("GET", "/global/event", params=query) as response:
            assert response.status_code == 200, response.status_code
            reader = EventReader(response)
            try:
                await reader.until("server.connected")
                yield reader
            finally:
                await reader.close()


@asynccontextmanager
async def at_each(replicas: Replicas, token: str) -> AsyncIterator[list[UserClient]]:
    async with AsyncExitStack() as clients:
        yield [UserClient(await clients.enter_async_context(_client(replica, token))) for replica in replicas.all]


def _client(replica: Replica, token: str) -> httpx2.AsyncClient:
    headers: Mapping[str, str] = {"authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=replica.url, headers=headers, timeout=120)


async def test_a_session_is_its_owners_on_every_server(replicas: Replicas) -> None:
    tokens = await asyncio.to_thread(add_users, replicas, anna="member", bert="member")
    async with at_each(replicas, tokens["anna"]) as anna, at_each(replicas, tokens["bert"]) as bert:
        await anna[0].call("PUT", "/auth/fake", {"type": "api", "key": "sk-of-anna"})
        session = await anna[0].call("POST", "/session", {"title": SECRET})
        path = f"/session/{session['id']}"
        async with anna[2].events() as of_anna, anna[1].events(parts="delta", ids="true") as deltas, bert[2].events() as of_bert:
            prompt = {"parts": [{"type": "text", "text": play([say(f"{SECRET} is told")])}]}
            answer = await anna[1].call("POST", f"{path}/message", prompt)
            assert "error" not in answer["info"] and SECRET in str(answer["parts"]), "her key, stored at another server"
            for stream in (of_anna, deltas):
                await stream.until("session.idle")
            assert SECRET in str(of_anna.seen) and "message.part.updated" in of_anna.types
            own = await bert[0].call("POST", "/session", {"title": "of bert"})
            await of_bert.until("session.created")
            assert SECRET not in str(of_bert.seen) and session["id"] not in str(of_bert.seen)
        for at in bert:
            await at.call("GET", path, expect=404)
            assert [each["id"] for each in await at.call("GET", "/session")] == [own["id"]]
            assert "fake" not in (await at.call("GET", "/provider"))["connected"]
        for at in anna:
            assert (await at.call("GET", path))["owner"] == "anna"
        issued = await bert[0].call("POST", "/auth/event-token")
        nobody = UserClient(httpx2.AsyncClient(base_url=replicas.all[1].url, timeout=120))
        async with nobody.http, nobody.events(token=issued["token"]) as of_bert:
            await anna[0].call("PATCH", path, {"title": "told again"})
            await bert[0].call("PATCH", f"/session/{own['id']}", {"title": "renamed"})
            await of_bert.until("session.updated")
            assert session["id"] not in str(of_bert.seen)
        await asyncio.to_thread(opensession, replicas, "user", "remove", "bert")
        for at in bert:
            await at.call("GET", "/session", expect=401)


async def test_a_user_steers_their_own_clients_at_other_servers(replicas: Replicas) -> None:
    tokens = await asyncio.to_thread(add_users, replicas, cleo="member", dora="admin")
    async with at_each(replicas, tokens["cleo"]) as cleo, at_each(replicas, tokens["dora"]) as dora:
        async with cleo[1].events() as of_cleo, dora[2].events() as of_dora:
            await cleo[0].call("POST", "/tui/append-prompt", {"text": "of cleo"})
            await dora[0].call("POST", "/tui/append-prompt", {"text": "of dora"})
            for stream, name in ((of_cleo, "cleo"), (of_dora, "dora")):
                await stream.until("tui.prompt.append")
                await cleo[0].call("POST", "/session", {"title": f"behind it, for {name}"})
                await stream.until(lambda event, name=name: f"behind it, for {name}" in str(event.data))
                assert [event.properties["text"] for event in stream.of_type("tui.prompt.append")] == [f"of {name}"]
        async with cleo[1].http.stream("GET", "/tui/control/next") as waiting:
            await cleo[2].call("POST", "/tui/open-help")
            assert json.loads(await waiting.aread()) == {"path": "/tui/execute-command", "body": {"command": "help.show"}}
