"""Version control as clients see and use it: comparisons with a commit, patches, worktrees.

Begin at `comparison.py`. `app.project.sandbox.git` runs git, in the sandbox. `app.project.snapshot` has the snapshots,
`app.project` finds a directory's repository.
"""
