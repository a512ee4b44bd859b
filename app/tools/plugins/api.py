"""The types that plugins are written with. A plugin may import them, needs nothing else of this server, and works without them.

    async def plugin(input: PluginInput) -> Hooks:
        async def params(input, output):
            output["temperature"] = 0
        return {"chat.params": params}

A hook is called with `input` and `output`, both JSON in the API's own names (`sessionID`, `topP`), and changes `output` in place.
It may be a coroutine function, or a plain one, which runs in a thread. `event` and `config` are called with one value.
docs/plugins.md shows every hook.
"""

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

from pydantic import BaseModel

Hook = Callable[..., Awaitable[None] | None]

PluginToolArgs = type[BaseModel] | Mapping[str, Any]


@dataclass(frozen=True)
class PluginInput:
    """`project` is {id, worktree, vcs?}; `worktree` the checkout's top (`/` outside git). `client`: an `httpx2.AsyncClient` of
    this server's API that works in `directory`, for hooks. The plugin function may not use it: requests wait until that returns,
    so its own would time out."""

    project: Mapping[str, Any]
    directory: str
    worktree: str
    server_url: str | None = None
    client: Any = None


@dataclass(frozen=True)
class PluginToolResult:
    """`metadata` is JSON: a result that cannot be written as such ends the call with an error."""

    output: str
    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


class PluginToolContext(Protocol):
    """One call of a tool. `abort` is set when the call is aborted; a coroutine is cancelled as well."""

    session_id: str
    message_id: str
    agent: str
    directory: str
    abort: threading.Event

    async def run(self, command: Sequence[str], timeout: float = 120) -> "PluginCommandEnd":
        """Runs a program in the session's directory, in the sandbox if that is on; returns its output and errors as one text.
        Programs that a tool starts itself (`subprocess`) run outside. Raises OSError if the program cannot be started."""
        ...

    async def metadata(self, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        """Shows progress on the running call. Raises ValueError for metadata that is no JSON."""
        ...

    async def ask(
        self, permission: str, patterns: list[str], always: list[str] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Asks for permission. Returns if it is granted; raises an error that ends the call otherwise."""
        ...


@dataclass(frozen=True)
class PluginCommandEnd:
    """`code` is None if a signal ended the program, or it took too long."""

    code: int | None
    output: str


@dataclass(frozen=True)
class PluginTool:
    """`args`: a Pydantic model, a JSON schema of type object, or `{name: type}`; `execute(args, context)` gets an instance of the
    model, else a dict. Arguments are checked before it is called, except those of a JSON schema."""

    description: str
    args: PluginToolArgs
    execute: Callable[[Any, PluginToolContext], Awaitable[str | PluginToolResult] | str | PluginToolResult]


Hooks = TypedDict(
    "Hooks",
    {
        "event": Hook,
        "config": Hook,
        "tool": Mapping[str, PluginTool | Mapping[str, Any]],
        "chat.message": Hook,
        "chat.params": Hook,
        "chat.headers": Hook,
        "permission.ask": Hook,
        "command.execute.before": Hook,
        "tool.execute.before": Hook,
        "tool.execute.after": Hook,
        "experimental.chat.messages.transform": Hook,
        "experimental.chat.system.transform": Hook,
        "experimental.session.compacting": Hook,
        "experimental.text.complete": Hook,
    },
    total=False,
)

HOOK_NAMES = frozenset(Hooks.__annotations__) - {"tool"}


Tool, ToolContext, ToolResult = PluginTool, PluginToolContext, PluginToolResult
"""Names for plugins; the tools of this server have classes of their own by these names."""
