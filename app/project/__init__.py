"""A project's directory: its checkout, its configuration, snapshots of it, and the walls around programs that run there.

Begin at `discovery.py`. `config/` reads `opencode.json` and the files beside it, `snapshot/` keeps the states that a revert
returns to, `sandbox/` says what commands and git may reach. `app.workspace` has a directory in use, with its agents and tools.
"""
