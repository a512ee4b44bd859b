"""The indexes of some rows only. Who makes a database, or compares one with what is declared, imports this and declares their
conditions."""

from sqlalchemy import Index, text

from app.storage.tables import LEASE, PART, PART_TEXT, SESSION

_WHERE = {
    Index("session_by_owner", SESSION.c.owner, SESSION.c.project_id, SESSION.c.seq): "owner <> ''",
    Index("session_reverting", SESSION.c.seq): "reverting = 1",
    Index("part_patches", PART.c.session_id, PART.c.seq): "type = 'patch'",
    Index("part_snapshots", PART.c.session_id, PART.c.message_id, PART.c.type, PART.c.seq): "snapshot IS NOT NULL",
    Index("part_text_unindexed", PART_TEXT.c.part_seq): "indexed = 0",
    Index("run_lease_held", LEASE.c.session_id): "owner <> ''",
}
_WHERE_IN_POSTGRESQL = {"reverting = 1": "reverting", "indexed = 0": "NOT indexed"}


def declare_conditions(dialect: str) -> None:
    """For databases of this dialect; the other's is not loaded."""
    for index, where in _WHERE.items():
        of_dialect = _WHERE_IN_POSTGRESQL.get(where, where) if dialect == "postgresql" else where
        index.dialect_kwargs[f"{dialect}_where"] = text(of_dialect)
