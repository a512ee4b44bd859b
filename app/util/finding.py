"""What a look at something found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Level = Literal["fine", "note", "fault"]
"""`note`: worth knowing, nothing is wrong."""


@dataclass(frozen=True)
class Finding:
    """`mend` says what would put a fault right and `act` does it; without, it is a person's to mend."""

    subject: str
    level: Level
    text: str
    mend: str | None = None
    act: Callable[[], object] | None = None
