"""Adapts the tools of MCP servers."""

import hashlib
import re
from collections.abc import Iterable

from app.mcp.servers import McpServers
from app.mcp.values import McpFailure, McpTimeout, Offers, ServerTool
from app.tool.base import Arguments, ExternalTool, ToolContext, ToolError, ToolPermission, ToolResult, ToolTimeout

MAX_KEY_LENGTH = 64
"""Model providers reject a request that contains a tool with a longer name."""
_UNUSUAL = re.compile(r"[^a-zA-Z0-9_-]")


class McpTool(ExternalTool):
    def __init__(self, servers: McpServers, tool: ServerTool) -> None:
        super().__init__(tool_key(tool.server, tool.name), tool.description, tool.schema)
        self._servers = servers
        self._tool = tool

    async def execute(self, args: Arguments, ctx: ToolContext) -> ToolResult:
        await ctx.host.require_permission(ToolPermission(self.id, ["*"], ["*"]))
        try:
            content = await self._servers.call_tool(self._tool.server, self._tool.name, args.root)
        except McpFailure as failure:
            failed = ToolTimeout if isinstance(failure, McpTimeout) else ToolError
            raise failed(f"The MCP server {self._tool.server}: {failure}") from failure
        if content.is_error:
            raise ToolError(content.text or "The tool failed without saying why")
        return ToolResult(title="", output=content.text, attachments=list(content.files))


def mcp_tools(servers: McpServers, offers: Iterable[Offers]) -> list[McpTool]:
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
