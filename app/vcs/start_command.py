"""Start commands: what is run in a new worktree, in the sandbox as all commands."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from app.sandbox.sandbox import Sandbox
from app.tool.process import run
from app.tool.transcript import Transcript
from app.workspace.instances import Instances

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 1800.0
_OUTPUT_BYTES = 4096


class StartCommands:
    def __init__(self, instances: Instances, shell: str, environment: Mapping[str, str], sandbox: Sandbox) -> None:
        self._instances = instances
        self._shell = shell
        self._environment = environment
        self._sandbox = sandbox

    async def run(self, directory: Path, command: str) -> None:
        """One that fails is logged: the worktree can be used all the same."""
        workspace = (await self._instances.get(str(directory))).sandbox_workspace
        output = Transcript(_OUTPUT_BYTES)
        try:
            program = await asyncio.to_thread(self._sandbox.program, [self._shell, "-c", command], workspace, self._environment)
            ended = await run(program, timeout=TIMEOUT_SECONDS, on_output=output.add)
        except (OSError, ValueError) as error:
            log.warning("the start command of %s could not be run: %s", directory, error)
            return
        if ended.code != 0:
            log.warning("the start command of %s failed with %s: %s", directory, ended.code, output.text())
