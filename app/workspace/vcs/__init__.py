"""Version control as clients see and use it: what differs from a commit, patches, worktrees.

Begin at `comparison.py`. Git runs by `app.project.sandbox.git`, in the sandbox. Snapshots are
in `app.project.snapshot`, which repository a directory belongs to is in `app.project`.
"""
