"""What an MCP server offers and answers, in our words: the SDK's types stay behind `client` and `content`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.schema.part import FileContent


class McpFailure(Exception):
    """A request to a server failed; the message says why."""


class McpTimeout(McpFailure):
    """The server has not answered in time."""


class SignInNeeded(Exception):
    """The server requires a sign-in."""


@dataclass(frozen=True, slots=True)
class ServerTool:
    server: str
    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """`arguments` are their names, in the order in which a command takes them."""

    server: str
    name: str
    description: str | None
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerResource:
    server: str
    name: str
    uri: str
    description: str | None
    mime: str | None


@dataclass(frozen=True, slots=True)
class Offers:
    tools: tuple[ServerTool, ...] = ()
    prompts: tuple[ServerPrompt, ...] = ()
    resources: tuple[ServerResource, ...] = ()


@dataclass(frozen=True, slots=True)
class Content:
    """`files` are `data:` URLs."""

    texts: Sequence[str] = ()
    files: Sequence[FileContent] = ()
    is_error: bool = False

    @property
    def text(self) -> str:
        return "\n\n".join(self.texts)
