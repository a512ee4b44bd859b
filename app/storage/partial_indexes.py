"""The indexes of some rows only. They stand apart from `tables.py` as their conditions load the dialects of both databases, which
takes 2 MB: only who makes a database, or compares one with what is declared, imports this."""

from typing import Any

from sqlalchemy import ColumnElement, Index, text

from app.storage.tables import LEASE, PART, PART_TEXT, SESSION


def _declare(name: str, *columns: ColumnElement[Any], where: str, postgresql_where: str = "") -> None:
    Index(name, *columns, sqlite_where=text(where), postgresql_where=text(postgresql_where or where))


_declare("session_by_owner", SESSION.c.owner, SESSION.c.project_id, SESSION.c.seq, where="owner <> ''")
_declare("session_reverting", SESSION.c.seq, where="reverting = 1", postgresql_where="reverting")
_declare("part_patches", PART.c.session_id, PART.c.seq, where="type = 'patch'")
_declare("part_snapshots", PART.c.session_id, PART.c.message_id, PART.c.type, PART.c.seq, where="snapshot IS NOT NULL")
_declare("part_text_unindexed", PART_TEXT.c.part_seq, where="indexed = 0", postgresql_where="NOT indexed")
_declare("run_lease_held", LEASE.c.session_id, where="owner <> ''")
