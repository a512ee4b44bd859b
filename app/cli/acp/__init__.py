"""The command `opensession acp`: an agent for editors, by the Agent Client Protocol over standard input and output.

It is a client of the server, as `opensession run` is. Begin at `agent.py`, which answers the editor's requests. Events go one
way: `editor_server.py` reads a directory's, `editor_session.py` gives each session its own, `transcript.py` and `tool_view.py`
make the editor's updates, and say how a prompt ended. `asks.py` has the agent's questions, `prompt_parts.py` the
user's input, `choices.py` modes, models, commands and the editor's MCP servers. `stdio.py` serves the editor and reads and writes
the lines; `editor_server.py` also starts the server, just after the first answer. The protocol's library is imported with the
command, never with a server.
"""

import asyncio

from app.cli.support import Attach, Where, directory_of


def acp(attach: Attach = None, where: Where = None) -> None:
    """Serve an editor that speaks the Agent Client Protocol, on standard input and output."""
    from app.cli.acp.stdio import serve

    if attach is None:
        directory_of(where)
    asyncio.run(serve(attach, where))
