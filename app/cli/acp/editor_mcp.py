"""The MCP servers that an editor gives to a session. A server's are of a directory, so each has a name of its session's own, and
rules keep the others' tools from it. Pure."""

from typing import Any

from acp import RequestError
from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

Json = dict[str, Any]
EditorMcpServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

_MARK = "-acp-"


def mcp_name(name: str, session_id: str) -> str:
    return f"{name}{_MARK}{session_id[-8:]}"


def mcp_config(server: EditorMcpServer) -> Json:
    """Raises RequestError for one that only the editor reaches."""
    match server:
        case McpServerStdio():
            environment = {variable.name: variable.value for variable in server.env}
            return {"type": "local", "command": [server.command, *server.args], "environment": environment}
        case HttpMcpServer() | SseMcpServer():
            return {"type": "remote", "url": server.url, "headers": {header.name: header.value for header in server.headers}}
    raise RequestError.invalid_params({"details": f"The MCP server {server.name} has a transport that is not offered"})


def mcp_rules(session_id: str, agent: Json, *, has_own: bool) -> list[Json]:
    """Of the tools of editors' servers the session has its own alone, as far as the agent's rules for all tools go."""
    others = {"permission": f"*{_MARK}*", "pattern": "*", "action": "deny"}
    if not has_own:
        return [others]
    return [others, {"permission": f"*{_MARK}{session_id[-8:]}_*", "pattern": "*", "action": _action_for_all(agent)}]


def _action_for_all(agent: Json) -> str:
    """Of its last rule for every permission."""
    found = [rule["action"] for rule in agent.get("permission") or [] if rule["permission"] == "*" and rule["pattern"] == "*"]
    return str(found[-1]) if found else "ask"
