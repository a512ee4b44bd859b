"""The findings of `opensession doctor`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Level = Literal["fine", "note", "fault"]
"""`note`: worth knowing, but nothing is wrong."""


@dataclass(frozen=True)
class Finding:
    """`repair` describes how a fault is repaired and `act` repairs it. Without them, the user must repair it."""

    subject: str
    level: Level
    text: str
    repair: str | None = None
    act: Callable[[], object] | None = None
