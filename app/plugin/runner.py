"""Calls the hooks of a directory's plugins, in load order. One that fails or hangs is logged with its plugin's name."""

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from app.plugin import limits
from app.plugin.api import Hook
from app.util.bounds import DEEPEST, plain_json

log = logging.getLogger(__name__)

HOOK_SECONDS = 10.0
"""A hook holds up what it is called for no longer than that."""

_AROUND = 10
"""Levels of a hook's output above a value that anybody may nest, such as a tool's arguments in a conversation."""
_FAILED = "plugin %s: its hook %s failed: %s"

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class NamedHooks:
    plugin: str
    hooks: Mapping[str, Hook]


class HookFailed(Exception):
    """For hooks that stand guard: what they were called for must not go on."""


class HookRunner:
    def __init__(self, plugins: Sequence[NamedHooks] = (), seconds: float = HOOK_SECONDS) -> None:
        self._seconds = seconds
        self.named: dict[str, list[tuple[str, Hook]]] = {}
        """By what they are called for, with their plugins."""
        for plugin in plugins:
            for name, hook in plugin.hooks.items():
                self.named.setdefault(name, []).append((plugin.plugin, hook))

    def plugins_with(self, name: str) -> list[str]:
        return [plugin for plugin, _ in self.named.get(name, ())]

    async def change(
        self, name: str, given: Json | None, output: Json, read: Callable[[Json], T], *, guards: bool = False
    ) -> T | None:
        """What the hooks made of `output`, read by `read`, which raises for what has another shape; None when none succeeded.
        What is no JSON has another shape, too.

        Each hook gets copies, of `given` (None: it is called without) and of the output as the hook before left it. A hook that
        fails changes nothing; with `guards` it raises HookFailed.
        """
        adopted: T | None = None
        for plugin, hook in self.named.get(name, ()):
            offered = copy.deepcopy(output)
            try:
                await self._call(hook, offered) if given is None else await self._call(hook, copy.deepcopy(given), offered)
                offered = plain_json(offered, DEEPEST + _AROUND)
                adopted = read(offered)
            except Exception as error:
                log.exception(_FAILED, plugin, name, error_text(error))
                if guards:
                    raise HookFailed(f"The plugin {plugin} stopped this: {error_text(error)}") from error
                continue
            output = offered
        return adopted

    async def notify(self, plugin: str, name: str, value: Json) -> None:
        """One plugin's hook, for something that it cannot change."""
        for owner, hook in self.named.get(name, ()):
            if owner != plugin:
                continue
            try:
                await self._call(hook, value)
            except Exception as error:
                log.exception(_FAILED, plugin, name, error_text(error))

    async def _call(self, hook: Hook, *args: Json) -> None:
        await limits.call(hook, *args, seconds=self._seconds)


def error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
