"""The tools of MCP servers, as tools of a turn."""

import hashlib
import re
from collections.abc import Iterable

from app.mcp.servers import McpServers
from app.mcp.values import McpFailure, Offers, ServerTool
from app.tool.base import Arguments, ForeignTool, PermissionAsk, ToolContext, ToolError, ToolResult

LONGEST_KEY = 64
"""Model providers refuse a whole request for one tool with a longer name."""
_UNUSUAL = re.compile(r"[^a-zA-Z0-9_-]")


class McpTool(ForeignTool):
    def __init__(self, servers: McpServers, tool: ServerTool) -> None:
        super().__init__(tool_key(tool.server, tool.name), tool.description, tool.schema)
        self._servers = servers
        self._tool = tool

    async def execute(self, args: Arguments, ctx: ToolContext) -> ToolResult:
        await ctx.host.ask(PermissionAsk(self.id, ["*"], ["*"]))
        try:
            content = await self._servers.call_tool(self._tool.server, self._tool.name, args.root)
        except McpFailure as failure:
            raise ToolError(f"The MCP server {self._tool.server}: {failure}") from failure
        if content.is_error:
            raise ToolError(content.text or "The tool failed without saying why")
        return ToolResult(title="", output=content.text, attachments=list(content.files))


def mcp_tools(servers: McpServers, offers: Iterable[Offers]) -> list[McpTool]:
    return [McpTool(servers, tool) for offered in offers for tool in offered.tools]


def tool_key(server: str, tool: str) -> str:
    """`<server>_<tool>` in the characters that every provider takes; one that is too long ends in a hash of itself."""
    key = f"{sanitised(server)}_{sanitised(tool)}"
    if len(key) <= LONGEST_KEY:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{key[: LONGEST_KEY - 9]}_{digest}"


def sanitised(name: str) -> str:
    return _UNUSUAL.sub("_", name)
