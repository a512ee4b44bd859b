"""The command `opensession acp`: an agent for editors, by the Agent Client Protocol over standard input and output.

It is a client of the server, as `opensession run` is. `agent.py` answers the editor's requests; begin there. What comes back goes
one way: `directory_feed.py` reads a directory's events, `editor_session.py` hands each session its own, `transcript.py` and
`tool_view.py` decide what the editor is told of it, `turns.py` how a prompt ended. `asks.py` is what the agent asks the user,
`prompt_parts.py` what the user sends, `choices.py` modes, models, commands and the editor's MCP servers.
`stdio.py` serves the editor and reads and writes the lines, `server_calls.py` starts the server behind the first answer. The
protocol's library is imported with the command, never with a server.
"""

import asyncio

from app.cli.support import Attach, Where, checked, directory_of


def acp(attach: Attach = None, where: Where = None) -> None:
    """Serve an editor that speaks the Agent Client Protocol, on standard input and output."""
    from app.cli.acp.stdio import serve

    address = checked(attach)
    if address is None:
        directory_of(where)
    asyncio.run(serve(address, where))
