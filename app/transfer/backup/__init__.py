"""Backups of a data directory, made while servers work, and their restore.

Begin at `making.py`. `restoring.py` stages and checks a backup, `placing.py` exchanges the directory's content for it, also after
a kill, and then opens the database; `manifest.py` says which files belong in a backup, and defines its manifest.
"""
