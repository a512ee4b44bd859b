"""One editor, served until it closes its end or this process is told to stop."""

import asyncio
import logging
import signal
import sys
from functools import partial
from pathlib import Path

from acp import run_agent

from app.cli.acp.agent import EditorAgent
from app.cli.acp.server_calls import ServerCalls
from app.cli.acp.stdio import EditorLines, editor_streams
from app.cli.support import fail, server_at


async def serve(attach: str | None, where: Path | None) -> None:
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr, format="opensession acp: %(message)s")
    server = ServerCalls(partial(server_at, attach, where))
    agent = EditorAgent(server, keeps_turns=attach is not None)
    try:
        lines = EditorLines(*await editor_streams(), agent.leave)
    except (OSError, ValueError):
        fail("opensession acp speaks with an editor: its standard input and output are pipes.")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lines.end)
    try:
        await run_agent(agent, lines, use_unstable_protocol=True)
    finally:
        await agent.close()
        await server.close()
