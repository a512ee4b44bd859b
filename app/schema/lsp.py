"""What language servers and formatters are, and what they say, as clients see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.schema.base import Wire


class LSPStatus(Wire):
    """`root` is relative to the directory that the request works in, empty for that itself."""

    id: str
    name: str
    root: str
    status: Literal["connected", "error"]


class FormatterStatus(Wire):
    """`enabled`: the program is there, and the project uses it."""

    name: str
    extensions: list[str]
    enabled: bool


@dataclass(slots=True)
class FileErrors:
    """What a language server finds wrong with a file: the first of its `total` errors, as LSP's Diagnostic has them."""

    items: list[Mapping[str, Any]] = field(default_factory=list)
    total: int = 0

    def add(self, other: "FileErrors") -> None:
        """Of another server."""
        self.items += other.items
        self.total += other.total
