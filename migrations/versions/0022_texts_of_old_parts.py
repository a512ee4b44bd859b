"""The texts of parts that were stored before there were any: all are there from now on, and no server goes on with them.

Newest first and in batches, so that the memory that it takes does not depend on how many there are. In PostgreSQL a running
server makes the index of them, as after 0021."""

import sqlalchemy as sa
from alembic import op

from app.sessions.rows import created_time, encode, searched_text

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

BATCH = 500
UNSEARCHED = "SELECT value FROM counter WHERE name = 'unsearched_parts'"
OLD_PARTS = """
SELECT part.seq, part.body, message.role, coalesce(message.live_body, message.body) AS message
FROM part JOIN message ON message.session_id = part.session_id AND message.id = part.message_id
WHERE part.seq <= :upto ORDER BY part.seq DESC LIMIT :batch
"""
PUT = """
INSERT INTO part_text (part_seq, role, kind, time, text) VALUES (:part_seq, :role, :kind, :time, :text)
ON CONFLICT (part_seq) DO NOTHING
"""


def upgrade() -> None:
    connection = op.get_bind()
    upto = connection.scalar(sa.text(UNSEARCHED)) or 0
    while parts := connection.execute(sa.text(OLD_PARTS), {"upto": upto, "batch": BATCH}).all():
        if texts := [row for part in parts if (row := text_of(part)) is not None]:
            connection.execute(sa.text(PUT), texts)
        upto = parts[-1].seq - 1
    op.execute("DELETE FROM counter WHERE name = 'unsearched_parts'")


def text_of(part: sa.Row[tuple[int, str, str, str]]) -> dict[str, object] | None:
    found = searched_text(part.body)
    if found is None:
        return None
    time = found.time or created_time(part.message)
    return {"part_seq": part.seq, "role": part.role, "kind": found.kind, "time": time, "text": encode(found.text)}


def downgrade() -> None:
    op.execute("INSERT INTO counter (name, value) VALUES ('unsearched_parts', 0)")
