"""The sandbox of commands: what they may reach (`scope.py`), as arguments of bubblewrap (`bubblewrap.py`), and whether it works
here (`machine.py`). Begin at `sandbox.py`. Programs themselves are run by `app.tools.process` and `app.tools.mcp.stdio`, but
for git (`git.py`), which works with what they wrote.
"""
