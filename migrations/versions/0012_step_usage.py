"""The ledger of usage, with what is stored of earlier steps.

A fork's copies of messages are older than the fork, and counted only where the original is gone.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

AT_ONCE = 5_000
"""Messages that are read, then counted: bounds the memory that a large database takes."""

SESSION = sa.table("session", *map(sa.column, ("id", "project_id", "directory", "owner", "body")))
MESSAGE = sa.table("message", *map(sa.column, ("seq", "session_id", "id", "role", "parent_id", "open", "body")))
PART = sa.table("part", *map(sa.column, ("seq", "session_id", "message_id", "id", "type", "body")))
COUNTS = ("input", "output", "reasoning", "cache_read", "cache_write")


def upgrade() -> None:
    ledger = op.create_table(
        "step_usage",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("directory", sa.String(), nullable=False),
        sa.Column("prompt_id", sa.String(), nullable=True),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("provider_id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in COUNTS),
        sa.Column("cost", sa.Float(), nullable=False),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("tool_calls", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "message_id", "id"),
    )
    op.create_index("step_usage_by_prompt", "step_usage", ["session_id", "prompt_id"])
    op.create_index("step_usage_by_time", "step_usage", ["time"])
    counted = _Counted()
    for messages, parts in _batches():
        rows = [row for message in messages for row in counted.rows(message, parts.get((message.session_id, message.id), []))]
        if rows:
            op.get_bind().execute(ledger.insert(), rows)


def downgrade() -> None:
    op.drop_table("step_usage")


def _batches() -> Iterator[tuple[list[Any], dict[tuple[str, str], list[Any]]]]:
    """Finished answers with their sessions, in their order, and their steps' ends and tool calls."""
    bodies = [MESSAGE.c.body.label("body"), SESSION.c.body.label("session_body")]
    of_session = SESSION.c.id == MESSAGE.c.session_id
    query = (
        sa.select(MESSAGE.c.seq, MESSAGE.c.session_id, MESSAGE.c.id, MESSAGE.c.parent_id)
        .add_columns(SESSION.c.project_id, SESSION.c.directory, SESSION.c.owner, *map(_readable, bodies))
        .join(SESSION, of_session)
        .where(MESSAGE.c.role == "assistant", sa.not_(MESSAGE.c.open))
        .order_by(MESSAGE.c.seq)
        .limit(AT_ONCE)
    )
    after = 0
    while messages := list(op.get_bind().execute(query.where(MESSAGE.c.seq > after))):
        yield messages, _parts(after, messages[-1].seq)
        after = messages[-1].seq


def _parts(after: int, last: int) -> dict[tuple[str, str], list[Any]]:
    of_message = (PART.c.session_id == MESSAGE.c.session_id) & (PART.c.message_id == MESSAGE.c.id)
    query = (
        sa.select(PART.c.session_id, PART.c.message_id, PART.c.id, PART.c.type)
        .add_columns(_readable(sa.case((PART.c.type == "step-finish", PART.c.body), else_="").label("body")))
        .select_from(MESSAGE)
        .join(PART, of_message)
        .where(MESSAGE.c.seq > after, MESSAGE.c.seq <= last, MESSAGE.c.role == "assistant")
        .where(PART.c.type.in_(["step-finish", "tool"]))
        .order_by(PART.c.seq)
    )
    parts: dict[tuple[str, str], list[Any]] = {}
    for row in op.get_bind().execute(query):
        parts.setdefault((row.session_id, row.message_id), []).append(row)
    return parts


def _readable(body: Any) -> Any:
    """As bytes in SQLite, whose texts may be damaged."""
    return sa.cast(body, sa.LargeBinary).label(body.name) if op.get_bind().dialect.name == "sqlite" else body


@dataclass
class _Counted:
    originals: set[bytes] = field(default_factory=set)
    prompts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def rows(self, message: Any, parts: list[Any]) -> Iterator[dict[str, Any]]:
        body = _parsed(message.body)
        if not body or self._is_counted_copy(message, body):
            return
        steps = [part for part in parts if part.type == "step-finish"]
        calls = sum(part.type == "tool" for part in parts)
        for step in steps or [None]:
            row = _row(message, body, step.id if step else message.id, _parsed(step.body) if step else {})
            yield {**row, "turns": self._turns(message, body), "tool_calls": calls}
            calls = 0

    def _is_counted_copy(self, message: Any, body: dict[str, Any]) -> bool:
        digest = hashlib.blake2b(_bytes(message.body), digest_size=8).digest()
        began = _number(_of(_parsed(message.session_body), "time").get("created"))
        is_copy = _number(_of(body, "time").get("created")) < began
        if is_copy and digest in self.originals:
            return True
        self.originals.add(digest)
        return False

    def _turns(self, message: Any, body: dict[str, Any]) -> int:
        prompt = (message.session_id, message.parent_id or message.id)
        self.prompts[prompt] += 1
        return int(self.prompts[prompt] == 1 and not body.get("summary"))


def _row(message: Any, body: dict[str, Any], row_id: str, step: dict[str, Any]) -> dict[str, Any]:
    time, tokens = _of(body, "time"), _of(step, "tokens")
    cache = _of(tokens, "cache")
    return {
        "id": row_id,
        "time": int(_number(time.get("completed") or time.get("created"))),
        "owner": message.owner,
        "project_id": message.project_id,
        "directory": message.directory,
        "session_id": message.session_id,
        "message_id": message.id,
        "prompt_id": message.parent_id,
        "agent": str(body.get("agent") or body.get("mode") or ""),
        "provider_id": str(body.get("providerID") or ""),
        "model_id": str(body.get("modelID") or ""),
        **{name: int(_number(tokens.get(name))) for name in ("input", "output", "reasoning")},
        "cache_read": int(_number(cache.get("read"))),
        "cache_write": int(_number(cache.get("write"))),
        "cost": float(_number(step.get("cost"))),
    }


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _of(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _parsed(body: str | bytes) -> dict[str, Any]:
    """A damaged body says nothing."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
