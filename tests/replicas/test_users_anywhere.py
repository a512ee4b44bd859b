"""Users of several servers: what is whose holds on each of them at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
from killable import Client
from prompted_model import play
from replicas import Replicas
from shell_commands import Shell
from sse_reader import EventReader
from turns import say

SECRET = "marked-secret-of-anna"


def opensession(replicas: Replicas, *arguments: str) -> str:
    home, data = (replicas.directory / name for name in ("home", "data"))
    return Shell(replicas.workspace, home, data, replicas.all[0].environment).done(*arguments).stdout.strip()


def add_users(replicas: Replicas, **roles: str) -> dict[str, str]:
    """A token of each."""
    for name, role in roles.items():
        opensession(replicas, "user", "add", name, "--role", role)
    return {name: opensession(replicas, "token", "create", name, "--user", name) for name in roles}


class UserClient(Client):
    """One user at one replica."""

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
async def at_each(replicas: Replicas, token: str | None) -> AsyncIterator[list[UserClient]]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with AsyncExitStack() as stack:
        made = [(each, httpx2.AsyncClient(base_url=each.url, headers=headers, timeout=120)) for each in replicas.all]
        yield [UserClient(await stack.enter_async_context(http), each.process) for each, http in made]


async def test_a_session_is_its_owners_on_every_server(replicas: Replicas) -> None:
    tokens = await asyncio.to_thread(add_users, replicas, anna="member", bert="member")
    async with at_each(replicas, tokens["anna"]) as anna, at_each(replicas, tokens["bert"]) as bert:
        assert (await anna[0].http.put("/auth/fake", json={"type": "api", "key": "sk-of-anna"})).is_success
        session = await anna[0].post("/session", {"title": SECRET})
        path = f"/session/{session['id']}"
        async with anna[2].events() as of_anna, anna[1].events(parts="delta", ids="true") as deltas, bert[2].events() as of_bert:
            prompt = {"parts": [{"type": "text", "text": play([say(f"{SECRET} is told")])}]}
            answer = await anna[1].post(f"{path}/message", prompt)
            assert "error" not in answer["info"] and SECRET in str(answer["parts"]), "her key, stored at another server"
            for stream in (of_anna, deltas):
                await stream.until("session.idle")
            assert SECRET in str(of_anna.seen) and "message.part.updated" in of_anna.types
            own = await bert[0].post("/session", {"title": "of bert"})
            await of_bert.until("session.created")
            assert SECRET not in str(of_bert.seen) and session["id"] not in str(of_bert.seen)
        for at in bert:
            await at.get(path, expect=404)
            assert [each["id"] for each in await at.get("/session")] == [own["id"]]
            assert "fake" not in (await at.get("/provider"))["connected"]
        for at in anna:
            assert (await at.get(path))["owner"] == "anna"
        issued = await bert[0].post("/auth/event-token")
        async with at_each(replicas, None) as nobody, nobody[1].events(token=issued["token"]) as of_bert:
            await anna[0].http.patch(path, json={"title": "told again"})
            await bert[0].http.patch(f"/session/{own['id']}", json={"title": "renamed"})
            await of_bert.until("session.updated")
            assert session["id"] not in str(of_bert.seen)
        await asyncio.to_thread(opensession, replicas, "user", "remove", "bert")
        for at in bert:
            await at.get("/session", expect=401)


async def test_a_user_steers_their_own_clients_at_other_servers(replicas: Replicas) -> None:
    tokens = await asyncio.to_thread(add_users, replicas, cleo="member", dora="admin")
    async with at_each(replicas, tokens["cleo"]) as cleo, at_each(replicas, tokens["dora"]) as dora:
        async with cleo[1].events() as of_cleo, dora[2].events() as of_dora:
            await cleo[0].post("/tui/append-prompt", {"text": "of cleo"})
            await dora[0].post("/tui/append-prompt", {"text": "of dora"})
            for stream, name in ((of_cleo, "cleo"), (of_dora, "dora")):
                await stream.until("tui.prompt.append")
                await cleo[0].post("/session", {"title": f"behind it, for {name}"})
                await stream.until(lambda event, name=name: f"behind it, for {name}" in str(event.data))
                assert [event.properties["text"] for event in stream.of_type("tui.prompt.append")] == [f"of {name}"]
        async with cleo[1].http.stream("GET", "/tui/control/next") as waiting:
            await cleo[2].post("/tui/open-help")
            assert json.loads(await waiting.aread()) == {"path": "/tui/execute-command", "body": {"command": "help.show"}}
