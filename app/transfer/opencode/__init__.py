"""Imports a data directory of OpenCode: what every version of it has stored, and the snapshots beside.

Begin at `database.py`, which finds the readers for what a directory holds and reads the database of 1.2 and later; `files.py`
reads the JSON files of all versions before. What they read is completed and validated in `history.py`; `sessions.py` says what
becomes of it and stores it. Nothing here writes to the source.
"""
