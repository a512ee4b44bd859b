"""A provider on loopback that records what it is asked and plays the answer it is given, byte by byte if need be."""

import asyncio
import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from app.providers.anthropic_messages import Anthropic
from app.providers.base import ApiFailure, ModelRequest, Provider, StreamEvent, TextBlock, UserTurn
from app.providers.openai_chat import OpenAIChat
from app.providers.openai_responses import OpenAIResponses
from app.schema.model import Capabilities, Model, ModelApi, ModelLimit


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    peer: Any


@dataclass
class Reply:
    """`end`: `clean` ends the answer, `cut` drops the connection within it, `reset` does so with RST, `hang` stays silent."""

    chunks: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    end: Literal["clean", "cut", "reset", "hang"] = "clean"


class FakeServer:
    def __init__(self) -> None:
        self.received: list[Received] = []
        self.reply = Reply([])
        self.hung_up = asyncio.Event()
        self.may_reset = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def body(self) -> dict[str, Any]:
        return self.received[-1].body

    def plays(self, *events: dict[str, Any] | str, end: Literal["clean", "cut", "reset", "hang"] = "clean") -> None:
        self.reply = Reply([sse(event) for event in events], end=end)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        first, *lines = head.decode().strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.received.append(Received(first.split(" ")[1], headers, json.loads(body), writer.get_extra_info("peername")))
        return await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        reply = self.reply
        lines = [f"{name}: {value}" for name, value in {**reply.headers, "transfer-encoding": "chunked"}.items()]
        writer.write("\r\n".join([f"HTTP/1.1 {reply.status} Whatever", *lines, "", ""]).encode())
        for chunk in reply.chunks:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
        match reply.end:
            case "clean":
                writer.write(b"0\r\n\r\n")
                return True
            case "hang":
                await reader.read()
                self.hung_up.set()
            case "reset":
                await self.may_reset.wait()
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            case "cut":
                pass
        return False


def sse(event: dict[str, Any] | str) -> bytes:
    data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
    return f"data: {data}\n\n".encode()


def model(
    api_id: str = "some-model", *, provider_id: str = "fake", npm: str = "@ai-sdk/openai-compatible", **fields: Any
) -> Model:
    return Model(id=api_id, provider_id=provider_id, api=ModelApi(id=api_id, npm=npm), name=api_id, **fields)


def reasoning_model(api_id: str, **fields: Any) -> Model:
    return model(api_id, capabilities=Capabilities(reasoning=True), **fields)


def ask(text: str = "hi", **fields: Any) -> ModelRequest:
    values = {"model": model(), "system": (), "messages": (UserTurn((TextBlock(text),)),), "session_id": "ses_1", **fields}
    return ModelRequest(**values)


def limit(output: int) -> ModelLimit:
    return ModelLimit(context=200_000, output=output)


async def events_of(provider: Provider, request: ModelRequest | None = None) -> list[StreamEvent]:
    return [event async for event in provider.stream(request or ask())]


every_adapter = pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses, Anthropic])
"""Of a test that takes the class as `kind`."""


def adapter(server: FakeServer | None, kind: Any = OpenAIChat, **given: Any) -> Any:
    return kind("fake", **{"api_key": "key", "base_url": server and server.url, "headers": {}, "options": {}, **given})


async def failure_of(provider: Provider, request: ModelRequest | None = None) -> ApiFailure:
    with pytest.raises(ApiFailure) as failed:
        await events_of(provider, request)
    return failed.value
