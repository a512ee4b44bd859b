"""Stored sessions: the store (the only writer), fork, revert, share, search, retention, leases and the journal's replay.

Begin at `store.py`: every change is committed there, then announced in the order of posting. `live.py` has what works on a
session, `timeline/` the second API's view of one, `steering.py` requests of one client to others. SQL is in `app.record`.
"""
