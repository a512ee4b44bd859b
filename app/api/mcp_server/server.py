"""The SDK's server: what it lists, and how a call is judged, made and answered."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import mcp_types as types
import orjson
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import ValidationError

from app import __version__
from app.api.client.client import ApiClient, ApiRefused
from app.api.mcp_server import resources
from app.api.mcp_server.tools import TOOLS
from app.api.mcp_server.turn import Report

Context = ServerRequestContext[Any, Any]
Connect = Callable[[Context], AbstractAsyncContextManager[ApiClient]]
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

    async def _list_tools(self, _: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.described() for tool in TOOLS.values()])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        kind = TOOLS.get(params.name)
        if kind is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name}. There are: {', '.join(TOOLS)}.")
        try:
            tool = kind.model_validate(params.arguments or {})
        except ValidationError as invalid:
            return _failed("; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in invalid.errors()))
        async with self._connect(context) as api:
            try:
                return _answer(await tool.call(api, _progress(context)))
            except ApiRefused as refused:
                return _failed(str(refused))

    async def _list_resources(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        async with self._connect(context) as api:
            try:
                return await resources.listed(api, params.cursor if params else None)
            except ApiRefused as refused:
                raise MCPError(types.INVALID_PARAMS, str(refused)) from None

    async def _list_templates(self, _: Context, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)

    async def _read_resource(self, context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        async with self._connect(context) as api:
            try:
                contents = await resources.read(api, params.uri)
            except ApiRefused as refused:
                raise MCPError(types.INVALID_PARAMS, str(refused), {"uri": params.uri}) from None
        return types.ReadResourceResult(contents=[contents])


def _answer(answer: dict[str, Any]) -> types.CallToolResult:
    """As structured content, and the same as text for clients that show only text: the answer's `text` is a block of its own."""
    rest, text = {name: value for name, value in answer.items() if name != "text"}, answer.get("text")
    texts = [*([orjson.dumps(rest).decode()] if rest else []), *([text] if text else [])]
    return types.CallToolResult(content=[types.TextContent(text=each) for each in texts], structured_content=answer)


def _failed(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


def _progress(context: Context) -> Report:
    """Reports progress to the client, if its call asked for that."""
    told = 0

    async def report(message: str) -> None:
        nonlocal told
        told += 1
        await context.session.report_progress(told, None, message)

    return report
