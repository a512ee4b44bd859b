"""MCP servers, language servers and formatters as clients see them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

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


class LSPStatus(Wire):
    """`root` is relative to the directory that the request works in, empty for that itself."""

    id: str
    name: str
    root: str
    status: Literal["connected", "error"]


class FormatterStatus(Wire):
    """`enabled`: the program is there, and the project uses it."""

    name: str
    extensions: list[str]
    enabled: bool


@dataclass(slots=True)
class FileErrors:
    """What a language server finds wrong with a file: the first of its `total` errors, as LSP's Diagnostic has them."""

    items: list[Mapping[str, Any]] = field(default_factory=list)
    total: int = 0

    def add(self, other: "FileErrors") -> None:
        """Of another server."""
        self.items += other.items
        self.total += other.total
