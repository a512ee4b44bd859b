"""A client that sends slowly, or a request that takes long, holds up nobody else: on real connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from over_sockets import listening
from running_app import RunningApp, running_app
from turns import bash
from user_logins import add_user, bearer

from app.api import incoming_body
from app.api.incoming_body import LARGE_AT_ONCE

SOON = 10.0
"""Seconds: what is not held up takes a fraction of one."""
LARGE = {"title": "x" * 600_000}
SENDERS = LARGE_AT_ONCE + 3


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path, otherwise=[bash("sleep 60")]) as app:
        yield app


async def chunked(body: dict[str, Any]) -> AsyncIterator[bytes]:
    """Without a length."""
    yield json.dumps(body).encode()


def head(method: str, path: str, token: str, framing: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", framing]
    return "\r\n".join([*lines, f"Authorization: Bearer {token}", "", ""]).encode()


@asynccontextmanager
async def slow_senders(port: int, token: str, method: str, path: str, first: int | None, framing: str) -> AsyncIterator[None]:
    """As many as LARGE_AT_ONCE and some more: each sends `first` bytes of a body, and now and then another;
    None: nothing of it. Those whose bytes the server does not take yet are waited for no longer than a second."""
    dripping = [asyncio.Event() for _ in range(SENDERS)]

    async def send(writer: asyncio.StreamWriter, drips: asyncio.Event) -> None:
        writer.write(head(method, path, token, framing))
        if first is None:
            drips.set()
            return
        chunks = (b"%x\r\n%b\r\n" % (len(piece), piece) if "chunked" in framing else piece for piece in pieces(first))
        with suppress(ConnectionError):
            for number, chunk in enumerate(chunks):
                writer.write(chunk)
                await writer.drain()
                if number > first // 50_000:
                    drips.set()
                    await asyncio.sleep(0.05)

    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(SENDERS)]
    sending = [asyncio.create_task(send(*each)) for each in zip(writers, dripping, strict=True)]
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.gather(*(drips.wait() for drips in dripping))
    yield
    for task, writer in zip(sending, writers, strict=True):
        task.cancel()
        writer.close()


def pieces(first: int) -> Iterator[bytes]:
    yield b'{"title": "'
    for _ in range(first // 50_000):
        yield b"x" * 50_000
    while True:
        yield b"x"


LENGTH, CHUNKED = "Content-Length: 2000000", "Transfer-Encoding: chunked"
KINDS = {
    "one byte after another": ("POST", "/session", 0, LENGTH),
    "heads alone": ("POST", "/session", None, LENGTH),
    "much, then one byte after another": ("POST", "/session", 1_500_000, LENGTH),
    "chunked": ("POST", "/session", 0, CHUNKED),
    "chunked, much at first": ("POST", "/session", 1_500_000, CHUNKED),
    "imports": ("POST", "/session/import", 1_500_000, "Content-Length: 200000000"),
    "patches": ("PATCH", "/session/{session}", 1_500_000, CHUNKED),
    "the second API": ("POST", "/api/session", 1_500_000, LENGTH),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_slow_member_holds_up_nobody_else(app: RunningApp, tmp_path: Path, kind: str) -> None:
    anna, bert = await add_user(app, "anna"), await add_user(app, "bert")
    method, path, first, framing = KINDS[kind]
    async with listening(app) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SOON) as http:
        own = (await http.post("/session", json={}, headers=bearer(anna))).json()["id"]
        async with slow_senders(port, anna, method, path.format(session=own), first, framing):
            assert (await http.post("/session", json=LARGE, headers=bearer(bert))).status_code == 200
            content_type = {"content-type": "application/json"}
            small = await http.post("/session", content=chunked({"title": "x"}), headers=bearer(bert) | content_type)
            assert small.status_code == 200
            mine = await http.post("/session", content=chunked({"title": "x"}), headers=bearer(anna) | content_type)
            assert mine.status_code == 200, "nor small bodies of their own"


@pytest.mark.parametrize("action", ["shell", "message", "command"])
async def test_requests_that_take_long_hold_up_no_bodies(app: RunningApp, action: str) -> None:
    """Their bodies, which are large and have no length, are read and parsed long before they are answered."""
    padding = {"padding": "x" * 600_000}
    bodies = {
        "shell": {"agent": "build", "command": "sleep 60", **padding},
        "message": {"parts": [{"type": "text", "text": "Hi"}], **padding},
        "command": {"command": "init", "arguments": "", **padding},
    }
    json_type = {"content-type": "application/json"}
    sessions = [(await app.create_session())["id"] for _ in range(SENDERS)]
    paths = [f"/session/{session}/{action}" for session in sessions]
    long = [asyncio.create_task(app.client.post(path, content=chunked(bodies[action]), headers=json_type)) for path in paths]
    async with asyncio.timeout(SOON):
        while len(await app.get("/session/status")) < SENDERS:
            await asyncio.sleep(0.05)
        for body in ({"title": "x"}, LARGE):
            assert (await app.client.post("/session", content=chunked(body), headers=json_type)).status_code == 200
    for session in sessions:
        await app.post(f"/session/{session}/abort")
    await asyncio.gather(*long)


async def test_a_body_that_comes_too_slowly_is_given_up_and_its_connection_closed(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming_body, "BODY_SECONDS", 0.5)
    async with listening(app) as port:
        for framing in (LENGTH, CHUNKED):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head("POST", "/session", "", framing).replace(b"Authorization: Bearer \r\n", b""))
            dripping = asyncio.create_task(drip(writer, b"1\r\n \r\n" if "chunked" in framing else b" "))
            answer = await asyncio.wait_for(reader.read(), SOON)
            assert answer.startswith(b"HTTP/1.1 408") and b"connection: close" in answer.lower()
            dripping.cancel()


async def drip(writer: asyncio.StreamWriter, piece: bytes) -> None:
    with suppress(ConnectionError):
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)


async def test_a_large_body_may_take_its_time(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_body, "BODY_SECONDS", 0.5)
    monkeypatch.setattr(incoming_body, "BYTES_A_SECOND", 100_000)

    async def steady() -> AsyncIterator[bytes]:
        yield b'{"title": "'
        for _ in range(10):
            yield b"x" * 20_000
            await asyncio.sleep(0.1)
        yield b'"}'

    async with listening(app) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SOON) as http:
        response = await http.post("/session", content=steady(), headers={"content-type": "application/json"})
        assert response.status_code == 200


async def test_large_bodies_at_once_are_all_taken(app: RunningApp) -> None:
    body = {"parts": [{"type": "text", "text": "x" * 5_000_000}], "noReply": True}
    sessions = [(await app.create_session())["id"] for _ in range(8)]
    async with listening(app) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=6 * SOON) as http:
        answers = await asyncio.gather(*(http.post(f"/session/{session}/message", json=body) for session in sessions))
        assert [answer.status_code for answer in answers] == [200] * 8
