"""Stored sessions: the store (the only writer), fork, revert, share, search, status, leases, the gate and the journal's replay.

Begin at `store.py`: every change is committed there, then announced in the order of posting. SQL is in
`app.storage`.
"""
