"""A server with open terminals that is killed (-9), or told to stop: what ran in them ends too."""

import asyncio
import os
import signal
from pathlib import Path

from at_terminal import at_terminal
from figures import Figure
from killable import Client, Servers
from processes import running_in

MEEK = "sleep 1000 & sleep 1000"
STUBBORN = "trap '' HUP TERM; setsid sleep 1000 & nohup sleep 1000 & sleep 1000"
SECONDS = 60


async def opened(client: Client, script: str, processes: int, workspace: Path) -> str:
    """A terminal, once its processes run. bubblewrap and its first process are counted where there is a sandbox."""
    made = await client.post("/pty", {"command": "bash", "args": ["-c", script]})
    async with asyncio.timeout(SECONDS):
        while len(running_in(workspace)) < processes:
            await asyncio.sleep(0.02)
    return str(made["id"])


async def nothing_left(workspace: Path) -> float:
    """The seconds that it took."""
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(SECONDS):
        while running_in(workspace):
            await asyncio.sleep(0.02)
    return asyncio.get_running_loop().time() - began


async def test_what_runs_in_terminals_of_a_killed_server_ends(tmp_path: Path, figure: Figure) -> None:
    """The kernel hangs the terminals up. What ignores that ends with the sandbox, or when the next server starts."""
    servers = Servers(tmp_path, OPENSESSION_SANDBOX="off")
    work = servers.workspace / "work"
    work.mkdir()
    async with servers.start() as client:
        await opened(client, f"cd {work}; {MEEK}", 3, work)
        os.kill(client.process.pid, signal.SIGKILL)
        hung_up = await nothing_left(work)
    async with servers.start() as client:
        await opened(client, f"cd {work}; {STUBBORN}", 4, work)
        os.kill(client.process.pid, signal.SIGKILL)
        client.process.wait()
        assert running_in(work), "they heed no hangup"
    async with servers.start() as client:
        assert running_in(work) == []
        assert await client.get("/pty") == []
    figure(f"a server with terminals was killed: 0 processes left after {hung_up:.2f} s, stubborn ones 0 at the next start")


async def test_a_server_that_is_told_to_stop_closes_its_terminals(tmp_path: Path) -> None:
    servers = Servers(tmp_path, OPENSESSION_SHUTDOWN_SECONDS="1")
    work = servers.workspace / "work"
    work.mkdir()
    async with servers.start() as client:
        pty_id = await opened(client, f"cd {work}; {STUBBORN}", 4, work)
        port = client.http.base_url.port
        assert port is not None
        async with at_terminal(port, pty_id) as connected:
            await connected.until_told()
            client.process.terminate()
            assert await connected.until_closed() == 1000
        assert await client.ended(SECONDS) == -signal.SIGTERM
        assert running_in(work) == []
    assert "Traceback" not in servers.log and "ERROR" not in servers.log, servers.log
