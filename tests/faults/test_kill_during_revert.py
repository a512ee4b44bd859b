"""A kill while a revert puts files back: at the next start all files are as they were before it."""

import asyncio
import os
import signal
import time
from pathlib import Path

from figures import Figure
from killable import Client, Servers
from long_form import LONG
from turns import bash, say

FILES = 800
KILLS = 12 if LONG else 2
CHANGED = {f"f{number}.txt": f"changed {number}\n" for number in range(FILES)}
MAKE = f"for i in $(seq 0 {FILES - 1}); do echo original $i > f$i.txt; done"
CHANGE = f"for i in $(seq 0 {FILES - 1}); do echo changed $i > f$i.txt; done"


def files(workspace: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in workspace.glob("f*.txt")}


async def revert_and_kill(servers: Servers, client: Client, path: str, body: dict[str, str]) -> int:
    """Kills the server when about half of the files are put back; returns how many hold the original by then."""
    halfway = servers.workspace / "f400.txt"
    before = halfway.read_text()
    asked = asyncio.create_task(client.post(path, body))
    deadline = time.monotonic() + 30
    while halfway.read_text() == before:
        assert time.monotonic() < deadline and not asked.done()
        await asyncio.sleep(0.001)
    os.kill(client.process.pid, signal.SIGKILL)
    assert await asked is None
    return sum(text.startswith("original") for text in files(servers.workspace).values())


async def test_a_revert_that_was_cut_off_is_undone(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(tmp_path)
    servers.configure({"permission": {"external_directory": "allow"}})
    servers.play([[bash(MAKE)], [say("Made.")], [bash(CHANGE)], [say("Changed.")]])
    async with servers.start() as client:
        session = await client.session()
        await client.prompt(session, "Make")
        prompt = (await client.prompt(session, "Change"))["info"]["parentID"]
    assert files(servers.workspace) == CHANGED
    half_done = []
    for kill in range(KILLS):
        async with servers.start() as client:
            if kill % 2:  # unrevert, from a whole revert
                assert (await client.post(f"/session/{session}/revert", {"messageID": prompt}))["revert"]
                half_done.append(await revert_and_kill(servers, client, f"/session/{session}/unrevert", {}))
            else:
                half_done.append(await revert_and_kill(servers, client, f"/session/{session}/revert", {"messageID": prompt}))
        async with servers.start() as client:
            assert files(servers.workspace) == CHANGED
            assert "revert" not in await client.get(f"/session/{session}")
    assert any(0 < count < FILES for count in half_done), half_done
    figure(f"{KILLS} kills with {half_done} of {FILES} files put back: each undone, all files as before")
