"""Tools from elsewhere: those of plugins and `{tool,tools}/*.py` files, and those of MCP servers."""

import asyncio
import hashlib
import logging
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, create_model

from app.project.sandbox.sandbox import Sandbox
from app.tools import process
from app.tools.base import Arguments, ExternalTool, Tool, ToolContext, ToolError, ToolPermission, ToolResult, ToolTimeout
from app.tools.command_output import CommandOutput
from app.tools.mcp.servers import McpServers
from app.tools.mcp.values import McpFailure, McpTimeout, ServerOffers, ServerTool
from app.tools.plugins import runner
from app.tools.plugins.api import PluginCommandEnd
from app.tools.plugins.api import PluginTool as Definition
from app.tools.plugins.api import PluginToolResult as CustomResult
from app.util.bounds import plain_json

log = logging.getLogger(__name__)

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The tool names that providers accept."""

MAX_KEY_LENGTH = 64
"""Model providers reject a request that contains a tool with a longer name."""
_UNUSUAL = re.compile(r"[^a-zA-Z0-9_-]")


class _Description(BaseModel):
    description: str
    schema_: dict[str, Any] = Field(alias="schema")


class _Result(BaseModel):
    title: str
    output: str
    metadata: dict[str, Any]


class CustomTool(Tool[BaseModel]):
    """Asks the permission named after its id before it runs. Raises ValueError, or a Pydantic error, for a name or arguments that
    no model can be given."""

    def __init__(self, id: str, definition: Definition, sandbox: Sandbox, environment: Mapping[str, str]) -> None:
        if not _ID.fullmatch(id):
            raise ValueError("a tool's name has at most 64 letters, digits, _ and -")
        self.id = id
        self._definition = definition
        self._sandbox = sandbox
        self._environment = environment
        self.description = definition.description
        args = definition.args
        if isinstance(args, type):
            self.parameters = args
        elif isinstance(args, Mapping) and args.get("type") == "object":
            self.parameters, self.schema = Arguments, dict(args)
        else:
            self.parameters = create_model("Arguments", **args)
        _Description.model_validate(plain_json({"description": self.description, "schema": self.schema}))

    async def execute(self, args: BaseModel, ctx: ToolContext) -> ToolResult:
        await ctx.host.require_permission(ToolPermission(self.id, ["*"], ["*"]))
        context = CallContext(ctx, self._sandbox, self._environment)
        try:
            result = await runner.call(self._definition.execute, self._arguments(args), context)
        except asyncio.CancelledError:
            context.abort.set()
            raise
        return self._checked(result)

    def _checked(self, result: Any) -> ToolResult:
        """Raises ToolError for a result that cannot be stored."""
        if not isinstance(result, str | CustomResult):
            raise ToolError(f"The tool {self.id} returned {type(result).__name__} and not text")
        given = result if isinstance(result, CustomResult) else CustomResult(result)
        try:
            checked = _Result.model_validate(plain_json(vars(given)))
        except ValueError as error:
            raise ToolError(f"The tool {self.id} returned what cannot be stored: {error}") from error
        return ToolResult(checked.title, checked.output, checked.metadata)

    def _arguments(self, args: BaseModel) -> Any:
        if isinstance(args, Arguments):
            return args.root
        return args if isinstance(self._definition.args, type) else dict(args)


class CallContext:
    """Implements app.tools.plugins.api.ToolContext for one call."""

    def __init__(self, ctx: ToolContext, sandbox: Sandbox, environment: Mapping[str, str]) -> None:
        self._host = ctx.host
        self._workspace = ctx.sandbox_workspace
        self._sandbox = sandbox
        self._environment = environment
        self.session_id = ctx.session_id
        self.message_id = ctx.message_id
        self.agent = ctx.agent.name
        self.directory = str(ctx.directory)
        self.abort = threading.Event()

    async def run(self, command: Sequence[str], timeout: float = 120) -> PluginCommandEnd:
        output = CommandOutput()
        program = await asyncio.to_thread(self._sandbox.program, command, self._workspace, self._environment)
        ended = await process.run(program, timeout=timeout, on_output=output.add)
        return PluginCommandEnd(ended.code, output.text())

    async def metadata(self, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        await self._host.update(title=title, metadata=plain_json(metadata))

    async def ask(
        self, permission: str, patterns: list[str], always: list[str] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        await self._host.require_permission(ToolPermission(permission, patterns, always or [], plain_json(metadata or {})))


def custom_tools(definitions: Mapping[str, Definition], sandbox: Sandbox, environment: Mapping[str, str]) -> list[CustomTool]:
    """Logs and leaves out a tool with an invalid definition."""
    tools = []
    for id, definition in definitions.items():
        try:
            tools.append(CustomTool(id, definition, sandbox, environment))
        except Exception as error:
            log.exception("tool %s is left out: %s", id, error)
    return tools


class McpTool(ExternalTool):
    def __init__(self, servers: McpServers, tool: ServerTool) -> None:
        super().__init__(tool_key(tool.server, tool.name), tool.description, tool.schema)
        self._servers = servers
        self._tool = tool

    async def execute(self, args: Arguments, ctx: ToolContext) -> ToolResult:
        await ctx.host.require_permission(ToolPermission(self.id, ["*"], ["*"]))
        try:
            connection = await self._servers.connection(self._tool.server)
            content = await connection.call_tool(self._tool.name, args.root)
        except McpFailure as failure:
            failed = ToolTimeout if isinstance(failure, McpTimeout) else ToolError
            raise failed(f"The MCP server {self._tool.server}: {failure}") from failure
        if content.is_error:
            raise ToolError(content.text or "The tool failed without saying why")
        return ToolResult(title="", output=content.text, attachments=list(content.files))


def mcp_tools(servers: McpServers, offers: Iterable[ServerOffers]) -> list[McpTool]:
    return [McpTool(servers, tool) for offered in offers for tool in offered.tools]


def tool_key(server: str, tool: str) -> str:
    """`<server>_<tool>` in characters that every provider accepts. A key that is too long is cut and ends in its hash."""
    key = f"{sanitised(server)}_{sanitised(tool)}"
    if len(key) <= MAX_KEY_LENGTH:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{key[: MAX_KEY_LENGTH - 9]}_{digest}"


def sanitised(name: str) -> str:
    return _UNUSUAL.sub("_", name)
