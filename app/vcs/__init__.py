"""Version control as clients see and use it: what differs from a commit, patches, worktrees.

Begin at `comparison.py`. Git runs by `app.sandbox.git`, in the sandbox. Snapshots are
in `app.snapshot`, which repository a directory belongs to is in `app.project`.
"""
