"""Copies the messages and parts of a session into another one, under new ids: no row leaves the database.

A new id has the form of `app.util.ids`. Its number is the row's sequence and an offset, so that ids ascend as the rows do.
The statements are text: SQLAlchemy takes as long to make them of expressions as the database to copy a hundred turns.
"""

from dataclasses import dataclass

from sqlalchemy import TextClause, text


@dataclass(frozen=True, slots=True)
class HistoryCopy:
    """Of the finished messages with a sequence below `before`. The offsets are those of the numbers, `letters` end each id."""

    source: str
    target: str
    before: int
    message_offset: int
    part_offset: int
    letters: str


_DIGITS = {"sqlite": "printf('%012x', {number})", "postgresql": "lpad(to_hex({number}), 12, '0')"}
_48_BITS = (1 << 48) - 1
_COPIED = "message.session_id = :source AND message.seq < :before AND (message.role = 'user' OR NOT message.open)"
_PART_OF_COPIED = "part.session_id = :source AND part.message_id = message.id"


def copying_statements(dialect: str) -> tuple[TextClause, ...]:
    """To be executed in their order, with the fields of a HistoryCopy."""
    message, part = _new_id(dialect, "msg", "message.seq + :message_offset"), _new_id(dialect, "prt", "part.seq + :part_offset")
    prompt = _new_id(dialect, "msg", "prompt.seq + :message_offset")
    copies = (_copy_messages(message, prompt), _copy_parts(message, part), _copy_texts(message, part))
    return tuple(text(copy) for copy in copies)


def _new_id(dialect: str, prefix: str, number: str) -> str:
    return f"'{prefix}_' || {_DIGITS[dialect].format(number=f'({number}) & {_48_BITS}')} || :letters"


def _copy_messages(new_message: str, new_prompt: str) -> str:
    return f"""
        INSERT INTO message (session_id, id, parent_id, open, role, boundary, body, live_body)
        SELECT :target, {new_message}, CASE WHEN prompt.seq IS NULL THEN message.parent_id ELSE {new_prompt} END, false,
               message.role, message.boundary, message.body, message.live_body
        FROM message
        LEFT JOIN message AS prompt ON prompt.session_id = :source AND prompt.id = message.parent_id AND prompt.seq < :before
        WHERE {_COPIED}
        ORDER BY message.seq"""


def _copy_parts(new_message: str, new_part: str) -> str:
    return f"""
        INSERT INTO part (session_id, message_id, id, type, body, live_body, snapshot)
        SELECT :target, {new_message}, {new_part}, part.type, part.body, part.live_body, part.snapshot
        FROM message JOIN part ON {_PART_OF_COPIED}
        WHERE {_COPIED}
        ORDER BY message.seq, part.seq"""


def _copy_texts(new_message: str, new_part: str) -> str:
    return f"""
        INSERT INTO part_text (part_seq, role, kind, time, text)
        SELECT copy.seq, part_text.role, part_text.kind, part_text.time, part_text.text
        FROM message JOIN part ON {_PART_OF_COPIED} JOIN part_text ON part_text.part_seq = part.seq
        JOIN part AS copy ON copy.session_id = :target AND copy.message_id = {new_message} AND copy.id = {new_part}
        WHERE {_COPIED}"""
