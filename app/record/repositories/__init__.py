"""Queries, by aggregate: functions that take a Connection, each after the statements that it executes.

Begin at `message_rows.py` and `session_rows.py`. The writer's statements are in `app.record.statements`.
"""
