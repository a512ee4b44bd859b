"""MCP servers as clients see them."""

from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Wire


class MCPStatusConnected(Wire):
    status: Literal["connected"] = "connected"


class MCPStatusDisabled(Wire):
    status: Literal["disabled"] = "disabled"


class MCPStatusFailed(Wire):
    status: Literal["failed"] = "failed"
    error: str


class MCPStatusNeedsAuth(Wire):
    status: Literal["needs_auth"] = "needs_auth"


class MCPStatusNeedsClientRegistration(Wire):
    status: Literal["needs_client_registration"] = "needs_client_registration"
    error: str


MCPStatus = Annotated[
    MCPStatusConnected | MCPStatusDisabled | MCPStatusFailed | MCPStatusNeedsAuth | MCPStatusNeedsClientRegistration,
    Field(discriminator="status"),
]


class McpResource(Wire):
    """`client` is the server's name."""

    name: str
    uri: str
    description: str | None = None
    mime_type: str | None = None
    client: str
