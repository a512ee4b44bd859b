"""Cursors of the second API's pages: where a page begins or ends, and how its list is ordered."""

import base64
from typing import Any, Literal, TypeVar

import orjson

from app.api.v2.errors import InvalidCursorError, TaggedError
from app.schema.base import Wire

C = TypeVar("C", bound=Wire)
Order = Literal["asc", "desc"]


class PageEnds(Wire):
    """`previous` and `next` read what stands before and behind a page; none where it is empty."""

    previous: str | None = None
    next: str | None = None


class PageCursor(Wire):
    """A page that stands beside an `anchor`, before or behind it in time, in an order."""

    newer: bool
    order: Order

    def ends(self, first: str | None, last: str | None) -> PageEnds:
        """Of a page of this list between two items; None: the page is empty."""
        if first is None or last is None:
            return PageEnds()
        previous = self.model_copy(update={"anchor": first, "newer": self.order == "desc"})
        following = self.model_copy(update={"anchor": last, "newer": self.order == "asc"})
        return PageEnds(previous=write_cursor(previous), next=write_cursor(following))


def write_cursor(cursor: Wire) -> str:
    return base64.urlsafe_b64encode(cursor.wire_json()).decode().rstrip("=")


def read_cursor(kind: type[C], cursor: str) -> C:
    """Raises TaggedError."""
    try:
        content: Any = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return kind.model_validate(content)
    except ValueError:
        raise invalid_cursor() from None


def invalid_cursor(message: str = "Invalid cursor") -> TaggedError:
    return TaggedError(InvalidCursorError(message=message))
