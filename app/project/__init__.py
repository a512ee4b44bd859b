"""A project's directory: its checkout, its configuration, snapshots of it, and the walls around what runs there.

Begin at `discovery.py`; `config/` reads `opencode.json` and what stands beside it, `snapshot/` keeps the states that a revert
returns to, `sandbox/` says what commands and git may reach. A directory in use, with its agents and tools, is in
`app.workspace`.
"""
