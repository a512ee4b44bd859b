"""Copies the messages and parts of a session into another one, under new ids: no row leaves the database.

A new id has the form of `app.util.ids`. Its number is the row's sequence and an offset, so that ids ascend as the rows do.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Text, and_, bindparam, case, false, func, insert, literal_column, or_, select
from sqlalchemy.sql.base import Executable

from app.storage.tables import MESSAGE, PART, PART_TEXT
from app.util.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HistoryCopy:
    """Of the finished messages with a sequence below `before`. The offsets are those of the numbers, `letters` end each id."""

    source: str
    target: str
    before: int
    message_offset: int
    part_offset: int
    letters: str


_DIGITS: dict[str, Callable[[ColumnElement[int]], ColumnElement[str]]] = {
    "sqlite": lambda number: func.printf("%012x", number, type_=Text),
    "postgresql": lambda number: func.lpad(func.to_hex(number), 12, "0", type_=Text),
}
_48_BITS = (1 << 48) - 1
_SOURCE, _TARGET = bindparam("source", type_=Text), bindparam("target", type_=Text)
_COPIED = and_(
    MESSAGE.c.session_id == _SOURCE,
    MESSAGE.c.seq < bindparam("before", type_=BigInteger),
    or_(MESSAGE.c.role == "user", ~MESSAGE.c.open),
)


class CopiedIds:
    def __init__(self, dialect: str) -> None:
        self._digits = _DIGITS[dialect]

    def message(self, of: Any) -> ColumnElement[str]:
        return self._id("msg", "message_offset", of)

    def part(self, of: Any) -> ColumnElement[str]:
        return self._id("prt", "part_offset", of)

    def _id(self, prefix: str, offset: str, of: Any) -> ColumnElement[str]:
        number = (bindparam(offset, type_=BigInteger) + of.c.seq).bitwise_and(literal_column(str(_48_BITS), BigInteger))
        return literal_column(f"'{prefix}_'", Text) + self._digits(number) + bindparam("letters", type_=Text)


def copying_statements(dialect: str) -> tuple[Executable, ...]:
    """To be executed in their order, with the fields of a HistoryCopy."""
    new_id = CopiedIds(dialect)
    return _copy_messages(new_id), _copy_parts(new_id), _copy_texts(new_id)


def _copy_messages(new_id: CopiedIds) -> Executable:
    prompt = MESSAGE.alias("prompt")
    of_parent = and_(
        prompt.c.session_id == _SOURCE, prompt.c.id == MESSAGE.c.parent_id, prompt.c.seq < bindparam("before", type_=BigInteger)
    )
    values = {
        "session_id": _TARGET,
        "id": new_id.message(MESSAGE),
        "parent_id": case((prompt.c.seq.is_(None), MESSAGE.c.parent_id), else_=new_id.message(prompt)),
        "open": false(),
        **{name: MESSAGE.c[name] for name in ("role", "boundary", "body", "live_body")},
    }
    rows = select(*values.values()).select_from(MESSAGE).outerjoin(prompt, of_parent).where(_COPIED).order_by(MESSAGE.c.seq)
    return insert(MESSAGE).from_select(list(values), rows, include_defaults=False)


_PARTS_OF_COPIED = and_(PART.c.session_id == _SOURCE, PART.c.message_id == MESSAGE.c.id)


def _copy_parts(new_id: CopiedIds) -> Executable:
    values = {
        "session_id": _TARGET,
        "message_id": new_id.message(MESSAGE),
        "id": new_id.part(PART),
        **{name: PART.c[name] for name in ("type", "body", "live_body", "snapshot")},
    }
    rows = select(*values.values()).select_from(MESSAGE).join(PART, _PARTS_OF_COPIED).where(_COPIED)
    return insert(PART).from_select(list(values), rows.order_by(MESSAGE.c.seq, PART.c.seq), include_defaults=False)


def _copy_texts(new_id: CopiedIds) -> Executable:
    copy = PART.alias("copy")
    of_copy = and_(copy.c.session_id == _TARGET, copy.c.message_id == new_id.message(MESSAGE), copy.c.id == new_id.part(PART))
    values = {"part_seq": copy.c.seq, **{name: PART_TEXT.c[name] for name in ("role", "kind", "time", "text")}}
    rows = select(*values.values()).select_from(MESSAGE).join(PART, _PARTS_OF_COPIED)
    rows = rows.join(PART_TEXT, PART_TEXT.c.part_seq == PART.c.seq).join(copy, of_copy).where(_COPIED)
    return insert(PART_TEXT).from_select(list(values), rows, include_defaults=False)
