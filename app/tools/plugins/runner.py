"""Calls third-party code, above all the hooks of a directory's plugins, in load order. Such code may be slow, hang, raise
anything, or not be a coroutine. A hook that fails or hangs is logged with its plugin's name."""

import asyncio
import copy
import inspect
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from app.tools.plugins.api import Hook
from app.util.bounds import DEEPEST, plain_json
from app.util.tasks import forget_failure

log = logging.getLogger(__name__)
HOOK_SECONDS = 10.0
"""The longest time that one hook delays its caller."""
_AROUND = 10
"""Levels of a hook's output above a value that anybody may nest, such as a tool's arguments in a conversation."""
_FAILED = "plugin %s: its hook %s failed: %s"
Json = dict[str, Any]
T = TypeVar("T")


async def call(function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
    """Returns what the function returns. Raises what it raises, always as an Exception, and TimeoutError after `seconds`.

    Coroutines run here, other functions in a thread of their own. A call that takes too long, or whose caller is cancelled, is
    cancelled and not waited for.
    """
    task = asyncio.create_task(_result(function, args))
    task.add_done_callback(forget_failure)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        finished = task.done()
        task.cancel()
    if not finished:
        raise TimeoutError(f"it took longer than {seconds:g} s and was cut")
    if task.cancelled():
        raise RuntimeError("it cancelled itself")
    return task.result()


async def _result(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        result = function(*args) if inspect.iscoroutinefunction(function) else await _in_thread(function, args)
        return await result if inspect.isawaitable(result) else result
    except (SystemExit, KeyboardInterrupt) as error:
        raise _plain(error) from error


def _in_thread(function: Callable[..., Any], args: tuple[Any, ...]) -> asyncio.Future[Any]:
    """Uses a new thread, because a hanging call would block a thread of a shared pool forever."""
    future = Future[Any]()
    future.set_running_or_notify_cancel()  # so that it cannot be cancelled, and takes its result

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001  whatever it is, it belongs to the caller
            future.set_exception(_plain(error))

    threading.Thread(target=run, name="plugin", daemon=True).start()
    return asyncio.wrap_future(future)


def _plain(error: BaseException) -> Exception:
    """An exit would end the server, and StopIteration cannot pass through a future."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"it raised {type(error).__name__} {error}".rstrip())


class HookFailed(Exception):
    """A hook that guards an action has failed: the action must not happen."""


class HookRunner:
    def __init__(self, plugins: Sequence[tuple[str, Mapping[str, Hook]]] = (), seconds: float = HOOK_SECONDS) -> None:
        """`plugins`: their names and hooks, in load order."""
        self._seconds = seconds
        self.named: dict[str, list[tuple[str, Hook]]] = {}
        """By the hook's name, with their plugins."""
        for plugin, hooks in plugins:
            for name, hook in hooks.items():
                self.named.setdefault(name, []).append((plugin, hook))

    async def change(
        self, name: str, given: Json | None, output: Json, read: Callable[[Json], T], *, guards: bool = False
    ) -> T | None:
        """The `output` as the hooks have changed it, read by `read`, which raises for a wrong shape; None if no hook succeeded.
        Output that is no JSON has a wrong shape, too.

        Each hook gets copies, of `given` (None: the hook is called without) and of the output as the hook before left it. A hook
        that fails changes nothing; with `guards` it raises HookFailed.
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

    async def notify(self, plugin: str, name: str, hook: Hook, value: Json) -> None:
        """Calls one plugin's hook, which cannot change `value`."""
        try:
            await self._call(hook, value)
        except Exception as error:
            log.exception(_FAILED, plugin, name, error_text(error))

    async def _call(self, hook: Hook, *args: Json) -> None:
        await call(hook, *args, seconds=self._seconds)


def error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
