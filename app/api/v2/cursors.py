"""Cursors of the second API's pages: where a page begins or ends, and how its list is ordered."""

import base64
from typing import Any, TypeVar

import orjson

from app.api.v2.errors import InvalidCursorError, TaggedError
from app.schema.base import Wire

C = TypeVar("C", bound=Wire)


class PageEnds(Wire):
    """`previous` and `next` read what stands before and behind a page; none where it is empty."""

    previous: str | None = None
    next: str | None = None


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
