"""Where the library `limits` counts on one server: bounded, by a clock that nobody sets. Imported when something is counted."""

import time
from collections import OrderedDict
from collections.abc import Callable

from limits.aio.storage import Storage

MOST_KEYS = 4096
"""The oldest are evicted first: an attacker with more addresses could not be recognised anyway."""


class BoundedMemory(Storage):
    """The library's own keeps every key until its window is over, and looks through all of them at each count."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.now = now
        self.windows: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By key: when its window ends, and how often it was hit."""

    @property
    def base_exceptions(self) -> type[Exception]:
        return ValueError

    def _window(self, key: str) -> tuple[float, int]:
        end, hits = self.windows.get(key, (0.0, 0))
        return (end, hits) if self.now() < end else (0.0, 0)

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        end, hits = self._window(key)
        self.windows[key] = (end if hits else self.now() + expiry, hits + amount)
        self.windows.move_to_end(key)
        if len(self.windows) > MOST_KEYS:
            self.windows.popitem(last=False)
        return hits + amount

    async def get(self, key: str) -> int:
        return self._window(key)[1]

    async def get_expiry(self, key: str) -> float:
        return self._window(key)[0]

    async def check(self) -> bool:
        return True

    async def reset(self) -> int | None:
        cleared = len(self.windows)
        self.windows.clear()
        return cleared

    async def clear(self, key: str) -> None:
        self.windows.pop(key, None)
