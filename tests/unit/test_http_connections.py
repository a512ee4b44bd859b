"""What a connection may take before it is a request, on real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx2
import orjson
import pytest
from fastapi import FastAPI
from over_sockets import listening
from polling import until
from running_app import RunningApp

from app import http_server
from app.api import security
from app.events.bus.base import Event
from app.settings import Settings

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HOST = b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
GET = b"GET /global/health" + HOST
STREAM = b"GET /event" + HOST + b"\r\n"
POST = b"POST /session" + HOST + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"

SERVED_WITH = {"max_head_bytes": 4000, "max_connections": 3}


@pytest.fixture
async def port(app: RunningApp) -> AsyncIterator[int]:
    async with listening(app) as port:
        yield port


@asynccontextmanager
async def sending(
    port: int, sent: bytes = b"", **limits: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **limits)
    writer.write(sent)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """Status and body of the next one."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    return int(head.split()[1]), orjson.loads(await reader.readexactly(length))


async def status_of(port: int, sent: bytes) -> int:
    async with sending(port, sent) as (reader, _):
        return (await answer(reader))[0]


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Until it is closed."""
    with suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 10)
    return b""


async def is_left(app: RunningApp) -> None:
    await until(lambda: not app.services.bus.listeners())


async def test_addresses_and_headers_that_are_too_long(port: int) -> None:
    for sent, status in (
        (b"GET /" + b"a" * 5000 + HOST + b"\r\n", 414),
        (b"GET /" + b"a" * 300_000, 414),
        (GET + b"X-Long: " + b"a" * 5000 + b"\r\n\r\n", 431),
        (GET + b"X-Long: " + b"a" * 300_000, 431),
        (GET + b"X: y\r\n" * 2000 + b"\r\n", 431),
        (b"\x00\x01\r\n\r\n", 400),
        (GET + b"X: " + b"a" * 2000 + b"\r\n\r\n", 200),
    ):
        async with sending(port, sent) as (reader, _):
            answered, body = await answer(reader)
        assert answered == status, sent[:40]
        assert status == 200 or ("name" in body and body["data"]["message"])


async def test_a_long_body_is_no_long_head_and_who_waits_for_each_answer_keeps_the_connection(port: int) -> None:
    body = orjson.dumps({"title": "x" * 500_000})
    async with sending(port) as (reader, writer):
        for sent in [POST % len(body) + body] * 3 + [GET + b"\r\n"] * 20:
            writer.write(sent)
            assert (await answer(reader))[0] == 200


async def test_a_body_that_stops_coming_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    assert await status_of(port, POST % 20 + b'{"title": ') == 408
    assert await status_of(port, POST % 20 + b'{"title": "whole"}  ') == 200


async def test_connections_beyond_the_limit_are_told_so(port: int) -> None:
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(sending(port, GET + b"\r\n")) for _ in range(3)]
        for reader, _ in held:
            assert (await answer(reader))[0] == 200
        async with sending(port, GET + b"\r\n") as (reader, _):
            assert b"503 Service Unavailable" in await rest(reader)
        held[0][1].close()
        await held[0][1].wait_closed()
        async with asyncio.timeout(60):
            answered = b""
            while not answered.startswith(b"HTTP/1.1 200"):
                async with sending(port, GET + b"Connection: close\r\n\r\n") as (reader, _):
                    answered = await rest(reader)


async def test_a_connection_that_sends_no_head_is_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.1)
    for begun in (b"", b"GET / HT"):
        async with sending(port, begun) as (reader, _):
            assert await rest(reader) == b""


@pytest.mark.parametrize(
    ("asked", "status", "behind"),
    [(GET + b"\r\n", 200, b""), (GET + b"\r\n", 200, b"\r\n"), (POST.replace(b"json", b"xml") % 20 + b"<", 415, b"a")],
    ids=["nothing", "an empty line", "more of a body that is not read"],
)
async def test_a_connection_that_sends_no_request_after_its_answer_is_closed(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch, asked: bytes, status: int, behind: bytes
) -> None:
    monkeypatch.setattr(http_server, "IDLE_CONNECTION_SECONDS", 0.2)
    async with listening(app) as port, sending(port, asked) as (reader, writer):
        assert (await answer(reader))[0] == status
        writer.write(behind)
        assert await rest(reader) == b""


async def test_a_client_that_takes_nothing_is_cut_off(app: RunningApp, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "STALL_SECONDS", 0.2)
    payload = orjson.dumps({"type": "test", "properties": {"padding": "x" * 100_000}})
    async with sending(port, STREAM, limit=1024) as (reader, writer):
        await reader.readuntil(b"server.connected")
        writer.transport.pause_reading()
        async with asyncio.timeout(60):
            while app.services.bus.listeners():
                app.services.bus.publish(Event("test", payload, directory=str(app.directory), journaled=False))
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("behind", [GET + b"\r\n", b"\x00nonsense\r\n\r\n"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_comes_before_an_answer_is_complete_ends_it_with_its_connection(
    app: RunningApp, port: int, behind: bytes, *, at_once: bool
) -> None:
    async with sending(port, STREAM + behind if at_once else STREAM) as (reader, writer):
        if not at_once:
            await reader.readuntil(b"server.connected")
            writer.write(behind)
        assert b"400 Bad Request" not in await rest(reader)
    await is_left(app)


class SlowEnd:
    """An export whose file is closed some time after its last piece."""

    size = 2

    async def pieces(self) -> AsyncIterator[bytes]:
        yield b"{}"
        await asyncio.sleep(0.2)


async def test_the_next_request_may_come_as_soon_as_an_answer_with_a_length_is_read(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exported(*_: Any, **options: Any) -> SlowEnd:
        return SlowEnd()

    monkeypatch.setattr("app.api.share.export_session", exported)
    async with sending(port) as (reader, writer):
        for sent in (b"GET /session/ses_x/export" + HOST + b"\r\n", GET + b"\r\n", GET + b"\r\n"):
            writer.write(sent)
            assert (await answer(reader))[0] == 200


def test_clients_give_idle_connections_up_before_the_server_does() -> None:
    application = FastAPI()
    application.state.server = None
    theirs = httpx2.Limits().keepalive_expiry
    assert theirs is not None
    assert http_server.http_server(application, Settings()).config.timeout_keep_alive > 2 * theirs
