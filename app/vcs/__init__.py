"""Version control as clients see and use it: what differs from a commit, patches, worktrees.

Begin at `comparison.py`. Git runs by `app.util.git`, which no repository's own configuration gets to run a program. Snapshots are
in `app.snapshot`, which repository a directory belongs to is in `app.project`.
"""
