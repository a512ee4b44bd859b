"""Snapshots of a worktree in a git repository of their own: taking them, comparing them, restoring files.

Begin at `snapshots.py`. What a session reverts is decided in `app.session.revert`.
"""
