"""One editor, served on standard input and output: JSON-RPC messages, one a line.

The SDK's own transport leaves a malformed line without an answer and ends at a line that is no object. This one answers both.
"""

import asyncio
import logging
import os
import signal
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.streams import FlowControlMixin
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from acp import RequestError, run_agent

from app.api.client import Json
from app.cli.acp.agent import DELETE, EditorAgent
from app.cli.acp.editor_server import EditorServer
from app.cli.support import fail, server_at
from app.util.bounds import parse_json
from app.util.processes import read_pipe

MAX_LINE_CHARACTERS = 64 * 1024 * 1024
_CANCEL, _CANCEL_REQUEST = "session/cancel", "$/cancel_request"
"""The notifications that are known. The SDK knows the first alone, and would print a traceback for others."""
ANSWER_SECONDS = 10.0
"""How long requests may take after the last line: an editor may close its end right after its requests."""


async def serve(attach: str | None, where: Path | None) -> None:
    """Serves until the editor closes its end or this process is told to stop."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr, format="opensession acp: %(message)s")
    server = EditorServer(partial(server_at, attach, where))
    agent = EditorAgent(server, keeps_turns=attach is not None)
    try:
        lines = EditorLines(*await editor_streams(), agent.leave)
    except (OSError, ValueError):
        fail("opensession acp speaks with an editor: its standard input and output are pipes.")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lines.end)
    try:
        await run_agent(agent, lines, use_unstable_protocol=True)
    finally:
        await agent.close()
        await server.close()


class EditorLines:
    """A transport of the SDK. `leave` is called when the editor is gone, and ends what waits for it."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, leave: Callable[[], Awaitable[None]]) -> None:
        self._writer = writer
        self._leave = leave
        self._received: asyncio.Queue[Json | None] = asyncio.Queue()
        self._asked: dict[str, int] = {}
        """The number of requests of an id that have no answer yet."""
        self._prompted: dict[str, str] = {}
        """The sessions of the prompts that have no answer yet, by their requests' ids."""
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._reading = asyncio.create_task(self._read(reader))

    # Called by the SDK.

    async def receive(self) -> Json | None:
        """None when the editor is gone and its requests are answered."""
        message = await self._received.get()
        if message is not None:
            return message
        await self._leave()
        with suppress(TimeoutError):  # an editor that is there and reads nothing
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._all_answered.wait()
        return None

    async def send(self, message: Json) -> None:
        """Writes before it waits for anything, so that later messages come after this one. An editor that does not read any more
        is sent nothing: the end of the input follows, or a signal."""
        self._writer.write(orjson.dumps(message, default=str) + b"\n")
        if "method" not in message:
            self._answered(message.get("id"))
        with suppress(ConnectionError):
            await self._writer.drain()

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.close()

    def end(self) -> None:
        """Ends as if the editor were gone."""
        self._received.put_nowait(None)

    # Reading.

    async def _read(self, reader: StreamReader) -> None:
        try:
            while line := await self._line(reader):
                if line.strip():
                    await self._take(line)
        finally:
            self.end()

    async def _line(self, reader: StreamReader) -> bytes:
        while True:
            try:
                return await reader.readline()
            except ValueError:
                await self._refuse(RequestError.invalid_request({"details": f"A line has at most {MAX_LINE_CHARACTERS} bytes"}))

    async def _take(self, line: bytes) -> None:
        try:
            message = parse_json(line)
        except ValueError as error:
            await self._refuse(RequestError.parse_error({"details": str(error)}))
            return
        if problem := malformed(message):
            await self._refuse(RequestError.invalid_request({"details": problem}))
            return
        if not isinstance(message.get("error") or {}, dict):
            message["error"] = {"message": str(message["error"])}
        if isinstance(params := message.get("params"), dict):
            params.pop("_meta", None)  # the SDK takes its names for arguments
        if "id" not in message and message["method"] == _CANCEL_REQUEST:
            message |= self._cancelled(params)
        if "id" not in message and message["method"] != _CANCEL:
            return
        if "method" in message and "id" in message:
            self._note_asked(message)
            if message["method"] == DELETE:  # the SDK passes on extensions alone
                message["method"] = f"_{DELETE}"
        self._received.put_nowait(message)

    def _cancelled(self, params: Any) -> Json:
        """What cancels a prompt by its session. Other requests are answered soon, so no cancelling ends them."""
        session_id = self._prompted.get(str(params.get("requestId"))) if isinstance(params, dict) else None
        return {"method": _CANCEL, "params": {"sessionId": session_id}} if session_id else {}

    def _note_asked(self, request: Json) -> None:
        key, params = str(request["id"]), request.get("params")
        self._asked[key] = self._asked.get(key, 0) + 1
        self._all_answered.clear()
        session_id = params.get("sessionId") if isinstance(params, dict) else None
        if request["method"] == "session/prompt" and isinstance(session_id, str):
            self._prompted[key] = session_id

    async def _refuse(self, error: RequestError) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": error.to_error_obj()})

    def _answered(self, request_id: Any) -> None:
        key = str(request_id)
        if key in self._asked:
            self._asked[key] -= 1
            if not self._asked[key]:
                del self._asked[key]
                self._prompted.pop(key, None)
        if not self._asked:
            self._all_answered.set()


def malformed(message: Any) -> str | None:
    """Why a message, which is JSON, is malformed."""
    if not isinstance(message, dict):
        return "A message is an object"
    if not isinstance(message.get("id", 0), int | str | None):
        return "The id of a message is a number or a string"
    if "method" in message:
        return None if isinstance(message["method"], str) else "The method of a request is a string"
    return None if "id" in message else "A message has a method, or the id that it answers"


async def editor_streams() -> tuple[StreamReader, StreamWriter]:
    """The streams that this process was started with. Other code here reads nothing and prints on standard error, because a stray
    line would be no message. Raises OSError or ValueError for a plain file."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    reader, _ = await read_pipe(source, MAX_LINE_CHARACTERS)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(FlowControlMixin, os.fdopen(target, "wb", 0))
    return reader, StreamWriter(transport, protocol, None, loop)
