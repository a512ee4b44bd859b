"""Snapshots of a directory in a separate git repository: taking and comparing them, restoring files.

Begin at `snapshots.py`. `app.sessions.revert` decides what a session reverts.
"""
