"""Directories in use: configuration, agents, models, tools, MCP servers and snapshots, opened and closed together.

Begin at `workspaces.py` (which directories may be used) and `instance.py` (what a turn works with). `agents.py` has the agents,
with the texts in `prompts/`, `commands.py` and `instructions.py` what else a project says; `browse/` and `vcs/` show clients the
files, `terminals/` has what users type into, `lsp/` and `formatters.py` what follows an edit. `directories.py` and
`user_changes.py` end what runs in a directory, `housekeeping.py` what nobody uses any more.
"""
