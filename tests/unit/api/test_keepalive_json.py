"""An answer that takes long, as a server of ASGI sees it."""

import asyncio
from typing import Any

import pytest

from app.api import event
from app.api.event import keeping_alive, waiting_with_client


class Client:
    """Keeps what it is sent, and is there until it has `gone`, or `refuses` what it is sent."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.sent: list[dict[str, Any]] = []
        self.refuses = refuses
        self.begun, self.gone = asyncio.Event(), asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.refuses:
            raise ConnectionResetError
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.begun.set()

    def asks(self, answer: Any) -> "asyncio.Task[None]":
        return asyncio.create_task(answer({"type": "http"}, self.receive, self.send))

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Work:
    """Lasts until it `may_end`."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.finished = False

    async def __call__(self) -> bytes:
        self.begun.set()
        try:
            await self.may_end.wait()
            self.finished = True
        finally:
            self.ended.set()
        return b"{}"


async def within_time(waited_for: Any) -> Any:
    return await asyncio.wait_for(waited_for, 60)


async def test_newlines_keep_the_connection_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event, "KEEP_ALIVE_SECONDS", 0.001)
    client = Client()

    async def work() -> bytes:
        while client.body.count(b"\n") < 5:
            await asyncio.sleep(0)
        return b"{}"

    await within_time(client.asks(keeping_alive(work())))
    assert client.body.strip() == b"{}"


async def always() -> bool:
    return True


@pytest.mark.parametrize("ends_with_client", [False, True])
async def test_work_goes_on_without_its_client_unless_it_ends_with_it(ends_with_client: bool) -> None:
    client, work = Client(), Work()
    answering = client.asks(waiting_with_client(work, always) if ends_with_client else keeping_alive(work()))
    await within_time(client.begun.wait())
    client.gone.set()
    await within_time(answering)
    assert client.body == b"\n"
    if not ends_with_client:
        work.may_end.set()
    await within_time(work.ended.wait())
    assert work.finished is not ends_with_client


async def test_a_client_that_is_gone_before_the_headers_ends_no_work_that_has_begun_and_begins_none() -> None:
    work, other = Work(), Work()
    answer = keeping_alive(work())
    await work.begun.wait()
    for asked in (answer, waiting_with_client(other, always)):
        with pytest.raises(ConnectionResetError):
            await Client(refuses=True).asks(asked)
    await asyncio.sleep(0)
    assert not work.ended.is_set() and not other.begun.is_set()
    work.may_end.set()
    await within_time(work.ended.wait())
