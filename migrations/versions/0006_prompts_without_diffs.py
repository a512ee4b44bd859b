"""A prompt has a body without its diffs beside the whole one, for turns to read."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("message", sa.Column("live_body", sa.Text(), nullable=True))
    connection = op.get_bind()
    message = sa.table("message", sa.column("seq"), sa.column("role"), sa.column("body"), sa.column("live_body"))
    with_diffs = sa.select(message.c.seq).where(message.c.role == "user", message.c.body.contains('"diffs":[{', autoescape=True))
    for seq in connection.execute(with_diffs).scalars().all():
        body = connection.execute(sa.select(message.c.body).where(message.c.seq == seq)).scalar_one()
        connection.execute(sa.update(message).where(message.c.seq == seq).values(live_body=_without_diffs(body)))


def _without_diffs(body: str) -> str | None:
    try:
        value = json.loads(body)
        value["summary"]["diffs"] = []
    except (ValueError, KeyError, TypeError):
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def downgrade() -> None:
    op.drop_column("message", "live_body")
