"""Snapshots of a directory in a separate git repository: taking and comparing them, restoring files.

Begin at `snapshots.py`. What a session reverts is decided in `app.sessions.revert`.
"""
