"""All that a database's schema says, and the rows that it begins with, so that two databases can be compared."""

from typing import Any

from sqlalchemy import Engine, text

_SQLITE = (
    "SELECT type, name, tbl_name, CASE type WHEN 'table' THEN '' ELSE sql END FROM sqlite_master",
    "SELECT t.name, c.* FROM sqlite_master t, pragma_table_xinfo(t.name) c WHERE t.type = 'table'",
    "SELECT t.name, k.* FROM sqlite_master t, pragma_foreign_key_list(t.name) k WHERE t.type = 'table'",
    'SELECT t.name, i.name, i."unique", i.origin, i.partial, c.* FROM sqlite_master t, pragma_index_list(t.name) i,'
    " pragma_index_xinfo(i.name) c WHERE t.type = 'table'",
    "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'",
)
_POSTGRES = (
    # Numbered anew: a column that was dropped leaves a gap.
    "SELECT table_name, row_number() OVER (PARTITION BY table_name ORDER BY ordinal_position),"
    " column_name, data_type, character_maximum_length, is_nullable, column_default"
    " FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace",
    "SELECT sequencename, data_type::text FROM pg_sequences WHERE schemaname = 'public'",
)
_BEGINNING = (
    "SELECT version_num FROM alembic_version",
    "SELECT name, CASE name WHEN 'identity' THEN 0 ELSE value END FROM counter",  # identity: a number by chance
)


def database_schema(engine: Engine) -> dict[str, set[tuple[Any, ...]]]:
    queries = _SQLITE if engine.dialect.name == "sqlite" else _POSTGRES
    with engine.connect() as connection:
        found = {query: {tuple(row) for row in connection.execute(text(query))} for query in (*queries, *_BEGINNING)}
    assert all(found.values())
    return found
