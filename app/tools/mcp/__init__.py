"""MCP servers of a directory: connections over stdio and HTTP, sign-in by OAuth, their tools, prompts and resources.

Begin at `servers.py`. The MCP SDK is imported here only. `app.tools.external` makes tools of a turn from the servers' tools.
"""
