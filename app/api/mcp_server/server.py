"""The MCP server: what it lists, and how it checks, makes and answers a call; over HTTP, and over standard input and output."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cache
from typing import Any
from urllib.parse import quote

import httpx2
import mcp_types as types
import orjson
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from app import __version__
from app.api.client import ApiClient, ApiRefused, StreamingTransport
from app.api.mcp_server import resources
from app.api.mcp_server.tools import TOOLS
from app.api.mcp_server.turn import Report
from app.util.bounds import whole_characters
from app.util.processes import read_pipe

McpRequest = ServerRequestContext[Any, Any]
Connect = Callable[[McpRequest], AbstractAsyncContextManager[ApiClient]]
"""Opens the API as the sender of a request may use it."""

INSTRUCTIONS = """Coding sessions of an Opensession server: an agent that reads, writes and runs things in a project's directory.
Make a session with create_session, prompt it with prompt_session, which waits for the answer. The state `asking` means that the
agent waits: answer by answer_permission or answer_question, then call wait_for_session. What a session did to files is shown
by diff_session, and taken back by preview_revert and revert_session."""


class SessionsServer:
    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    def server(self) -> Server[Any]:
        return Server(
            "opensession",
            version=__version__,
            title="Opensession",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )

    async def _list_tools(self, _: McpRequest, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.described() for tool in TOOLS.values()])

    async def _call_tool(self, context: McpRequest, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool_class = TOOLS.get(params.name)
        if tool_class is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name}. There are: {', '.join(TOOLS)}.")
        try:
            tool = tool_class.model_validate(params.arguments or {})
        except ValidationError as invalid:
            return _failed("; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in invalid.errors()))
        async with self._connect(context) as api:
            try:
                return _answer(await tool.call(api, _progress(context)))
            except ApiRefused as refused:
                return _failed(str(refused))

    async def _list_resources(
        self, context: McpRequest, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        async with self._connect(context) as api:
            try:
                return await resources.listed(api, params.cursor if params else None)
            except ApiRefused as refused:
                raise MCPError(types.INVALID_PARAMS, str(refused)) from None

    async def _list_templates(
        self, _: McpRequest, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)

    async def _read_resource(self, context: McpRequest, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        async with self._connect(context) as api:
            try:
                contents = await resources.read(api, params.uri)
            except ApiRefused as refused:
                raise MCPError(types.INVALID_PARAMS, str(refused), {"uri": params.uri}) from None
        return types.ReadResourceResult(contents=[contents])


def _answer(answer: dict[str, Any]) -> types.CallToolResult:
    """As structured content, and the same as text for clients that show only text: the answer's `text` is a block of its own."""
    rest = {name: value for name, value in answer.items() if name != "text"}
    blocks = [orjson.dumps(rest).decode()] if rest else []
    if answer.get("text"):
        blocks.append(answer["text"])
    return types.CallToolResult(content=[types.TextContent(text=each) for each in blocks], structured_content=answer)


def _failed(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


def _progress(context: McpRequest) -> Report:
    """Reports progress to the client, if its call asked for that."""
    reports = 0

    async def report(message: str) -> None:
        nonlocal reports
        reports += 1
        await context.session.report_progress(reports, None, message)

    return report


# One request of `/mcp-server`: Streamable HTTP without sessions, so that any of several servers may answer, and nothing is kept
# for a client that has disconnected. The tools call the API in this process, with the login of the request.

DIRECTORY = "opensession.mcp_directory"
"""The key in a request's scope for the directory that the request names."""
_FORWARDED_HEADERS = ("host", "authorization", "traceparent", "tracestate")

for _name in ("mcp.server.streamable_http", "mcp.server.streamable_http_manager"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # it logs the beginning and the end of each request


async def answer_over_http(scope: Scope, receive: Receive, send: Send, *, max_body_bytes: int) -> None:
    """`scope` is the request's, with its FastAPI application."""
    manager = StreamableHTTPSessionManager(_server(), stateless=True, max_request_body_size=max_body_bytes)
    async with manager.run():
        await manager.handle_request(scope, receive, send)


@cache
def _server() -> Server[Any]:
    return SessionsServer(_api_client).server()


@asynccontextmanager
async def _api_client(context: McpRequest) -> AsyncIterator[ApiClient]:
    """An event stream that ends is not reconnected: usually the server is stopping, or the login has ended."""
    request: Any = context.request
    scope, given = request.scope, request.headers
    transport = StreamingTransport(scope["app"], scope.get("client"))
    forwarded = {name: given[name] for name in _FORWARDED_HEADERS if name in given}
    headers = {**forwarded, **({"x-opencode-directory": quote(scope[DIRECTORY])} if scope.get(DIRECTORY) else {})}
    url = f"{scope['scheme']}://127.0.0.1"  # the host of the request is in the header `host`
    async with httpx2.AsyncClient(transport=transport, base_url=url, headers=headers, timeout=None) as http:
        yield ApiClient(http, "The server", resumes=False)


# Standard input and output, for the program that started this one.

MAX_LINE_CHARACTERS = 32 * 1024 * 1024


async def serve_over_stdio(api: ApiClient) -> None:
    """Serves until standard input ends, or a signal; turns that were prompted here and still run are aborted then."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    server = SessionsServer(lambda _: nullcontext(api)).server()
    # Not read in a thread, as the SDK does: a signal could not end the process while that thread reads.
    given, _ = await read_pipe(os.dup(sys.stdin.fileno()), MAX_LINE_CHARACTERS)
    async with stdio_server(stdin=_lines(given)) as (read, write):  # type: ignore[arg-type]  # it only reads line by line
        await server.run(read, write, server.create_initialization_options())


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """The lines that are not too long. Half of a surrogate pair is replaced: the SDK would not answer a request that has one."""
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            print(f"A line of more than {MAX_LINE_CHARACTERS} bytes is passed over", file=sys.stderr)
            continue
        if not line:
            return
        yield whole_characters(line).decode(errors="replace")
