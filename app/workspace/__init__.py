"""Directories in use: configuration, agents, models, tools, MCP servers and snapshots, opened and closed together.

Begin at `workspaces.py` (which directories may be used) and `instance.py` (what a turn works with).
"""
