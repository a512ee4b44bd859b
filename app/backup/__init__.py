"""Backups of a data directory, made while servers work, and their restore.

Begin at `making.py`. `restoring.py` stages and checks a backup, `placing.py` exchanges the directory's content for it and
finishes what was killed, `opening.py` opens the database behind that; `contents.py` says what belongs in a backup, `manifest.py`
what each one holds.
"""
