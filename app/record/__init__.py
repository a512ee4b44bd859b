"""The database: engine, tables, queries, statements, and the writer that groups commits. All SQL is here.

Begin at `writer.py` and `tables.py`. `app.sessions.rows` translates rows to messages and parts.
"""
