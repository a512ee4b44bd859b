"""Who runs what: the turns of sessions, deletion, disposal of a directory, housekeeping, and recovery after a crash.

Begin at `turns.py`. What a turn does is in `app.turn`; what works on a session, and who may meanwhile, in `app.sessions.live`.
"""
