"""The sandbox of commands: what they may reach (`scope.py`), as arguments of bubblewrap (`bubblewrap.py`), and whether it works
here (`machine.py`). Begin at `sandbox.py`. `app.tools.process` and `app.tools.mcp.stdio` run the programs; `git.py` runs git,
which works with files that commands wrote."""
