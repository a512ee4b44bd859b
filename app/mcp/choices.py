"""What clients choose at run time for a directory's MCP servers, as the servers of one database tell each other."""

import hashlib
from typing import Annotated

from pydantic import Field

from app.mcp.target import McpServerConfig
from app.schema.base import Wire

OWN_STATES = "mcp "
"""The names of all directory states of this package begin with it; the rest of a name is the MCP server's."""
CHOICE = "mcp choice "
TOOLS = "mcp tools "
SIGN_IN = "mcp sign-in "
CODE = "mcp code "
RESULT = "mcp result "


class McpChoice(Wire):
    """A server is to be connected, anew if it is, or to stay off. `added`: the configuration of one that was added at run time.
    `of`: the fingerprint of the configuration for which that was chosen."""

    enabled: bool
    of: str
    added: Annotated[McpServerConfig | None, Field(discriminator="type")] = None


def fingerprint(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogateescape")).hexdigest()
