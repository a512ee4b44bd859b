"""Tools that a model calls: the built-in ones in `builtin/` (related tools share a module: `builtin/edit.py` has `edit`,
`multiedit` and `write`), MCP servers in `mcp/`, Python plugins in `plugins/`.

Begin at `base.py` (what a tool is) and `toolbox.py` (which tools an agent is offered). `app.turn` runs the calls;
`app.permissions`, below, decides whether a call is allowed.
"""
