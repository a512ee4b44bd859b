"""Calls third-party code, which may be slow, hang, raise anything, or not be a coroutine."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


async def call(function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
    """What the function returns or raises, as an Exception whatever it was. Raises TimeoutError after `seconds`.

    Coroutines run here, other functions in a thread of their own. What does not end in time, or is cancelled with its caller,
    is cancelled and not waited for.
    """
    task = asyncio.create_task(_result(function, args))
    task.add_done_callback(_retrieve)
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
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def resolve(result: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001  whatever it is, it belongs to the caller
            failure = _plain(error)
        with suppress(RuntimeError):  # the server has stopped meanwhile
            loop.call_soon_threadsafe(resolve, result, failure)

    threading.Thread(target=run, name="plugin", daemon=True).start()
    return future


def _plain(error: BaseException) -> Exception:
    """An exit would end the server, and StopIteration cannot pass through a future."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"it raised {type(error).__name__} {error}".rstrip())


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Marks the error of a call that nobody waits for as seen: asyncio would log it."""
    if not task.cancelled():
        task.exception()
