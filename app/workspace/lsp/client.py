"""A language server's program, spoken to by pygls. Its output is not trusted: each message is bounded, reading takes only a part
of the event loop's time, and only requests that a server needs are answered.

pygls' protocol is made for servers: these subclasses leave out what a peer could do with it (`exit` would end this process).
"""

import asyncio
import logging
import threading
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from cattrs import Converter
from lsprotocol import converters, types
from pygls.client import JsonRPCClient
from pygls.exceptions import JsonRpcException
from pygls.io_ import run_async
from pygls.protocol import JsonRPCNotification, JsonRPCProtocol, JsonRPCRequestMessage, JsonRPCResponseMessage

from app.project.sandbox.scope import Program
from app.tools.process import start, yield_processor
from app.util.bounds import AnswerPassedLimit, require_few_values
from app.util.tasks import forget_failure
from app.workspace.lsp.server_messages import LspFailure

MAX_MESSAGE_BYTES = 2 * 1024 * 1024
MAX_UNREAD_BYTES = 8 * 1024 * 1024
"""How many bytes that are sent to it a server may leave unread."""
_MAX_HEADER_BYTES = 65536
"""The most bytes of all header lines of a message; it is also asyncio's limit for a line."""
_MAX_ITEMS = 100
"""How many items of its configuration a server may request at once."""
_MAX_ERROR_CHARS = 500
_SHARE = 4
"""Reading a server's messages takes 1/(1 + _SHARE) of the loop's time at most."""
_SILENT_LOG = logging.getLogger("pygls")
_SILENT_LOG.setLevel(logging.CRITICAL + 1)  # it would log whatever a server says

Diagnosed = Callable[[Any], None]


@cache
def _converter() -> Converter:
    """pygls' own converter makes a class for each unknown object in a message, with a name that the server chooses."""
    converter = converters.get_converter()
    for kind in (JsonRPCRequestMessage, JsonRPCResponseMessage, JsonRPCNotification):
        converter.register_structure_hook(kind, lambda message, kind: kind(**message))
    return converter


class _LspProtocol(JsonRPCProtocol):
    """Takes messages that have a handler, and answers, as plain JSON: lsprotocol's types refuse a whole message for one field
    that a server spells otherwise, as ruff's answer to `initialize`."""

    def handle_message(self, message: Any) -> None:
        if getattr(message, "method", None) != types.CANCEL_REQUEST:
            super().handle_message(message)


class _BoundedMessages:
    """A program's output as pygls reads it, within bounds on headers, messages and values. Pauses after each message, so that
    other tasks get the loop. The coroutines raise LspFailure, AnswerPassedLimit."""

    def __init__(self, output: asyncio.StreamReader, require_read: Callable[[], None]) -> None:
        self._output = output
        self._require_read = require_read
        self._message_given_at: float | None = None
        self._header_bytes = 0

    async def readline(self) -> bytes:
        if self._message_given_at is not None:
            await asyncio.sleep(_SHARE * (time.perf_counter() - self._message_given_at))
            self._message_given_at = None
        try:
            line = await self._output.readline()
        except ValueError:  # a longer line than asyncio reads
            line = bytes(_MAX_HEADER_BYTES + 1)
        self._header_bytes += len(line)
        if self._header_bytes > _MAX_HEADER_BYTES:
            raise LspFailure("it prints what is no message")
        return line

    async def readexactly(self, count: int) -> bytes:
        self._header_bytes = 0
        self._require_read()  # here too: the message may be a request, whose answer it would not read either
        if count > MAX_MESSAGE_BYTES:
            raise LspFailure(f"it sent a message of more than {MAX_MESSAGE_BYTES} bytes")
        body = await self._output.readexactly(count)
        require_few_values(body)
        self._message_given_at = time.perf_counter()
        return body


class LspClient:
    """A running program, made by `connected`."""

    def __init__(self, stdin: asyncio.StreamWriter, output: asyncio.StreamReader, rpc: JsonRPCClient) -> None:
        self._stdin = stdin
        self._rpc = rpc
        rpc.protocol.set_writer(stdin)
        messages = _BoundedMessages(output, self._require_read)
        reading = run_async(threading.Event(), messages, rpc.protocol, logger=_SILENT_LOG)
        self._reading: asyncio.Task[None] = asyncio.create_task(reading, name="read a language server")
        self._reading.add_done_callback(forget_failure)

    async def request(self, method: str, params: Any) -> Any:
        """The answer. Raises LspFailure for an error, and if the program has ended."""
        self._require_read()
        answer = self._rpc.protocol.send_request_async(method, params)
        try:
            await asyncio.wait({answer, self._reading}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise LspFailure("it has ended")
            return answer.result()
        except JsonRpcException as error:
            raise LspFailure(str(error)[:_MAX_ERROR_CHARS]) from error
        finally:
            answer.cancel()

    def notify(self, method: str, params: Any) -> None:
        """Raises LspFailure if the server does not read what it is sent."""
        self._require_read()
        if not self._stdin.is_closing():
            self._rpc.protocol.notify(method, params)

    def _require_read(self) -> None:
        if self._stdin.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._reading.cancel()
            raise LspFailure("it does not read what it is sent")

    def close(self) -> None:
        self._reading.cancel()
        self._stdin.close()

    async def ended(self) -> str:
        """Returns the reason when the program has ended, or broken the protocol."""
        await asyncio.wait({self._reading})
        error = None if self._reading.cancelled() else self._reading.exception()
        if isinstance(error, LspFailure | AnswerPassedLimit):
            return str(error)
        return "it does not read what it is sent" if self._reading.cancelled() else "it ended"


@asynccontextmanager
async def connected(program: Program, settings: Mapping[str, Any], diagnosed: Diagnosed) -> AsyncIterator[LspClient]:
    """Runs the program during the block. `settings`: what it gets when it asks for its configuration. Raises OSError."""
    async with start(program, stdin=PIPE, stderr=DEVNULL) as (process, output):
        yield_processor(process.pid)
        assert process.stdin is not None
        client = LspClient(process.stdin, output, _rpc_client(settings, diagnosed))
        try:
            yield client
        finally:
            client.close()


def _rpc_client(settings: Mapping[str, Any], diagnosed: Diagnosed) -> JsonRPCClient:
    rpc = JsonRPCClient(_LspProtocol, _converter)
    rpc.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: diagnosed(params))  # pygls sets an attribute of it

    def configuration(params: Any) -> list[Mapping[str, Any]]:
        return [settings for _ in params["items"][:_MAX_ITEMS]]

    rpc.feature(types.WORKSPACE_CONFIGURATION)(configuration)

    for method in (types.CLIENT_REGISTER_CAPABILITY, types.CLIENT_UNREGISTER_CAPABILITY, types.WINDOW_WORK_DONE_PROGRESS_CREATE):
        rpc.feature(method)(lambda params: None)
    return rpc
