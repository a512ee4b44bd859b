"""The first schema: sessions, messages, parts, what belongs to them, the journal and the lease."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "counter",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "event_journal",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("directory", sa.String(), nullable=True),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    with op.batch_alter_table("event_journal", schema=None) as batch_op:
        batch_op.create_index("event_by_time", ["time"], unique=False)

    op.create_table(
        "permission_approval",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("permission", sa.String(), nullable=False),
        sa.Column("pattern", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "permission", "pattern"),
    )
    with op.batch_alter_table("permission_approval", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_permission_approval_session_id"), ["session_id"], unique=False)

    op.create_table(
        "project",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("updated", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "session",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("directory", sa.String(), nullable=False),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("title_folded", sa.String(), nullable=False),
        sa.Column("updated", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("session", schema=None) as batch_op:
        batch_op.create_index("session_by_parent", ["parent_id", "seq"], unique=False)
        batch_op.create_index("session_by_project", ["project_id", "seq"], unique=False)

    op.create_table(
        "message",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("boundary", sa.Boolean(), nullable=False),
        sa.Column("input_hash", sa.String(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("session_id", "id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("message", schema=None) as batch_op:
        batch_op.create_index("message_by_session", ["session_id", "seq"], unique=False)
        batch_op.create_index("message_open", ["open"], unique=False)

    op.create_table(
        "part",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("session_id", "message_id", "id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("part", schema=None) as batch_op:
        batch_op.create_index("part_by_session", ["session_id", "seq"], unique=False)
        batch_op.create_index("part_by_type", ["session_id", "type", "seq"], unique=False)

    op.create_table(
        "pending_ask",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("directory", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("pending_ask", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_pending_ask_session_id"), ["session_id"], unique=False)

    op.create_table(
        "run_lease",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("heartbeat", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id"),
    )
    op.create_table(
        "session_diff",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id"),
    )
    op.create_table(
        "share",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id"),
        sa.UniqueConstraint("id"),
    )
    op.create_table(
        "todo",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id"),
    )

    op.execute("INSERT INTO counter (name, value) VALUES ('journal', 0)")


def downgrade() -> None:
    op.drop_table("todo")
    op.drop_table("share")
    op.drop_table("session_diff")
    op.drop_table("run_lease")
    with op.batch_alter_table("pending_ask", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_pending_ask_session_id"))

    op.drop_table("pending_ask")
    with op.batch_alter_table("part", schema=None) as batch_op:
        batch_op.drop_index("part_by_type")
        batch_op.drop_index("part_by_session")

    op.drop_table("part")
    with op.batch_alter_table("message", schema=None) as batch_op:
        batch_op.drop_index("message_open")
        batch_op.drop_index("message_by_session")

    op.drop_table("message")
    with op.batch_alter_table("session", schema=None) as batch_op:
        batch_op.drop_index("session_by_project")
        batch_op.drop_index("session_by_parent")

    op.drop_table("session")
    op.drop_table("project")
    with op.batch_alter_table("permission_approval", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_permission_approval_session_id"))

    op.drop_table("permission_approval")
    with op.batch_alter_table("event_journal", schema=None) as batch_op:
        batch_op.drop_index("event_by_time")

    op.drop_table("event_journal")
    op.drop_table("counter")
