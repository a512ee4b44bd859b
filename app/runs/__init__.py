"""Who runs what: one task a session, deletion, disposal of a directory, housekeeping, and recovery after a crash.

Begin at `runner.py`. What a run does is in `app.turn`; who may hold a session meanwhile is in `app.session.gate`.
"""
