"""The findings of `opensession doctor`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Level = Literal["fine", "note", "fault"]
"""`note`: worth knowing, but nothing is wrong."""


@dataclass(frozen=True)
class Finding:
    """`mend` describes the repair of a fault and `act` performs it. Without them, the user must repair it."""

    subject: str
    level: Level
    text: str
    mend: str | None = None
    act: Callable[[], object] | None = None
