"""A client that sends slowly, or a request that takes long, holds up nobody else: on real connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest
from over_sockets import listening
from running_app import RunningApp, text_part
from turns import bash
from user_logins import add_user, bearer

from app.api import security

SOON = 10.0
"""Seconds: what is not held up takes a fraction of one."""
LARGE = {"title": "x" * 600_000}
SENDERS = security.LARGE_AT_ONCE + 3
JSON = {"content-type": "application/json"}

SERVED_WITH = {"otherwise": [bash("sleep 60")]}


@pytest.fixture
async def http(app: RunningApp) -> AsyncIterator[httpx2.AsyncClient]:
    async with listening(app) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SOON) as client:
        yield client


async def chunked(body: dict[str, Any]) -> AsyncIterator[bytes]:
    """Without a length."""
    yield json.dumps(body).encode()


async def connection(http: httpx2.AsyncClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", http.base_url.port)


def head(method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def pieces(first: int, framing: str) -> Iterator[bytes]:
    """Of a body without an end: `first` bytes, then one and another."""
    sizes = (*[50_000] * (first // 50_000), *[1] * 10_000)
    for piece in (b'{"title": "', *(b"x" * size for size in sizes)):
        yield b"%x\r\n%b\r\n" % (len(piece), piece) if framing == CHUNKED else piece


@asynccontextmanager
async def slow_senders(http: httpx2.AsyncClient, request: bytes, first: int | None, framing: str) -> AsyncIterator[None]:
    """As many as LARGE_AT_ONCE and some more: each sends `first` bytes of a body, and now and then another;
    None: nothing of it. Those whose bytes the server does not take yet are waited for no longer than a second."""
    dripping = [asyncio.Event() for _ in range(SENDERS)]

    async def send(writer: asyncio.StreamWriter, drips: asyncio.Event) -> None:
        writer.write(request)
        if first is None:
            drips.set()
            return
        with suppress(ConnectionError):
            for number, piece in enumerate(pieces(first, framing)):
                writer.write(piece)
                await writer.drain()
                if number > first // 50_000:
                    drips.set()
                    await asyncio.sleep(0.05)

    writers = [(await connection(http))[1] for _ in range(SENDERS)]
    sending = [asyncio.create_task(send(*each)) for each in zip(writers, dripping, strict=True)]
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.gather(*(drips.wait() for drips in dripping))
    yield
    for task, writer in zip(sending, writers, strict=True):
        task.cancel()
        writer.close()


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


async def test_a_slow_member_holds_up_nobody_else(app: RunningApp, http: httpx2.AsyncClient) -> None:
    anna, bert = bearer(await add_user(app, "anna")), bearer(await add_user(app, "bert"))
    own = (await http.post("/session", json={}, headers=anna)).json()["id"]
    for kind, (method, path, first, framing) in KINDS.items():
        request = head(method, path.format(session=own), framing, f"Authorization: {anna['authorization']}")
        async with slow_senders(http, request, first, framing):
            assert (await http.post("/session", json=LARGE, headers=bert)).status_code == 200, kind
            for who in (bert, anna):  # nor small bodies of their own
                small = await http.post("/session", content=chunked({"title": "x"}), headers=who | JSON)
                assert small.status_code == 200, kind


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("shell", {"agent": "build", "command": "sleep 60"}),
        ("message", {"parts": [text_part("Hi")]}),
        ("command", {"command": "init", "arguments": ""}),
    ],
)
async def test_requests_that_take_long_hold_up_no_bodies(app: RunningApp, action: str, body: dict[str, Any]) -> None:
    """Their bodies, which are large and have no length, are read and parsed long before they are answered."""
    padded = {**body, "padding": "x" * 600_000}
    paths = [f"/session/{(await app.create_session())['id']}" for _ in range(SENDERS)]
    long = [asyncio.create_task(app.client.post(f"{path}/{action}", content=chunked(padded), headers=JSON)) for path in paths]
    async with asyncio.timeout(SOON):
        while len(await app.get("/session/status")) < SENDERS:
            await asyncio.sleep(0.05)
        for small in ({"title": "x"}, LARGE):
            assert (await app.client.post("/session", content=chunked(small), headers=JSON)).status_code == 200
    for path in paths:
        await app.post(f"{path}/abort")
    await asyncio.gather(*long)


async def test_a_body_that_comes_too_slowly_is_given_up_and_its_connection_closed(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.5)

    async def drip(writer: asyncio.StreamWriter, piece: bytes) -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.05)

    for framing, piece in ((LENGTH, b" "), (CHUNKED, b"1\r\n \r\n")):
        reader, writer = await connection(http)
        writer.write(head("POST", "/session", framing))
        dripping = asyncio.create_task(drip(writer, piece))
        answer = await asyncio.wait_for(reader.read(), SOON)
        assert answer.startswith(b"HTTP/1.1 408") and b"connection: close" in answer.lower()
        dripping.cancel()


async def test_a_large_body_may_take_its_time_and_large_ones_at_once_are_all_taken(http: httpx2.AsyncClient) -> None:
    async def steady() -> AsyncIterator[bytes]:
        yield b'{"title": "'
        for _ in range(10):
            yield b"x" * 20_000
            await asyncio.sleep(0.1)
        yield b'"}'

    with pytest.MonkeyPatch.context() as bounds:
        bounds.setattr(security, "BODY_SECONDS", 0.5)
        bounds.setattr(security, "BYTES_A_SECOND", 100_000)
        assert (await http.post("/session", content=steady(), headers=JSON)).status_code == 200
    body = {"parts": [text_part("x" * 5_000_000)], "noReply": True}
    sessions = [(await http.post("/session", json={})).json()["id"] for _ in range(8)]
    posts = (http.post(f"/session/{session}/message", json=body, timeout=6 * SOON) for session in sessions)
    assert [answer.status_code for answer in await asyncio.gather(*posts)] == [200] * 8
