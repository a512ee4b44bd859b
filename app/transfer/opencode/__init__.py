"""Imports a data directory of OpenCode: the sessions of every version, and the snapshots beside them.

Begin at `database.py`, which finds the readers for a directory and reads the database of 1.2 and later; `files.py` reads the JSON
files of earlier versions. `history.py` completes and validates the sessions; `sessions.py` decides which to store, and stores
them. Nothing here writes to the source.
"""
