"""Cursors of pages: a place among the messages or parts of all sessions."""

from app.api.services import Services
from app.schema.errors import BadRequest
from app.users.principal import Principal

NEXT_CURSOR = "X-Next-Cursor"
CURSOR_PATTERN = r"^[\w-]{1,40}$"


def page_size(limit: float | None, cursor: str | None) -> int | None:
    """None: all."""
    if limit is None:
        return None if cursor is None else 100
    return max(int(min(limit, 1_000_000)), 1)


class PageCursors:
    """Sealed for members, as the ids of events are: the numbers would tell how much others do."""

    def __init__(self, app: Services, who: Principal, field: str, source: str) -> None:
        """`field` takes a cursor that `source` gave."""
        self._field, self._source = field, source
        name = who.visible_owner
        self._sealed = None if name is None else app.event_cursors.for_user(name)

    def write(self, seq: int) -> str:
        return self._sealed.seal(seq).decode() if self._sealed else str(seq)

    def header(self, seq: int | None) -> dict[str, str] | None:
        return None if seq is None else {NEXT_CURSOR: self.write(seq)}

    def read(self, cursor: str) -> int:
        """Raises BadRequest."""
        seq = self._sealed.open(cursor) if self._sealed else int(cursor) if _is_number(cursor) else -1
        if seq < 0:
            raise BadRequest(f"{self._field} is a cursor from {self._source}", [self._field], cursor)
        return seq


def _is_number(cursor: str) -> bool:
    return cursor.isascii() and cursor.isdigit() and len(cursor) < 19
