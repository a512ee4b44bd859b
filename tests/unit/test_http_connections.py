"""What a connection may take before it is a request, on real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from over_sockets import listening
from running_app import RunningApp, running_app

from app import http_server
from app.api import security
from app.events.bus.base import Event

GET = b"GET /global/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path, max_head_bytes=4000, max_connections=3) as app:
        yield app


async def answer_to(port: int, sent: bytes) -> tuple[int, dict[str, Any]]:
    """Status and body of the first answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return await answer(reader)
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    return int(head.split()[1]), orjson.loads(await reader.readexactly(length))


async def is_answered(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET + b"Connection: close\r\n\r\n")
    answered = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answered.startswith(b"HTTP/1.1 200")


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 10) == b""
    except ConnectionError:
        return True


async def test_addresses_and_headers_that_are_too_long(app: RunningApp) -> None:
    async with listening(app) as port:
        for sent, status in (
            (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 414),
            (b"GET /" + b"a" * 300_000, 414),
            (GET + b"X-Long: " + b"a" * 5000 + b"\r\n\r\n", 431),
            (GET + b"X-Long: " + b"a" * 300_000, 431),
            (GET + b"X: y\r\n" * 2000 + b"\r\n", 431),
            (b"\x00\x01\r\n\r\n", 400),
            (GET + b"X: " + b"a" * 2000 + b"\r\n\r\n", 200),
        ):
            answered, body = await answer_to(port, sent)
            assert answered == status, sent[:40]
            assert status == 200 or ("name" in body and body["data"]["message"])


async def test_a_long_body_is_no_long_head(app: RunningApp) -> None:
    body = orjson.dumps({"title": "x" * 500_000})
    head = b"POST /session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(head + body)
            assert (await answer(reader))[0] == 200
        writer.close()


async def test_a_body_that_stops_coming_is_given_up(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    head = b"POST /session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"
    async with listening(app) as port:
        assert (await answer_to(port, head + b'{"title": '))[0] == 408
        assert (await answer_to(port, head + b'{"title": "whole"}  '))[0] == 200


async def test_connections_beyond_the_limit_are_told_so(app: RunningApp) -> None:
    async with listening(app) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in held:
            writer.write(GET + b"\r\n")
        for reader, _ in held:
            assert (await answer(reader))[0] == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"\r\n")
        assert b"503 Service Unavailable" in await asyncio.wait_for(reader.read(), 10)
        writer.close()
        held[0][1].close()
        await held[0][1].wait_closed()
        async with asyncio.timeout(60):
            while not await is_answered(port):
                await asyncio.sleep(0.01)
        for _, writer in held:
            writer.close()


async def test_a_connection_that_sends_no_head_is_closed(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.1)
    async with listening(app) as port:
        for begun in (b"", b"GET / HT"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            assert await is_closed(reader)
            writer.close()


async def test_a_client_that_takes_nothing_is_cut_off(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "STALL_SECONDS", 0.2)
    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"server.connected")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        payload = orjson.dumps({"type": "test", "properties": {"padding": "x" * 100_000}})
        async with asyncio.timeout(60):
            while app.services.bus.listeners():
                app.services.bus.publish(Event("test", payload, directory=str(app.directory), journaled=False))
                await asyncio.sleep(0.005)
        writer.close()


@pytest.mark.parametrize("behind", [GET + b"\r\n", b"\x00nonsense\r\n\r\n"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_comes_before_an_answer_is_complete_ends_it_with_its_connection(
    app: RunningApp, behind: bytes, *, at_once: bool
) -> None:
    stream = b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(stream + behind if at_once else stream)
        if not at_once:
            await reader.readuntil(b"server.connected")
            writer.write(behind)
        with suppress(ConnectionError):
            assert b"400 Bad Request" not in await asyncio.wait_for(reader.read(), 10)
        writer.close()
        async with asyncio.timeout(60):
            while app.services.bus.listeners():
                await asyncio.sleep(0.01)


async def test_a_client_that_waits_for_each_answer_keeps_its_connection(app: RunningApp) -> None:
    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(20):
            writer.write(GET + b"\r\n")
            assert (await answer(reader))[0] == 200
        writer.close()
