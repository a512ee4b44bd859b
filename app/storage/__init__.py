"""The database: engine, tables, queries, statements, and the writer that groups commits. All SQL stands here.

Begin at `writer.py` and `tables.py`. What the rows mean is in `app.session.rows`.
"""
