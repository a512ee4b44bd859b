"""Stored sessions: the store (the only writer), fork, revert, share, search, leases and the journal's replay.

Begin at `store.py`: every change is committed there, then announced in the order of posting. What works on a session is in
`live.py`. `timeline/` is what the second API shows of one, `steering.py` what one client has the others do. SQL is in
`app.record`.
"""
