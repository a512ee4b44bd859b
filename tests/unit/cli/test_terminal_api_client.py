"""The event stream of commands that are attached to a server."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
from acp import RequestError

from app.api import client as api_client
from app.api.client import ApiClient, ApiRefused
from app.cli.acp import editor_server

GREETING = b'data: {"type":"server.connected"}\n\n'


class Streams(httpx2.AsyncBaseTransport):
    """Each connection sends what the list has for it and is then silent, as long as a client waits; later ones send nothing."""

    def __init__(self, *sent: list[bytes]) -> None:
        self._sent = list(sent)
        self.connections = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.connections += 1
        pieces = self._sent.pop(0) if self._sent else []
        stream = Silent(pieces, request.extensions["timeout"]["read"])
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)


class Silent(httpx2.AsyncByteStream):
    def __init__(self, pieces: list[bytes], patience: float) -> None:
        self._pieces, self._patience = pieces, patience

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        await asyncio.sleep(self._patience)
        raise httpx2.ReadTimeout("silence")


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred times."""
    for name in ("_SILENCE_SECONDS", "RECONNECT_SECONDS", "_PAUSE_SECONDS"):
        monkeypatch.setattr(api_client, name, getattr(api_client, name) / 100)


async def read(streams: Streams) -> list[str]:
    """The types of the events until the server is given up."""
    seen: list[str] = []
    async with httpx2.AsyncClient(transport=streams, base_url="http://x") as http:
        with pytest.raises(ApiRefused):
            async for event in ApiClient(http, "The server").events("/"):
                seen.append(event["type"])
    return seen


async def test_after_a_silence_the_stream_is_asked_for_again() -> None:
    streams = Streams([GREETING], [GREETING, b'data: {"type":"session.idle"}\n\n'])
    assert await read(streams) == ["server.connected", "server.connected", "session.idle"]
    assert streams.connections >= 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx2.Response(301, headers={"location": "https://agent.example.com/path"}), "https://agent.example.com/path"),
        (httpx2.Response(200, text="<html>"), "another program"),
    ],
)
async def test_an_answer_that_is_not_the_servers_is_refused_in_a_sentence(answer: httpx2.Response, said: str) -> None:
    transport = httpx2.MockTransport(lambda request: answer)
    async with httpx2.AsyncClient(transport=transport, base_url="http://x") as http:
        api = ApiClient(http, "The server")
        with pytest.raises(ApiRefused, match=said):
            await api.get("/path")
        api.refusal = editor_server.refusal
        with pytest.raises(RequestError, match=said):
            await api.get("/path")


async def test_a_server_that_never_says_a_word_is_given_up() -> None:
    assert await read(Streams()) == []
