"""A title model that takes its time: answers do not wait for it, and its titles are not lost."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from killable import Client, Servers
from long_form import LONG, SLACK
from model_server import ModelServer, model_server
from turns import texts

Figure = Callable[[str], None]

TITLE_SECONDS = 4.0
WITHIN = 0.3 * SLACK
PROMPTS = 5 if LONG else 1


async def untitled(servers: Servers, client: Client, model: ModelServer) -> tuple[str, threading.Event]:
    """A session whose title is being made, until the event is set."""
    gate = threading.Event()
    model.title = [gate, model.TITLE]
    session = await client.session()
    assert texts(await client.prompt(session)) == ["ok"]
    async with asyncio.timeout(20):
        while not model.title_requests:
            await asyncio.sleep(0.01)
    return session, gate


async def title_of(client: Client, session: str) -> str:
    found: dict[str, Any] = await client.get(f"/session/{session}")
    return str(found["title"])


async def seconds_after_the_last_token(client: Client, model: ModelServer) -> float:
    """Until the POST of a first prompt returns."""
    end, gate = threading.Event(), threading.Event()
    model.play(["The end", end, " of it."])
    model.title = [gate, model.TITLE]
    session = await client.session()
    prompt = asyncio.create_task(client.prompt(session))
    await client.condition(f"/session/{session}/message", lambda found: "The end" in str(found))
    asyncio.get_running_loop().call_later(TITLE_SECONDS, gate.set)
    began = time.monotonic()
    end.set()
    assert texts(await prompt) == ["The end of it."]
    took = time.monotonic() - began
    assert not gate.is_set() and (await client.get("/session/status")) == {}
    await client.condition(f"/session/{session}", lambda found: found["title"] == model.TITLE)
    return took


async def test_a_first_prompt_is_answered_while_its_title_is_made(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(tmp_path)
    with model_server() as model:
        servers.configure(model.config())
        async with servers.start() as client:
            took = [await seconds_after_the_last_token(client, model) for _ in range(PROMPTS)]
    figure(f"title of {TITLE_SECONDS:g} s: POST returned {min(took):.3f} to {max(took):.3f} s after the last token")
    assert max(took) < WITHIN
    assert "Traceback" not in servers.log


async def test_a_server_that_stops_waits_for_a_title(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    with model_server() as model:
        servers.configure(model.config())
        async with servers.start() as client:
            session, gate = await untitled(servers, client, model)
            client.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                while (await client.http.get("/global/health")).status_code != 503:
                    await asyncio.sleep(0.02)
            gate.set()
            await client.ended()
        async with servers.start() as client:
            assert await title_of(client, session) == model.TITLE
    assert len(model.title_requests) == 1 and "Traceback" not in servers.log


async def test_a_killed_server_requests_the_title_again_with_the_next_prompt(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    with model_server() as model:
        servers.configure(model.config())
        async with servers.start() as client:
            session, gate = await untitled(servers, client, model)
            os.kill(client.process.pid, signal.SIGKILL)
            await client.ended()
        gate.set()
        async with servers.start() as client:
            assert await title_of(client, session) != model.TITLE
            await client.prompt(session, "And now?")
            await client.condition(f"/session/{session}", lambda found: found["title"] == model.TITLE)
    first, again = model.title_requests
    assert again["messages"] == first["messages"], "it is made from the first prompt"
