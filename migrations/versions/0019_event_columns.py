"""Events of the journal have their type and their session as columns."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

IN_SQLITE = """
UPDATE event_journal SET
  type = json_extract(payload, '$.type'),
  session_id = CASE WHEN json_extract(payload, '$.type') NOT LIKE 'tui.%' THEN coalesce(
    json_extract(payload, '$.properties.sessionID'),
    json_extract(payload, '$.properties.info.sessionID'),
    json_extract(payload, '$.properties.part.sessionID'),
    CASE WHEN json_extract(payload, '$.type') LIKE 'session.%' THEN json_extract(payload, '$.properties.info.id') END
  ) END
WHERE CASE WHEN json_valid(payload) THEN json_type(payload, '$.type') = 'text' END
"""
"""A damaged payload says nothing."""

IN_POSTGRESQL = r"""
UPDATE event_journal SET
  type = event ->> 'type',
  session_id = CASE WHEN event ->> 'type' NOT LIKE 'tui.%' THEN coalesce(
    event #>> '{properties,sessionID}',
    event #>> '{properties,info,sessionID}',
    event #>> '{properties,part,sessionID}',
    CASE WHEN event ->> 'type' LIKE 'session.%' THEN event #>> '{properties,info,id}' END
  ) END
FROM (SELECT seq AS of, CAST(replace(payload, '\u0000', '\u0001') AS json) AS event FROM event_journal) AS parsed
WHERE seq = parsed.of AND event ->> 'type' IS NOT NULL
"""
"""It reads no JSON that has a NUL in it."""


def upgrade() -> None:
    op.add_column("event_journal", sa.Column("type", sa.String(), nullable=False, server_default=sa.text("''")))
    op.add_column("event_journal", sa.Column("session_id", sa.String(), nullable=True))
    op.execute(IN_SQLITE if op.get_bind().dialect.name == "sqlite" else IN_POSTGRESQL)
    op.create_index("event_by_session", "event_journal", ["session_id", "seq"])


def downgrade() -> None:
    op.drop_index("event_by_session", "event_journal")
    op.drop_column("event_journal", "session_id")
    op.drop_column("event_journal", "type")
