"""The plugins of the directories in use: loaded once per configuration, given the directory's events, closed with it."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from app.events.bus.listener import Listener
from app.events.bus.memory import MemoryBus
from app.project.config.loader import LoadedConfig
from app.project.location import Location
from app.tools.plugins.api import Hook, PluginInput
from app.tools.plugins.loading import Plugins, load_all
from app.tools.plugins.runner import HOOK_SECONDS, HookRunner

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ApiAccess:
    """How plugins reach this server: its address, and a client of its API that works in a directory."""

    server_url: str | None = None
    connect: Callable[[str], Any] = lambda directory: None


@dataclass(frozen=True)
class _OpenPlugins:
    """A directory's plugins, and the task that forwards events to them."""

    loaded: LoadedConfig
    loading: asyncio.Task[Plugins]
    forwarding: asyncio.Task[None]


class PluginHost:
    """`project_code`: plugins that a project itself brings run too."""

    def __init__(self, bus: MemoryBus, api_access: ApiAccess, *, project_code: bool, hook_seconds: float = HOOK_SECONDS) -> None:
        self._bus = bus
        self._project_code = project_code
        self._hook_seconds = hook_seconds
        self._api_access = api_access
        self._open: dict[str, _OpenPlugins] = {}

    async def open(self, location: Location, loaded: LoadedConfig) -> Plugins:
        """Plugins are loaded when a configuration is first seen, once even if several calls wait."""
        directory = location.directory
        if not loaded.plugins and not loaded.tools:
            self.close(directory)
            return Plugins(loaded.config)
        opened = self._open.get(directory)
        if opened is None or opened.loaded is not loaded:
            self.close(directory)
            loading = asyncio.create_task(self._load(location, loaded))
            forwarding = asyncio.create_task(self._forward_events(loading, directory), name=f"plugin events of {directory}")
            opened = self._open[directory] = _OpenPlugins(loaded, loading, forwarding)
        return await asyncio.shield(opened.loading)

    def close(self, directory: str) -> None:
        """The directory's plugins get no more events."""
        opened = self._open.pop(directory, None)
        if opened is not None:
            opened.forwarding.cancel()

    def close_all(self) -> None:
        for directory in list(self._open):
            self.close(directory)

    async def _load(self, location: Location, loaded: LoadedConfig) -> Plugins:
        project = {"id": location.project_id, "worktree": location.worktree, **({"vcs": "git"} if location.is_git else {})}
        directory, api = location.directory, self._api_access
        given = PluginInput(project, directory, location.worktree, api.server_url, api.connect(directory))
        return await load_all(loaded, given, project_code=self._project_code, hook_seconds=self._hook_seconds)

    async def _forward_events(self, loading: asyncio.Task[Plugins], directory: str) -> None:
        hooks = (await asyncio.shield(loading)).hooks
        async with asyncio.TaskGroup() as group:
            for plugin, hook in hooks.named.get("event", ()):
                subscribe = partial(Listener, self._bus.own, directory, keeps_open=False, user=None)
                group.create_task(forward(subscribe, hooks, plugin, hook))


async def forward(subscribe: Callable[[], Listener], hooks: HookRunner, plugin: str, hook: Hook) -> None:
    """Runs until the directory is closed. The queue of a plugin is bounded: one that falls behind loses the events in it."""
    while True:
        with closing(subscribe()) as listener:
            while frames := await listener.take():
                for frame in frames:
                    await hooks.notify(plugin, "event", hook, {"event": orjson.loads(frame.event.payload)})
        if not listener.fell_behind:
            return
        log.warning("plugin %s: its hook event is too slow; the events that waited for it were dropped", plugin)
