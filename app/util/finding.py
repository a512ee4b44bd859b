"""The findings of `opensession doctor`."""

from collections.abc import Callable
from typing import Literal

from app.util.dataclass import dataclass

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
