"""Pages of what has an order, from one that a client has seen."""

from dataclasses import dataclass

from app.schema.errors import NotFound


class UnknownAnchor(NotFound):
    """Of a page that begins beside it."""

    def __init__(self, anchor: str) -> None:
        super().__init__(f"{anchor} is not there any more")


@dataclass(frozen=True, slots=True)
class PageBeside:
    """`limit` of them beside the one with the id `anchor`, `newer` or older than it; without an anchor the first ones in the
    order that is wanted."""

    limit: int
    newest_first: bool = True
    anchor: str | None = None
    newer: bool = False

    @property
    def upward(self) -> bool:
        """From older ones to newer ones."""
        return self.newer if self.anchor is not None else not self.newest_first
