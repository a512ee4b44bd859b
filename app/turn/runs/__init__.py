"""Who runs what: the turns of sessions, and recovery after a crash.

Begin at `turns.py`. `app.turn` has what a turn does, `app.sessions.live` what works on a session, and who may meanwhile.
"""
