"""An answer that takes long, as a server of ASGI sees it."""

import asyncio
import contextlib
from typing import Any

import pytest

from app.api import event
from app.api.event import keeping_alive, waiting_with_client


class Client:
    """Keeps what it is sent, and is there until it has `gone`."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.begun = asyncio.Event()
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.begun.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def test_headers_and_a_newline_come_before_the_work_is_done() -> None:
    client, may_end = Client(), asyncio.Event()

    async def work() -> bytes:
        await may_end.wait()
        return b"{}"

    answering = asyncio.create_task(keeping_alive(work())({"type": "http"}, client.receive, client.send))
    await asyncio.wait_for(client.begun.wait(), 5)
    assert (client.sent[0]["status"], client.sent[0]["headers"]) == (200, [(b"content-type", b"application/json")])
    assert client.body == b"\n"
    may_end.set()
    await asyncio.wait_for(answering, 60)
    assert client.body == b"\n{}"
    assert [message.get("more_body", False) for message in client.sent[1:]] == [True, True, False]


async def test_newlines_keep_the_connection_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event, "KEEP_ALIVE_SECONDS", 0.001)
    client = Client()

    async def work() -> bytes:
        while client.body.count(b"\n") < 5:
            await asyncio.sleep(0)
        return b"{}"

    await asyncio.wait_for(keeping_alive(work())({"type": "http"}, client.receive, client.send), 5)
    assert client.body.strip() == b"{}"


@pytest.mark.parametrize("ends_with_client", [False, True])
async def test_a_client_that_goes_away(ends_with_client: bool) -> None:
    client, may_end, ended = Client(), asyncio.Event(), asyncio.Event()
    finished = False

    async def work() -> bytes:
        nonlocal finished
        with contextlib.ExitStack() as at_end:
            at_end.callback(ended.set)
            await may_end.wait()
            finished = True
        return b"{}"

    answer = waiting_with_client(work) if ends_with_client else keeping_alive(work())
    answering = asyncio.create_task(answer({"type": "http"}, client.receive, client.send))
    await asyncio.wait_for(client.begun.wait(), 5)
    client.gone.set()
    await asyncio.wait_for(answering, 60)
    assert client.body == b"\n"
    if not ends_with_client:
        may_end.set()
    await asyncio.wait_for(ended.wait(), 5)
    assert finished is not ends_with_client


async def test_a_client_that_is_gone_before_the_headers() -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> bytes:
        with contextlib.ExitStack() as at_end:
            at_end.callback(ended.set)
            begun.set()
            await may_end.wait()
        return b"{}"

    async def refuse(message: Any) -> None:
        raise ConnectionResetError

    answer = keeping_alive(work())
    await begun.wait()
    with pytest.raises(ConnectionResetError):
        await answer({"type": "http"}, Client().receive, refuse)
    await asyncio.sleep(0)
    assert not ended.is_set()
    may_end.set()
    await asyncio.wait_for(ended.wait(), 5)


async def test_what_ends_with_its_client_does_not_begin_without_one() -> None:
    async def work() -> bytes:
        raise AssertionError("nobody asks for it")

    async def refuse(message: Any) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await waiting_with_client(work)({"type": "http"}, Client().receive, refuse)
