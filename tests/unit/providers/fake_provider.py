"""A provider on loopback that records what it is asked and plays the answer it is given, byte by byte if need be."""

import asyncio
import json
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from app.providers import base
from app.providers.anthropic_messages import Anthropic
from app.providers.openai_chat import OpenAIChat
from app.providers.openai_responses import OpenAIResponses
from app.schema.model import Capabilities, Model, ModelApi, ModelLimit

WIRES: dict[str, Any] = {"chat": OpenAIChat, "responses": OpenAIResponses, "messages": Anthropic}
every_wire = pytest.mark.parametrize("wire", WIRES)


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


def model(id_: str = "some-model", *, provider: str = "fake", npm: str = base.Npm.OPENAI_COMPATIBLE, **fields: Any) -> Model:
    values = {"provider_id": provider, "api": ModelApi(id=id_, npm=npm, url=fields.pop("url", "")), "name": id_}
    return Model(id=id_, **{**values, **fields})


def reasoning_model(api_id: str, **fields: Any) -> Model:
    return model(api_id, capabilities=Capabilities(reasoning=True), **fields)


def limit(output: int) -> ModelLimit:
    return ModelLimit(context=200_000, output=output)


def user(*blocks: Any) -> base.UserTurn:
    return base.UserTurn(tuple(base.TextBlock(block) if isinstance(block, str) else block for block in blocks))


def answer(*blocks: Any) -> base.AssistantTurn:
    return base.AssistantTurn(tuple(base.TextBlock(block) if isinstance(block, str) else block for block in blocks))


def called(call_id: str = "c", tool: str = "read", text: str = "x", **fields: Any) -> tuple[base.ModelMessage, base.ModelMessage]:
    """A call and its result."""
    result = base.ToolResultBlock(call_id, tool, text, **fields)
    return answer(base.ToolCallBlock(call_id, tool, {})), base.ToolTurn((result,))


def ask(text: str = "hi", **fields: Any) -> base.ModelRequest:
    values = {"model": model(), "system": (), "messages": (user(text),), "session_id": "ses_1", **fields}
    return base.ModelRequest(**values)


def adapter(server: FakeServer | None, wire: str = "chat", **given: Any) -> Any:
    return WIRES[wire]("fake", **{"api_key": "key", "base_url": server and server.url, "headers": {}, "options": {}, **given})


async def events_of(provider: base.Provider, request: base.ModelRequest | None = None) -> list[base.StreamEvent]:
    return [event async for event in provider.stream(request or ask())]


async def failure_of(provider: base.Provider, request: base.ModelRequest | None = None) -> base.ApiFailure:
    with pytest.raises(base.ApiFailure) as failed:
        await events_of(provider, request)
    return failed.value


def text(id_: str, *pieces: str, end: base.Metadata | None = None) -> list[base.StreamEvent]:
    return _block("text", id_, pieces, None, end)


def thought(
    id_: str, *pieces: str, start: base.Metadata | None = None, end: base.Metadata | None = None
) -> list[base.StreamEvent]:
    return _block("reasoning", id_, pieces, start, end)


def _block(kind: base.BlockKind, id_: str, pieces: Iterable[str], start: Any, end: Any) -> list[base.StreamEvent]:
    deltas = [base.BlockDelta(kind, id_, piece) for piece in pieces]
    return [base.BlockStart(kind, id_, start), *deltas, base.BlockEnd(kind, id_, end)]


def call(call_id: str, tool: str, arguments: dict[str, Any], metadata: base.Metadata | None = None) -> list[base.StreamEvent]:
    return [base.ToolInputStart(call_id, tool), base.ToolCall(call_id, tool, arguments, metadata)]


def finish(reason: Any, **usage: int) -> base.Finish:
    return base.Finish(reason, base.Usage(**usage))


def said(events: list[base.StreamEvent], kind: base.BlockKind = "text") -> str:
    return "".join(event.text for event in events if isinstance(event, base.BlockDelta) and event.kind == kind)
