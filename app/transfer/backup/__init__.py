"""Backups of a data directory, made while servers work, and their restore.

Begin at `making.py`. `restoring.py` stages and checks a backup, `placing.py` exchanges the directory's content for it, finishes
what was killed, and opens the database behind that; `manifest.py` says what belongs in a backup, and what each one holds.
"""
