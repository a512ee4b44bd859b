"""Imports a data directory of OpenCode: what every version of it has stored, and the snapshots beside.

Begin at `data_directory.py`, which finds the readers for what a directory holds: `json_storage.py` (1.0 and 1.1),
`project_storage.py` (before) and `database.py` (1.2 and later). What they read is completed and validated in `history.py`;
`decision.py` says what becomes of it, `sessions.py` stores it. Nothing here writes to the source.
"""
