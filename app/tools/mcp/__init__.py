"""MCP servers of a directory: connections over stdio and HTTP, sign-in by OAuth, their tools, prompts and resources.

Begin at `servers.py`. Besides this package only `app.api.mcp_server` imports the MCP SDK. `app.tools.external` makes tools of a
turn from the servers' tools.
"""
