"""Titles are searched as messages are: without accents and differences of width, too."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from app.record.text_search import fold

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

BATCH = 500
SESSIONS = "SELECT seq, body, title_folded FROM session WHERE seq > :after ORDER BY seq LIMIT :batch"
PUT = "UPDATE session SET title_folded = :folded WHERE seq = :seq"


def upgrade() -> None:
    connection, after = op.get_bind(), 0
    while rows := connection.execute(sa.text(SESSIONS), {"after": after, "batch": BATCH}).all():
        folded = [{"seq": row.seq, "folded": found} for row in rows if (found := title_of(row)) != row.title_folded]
        if folded:
            connection.execute(sa.text(PUT), folded)
        after = rows[-1].seq


def title_of(row: Any) -> Any:
    """A damaged one stays as it is."""
    try:
        return fold(json.loads(row.body)["title"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return row.title_folded


def downgrade() -> None:
    """What is written from then on is folded as it was."""
