"""The formatters of one directory. Whether one is used is asked anew for each file: a project changes."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from app.config.flags import Flags
from app.formatter.kinds import FormattedProject, FormatterKind, configured
from app.sandbox.sandbox import Sandbox
from app.sandbox.scope import SandboxWorkspace
from app.schema.config import FormatterConfig
from app.schema.project import FormatterStatus
from app.tool.process import process
from app.tool.process.transcript import Transcript
from app.util.project_files import find_program

FORMAT_SECONDS = 10.0
PAUSE_SECONDS = 60.0
"""That one is left out after it took too long."""
_MAX_REASON = 500

log = logging.getLogger(__name__)

FormatterChoice = bool | Mapping[str, FormatterConfig] | None


@dataclass(frozen=True, slots=True)
class FormatterRun:
    """A formatter that a file is due to. `trial`: a command that has to succeed first."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    trial: Sequence[str] = ()


class Formatters:
    """`environment` is what programs see of this process's variables."""

    def __init__(
        self,
        workspace: SandboxWorkspace,
        sandbox: Sandbox,
        environment: Mapping[str, str],
        config: FormatterChoice,
        flags: Flags = Flags(),
    ) -> None:
        self._workspace = workspace
        self._sandbox = sandbox
        self._environment = environment
        self._config = config
        self._flags = flags
        self._tried: dict[str, bool] = {}
        self._slow_until: dict[str, float] = {}
        self._logged: set[str] = set()

    @cached_property
    def _kinds(self) -> list[FormatterKind]:
        return configured(self._config, self._flags)

    async def due(self, path: Path) -> list[FormatterRun]:
        """Those of a file of the project, in their order."""
        kinds = [kind for kind in self._kinds if kind.formats(path)]
        found = await asyncio.to_thread(self._due, kinds, path) if kinds else []
        return [formatter for formatter in found if await self._works(formatter)]

    async def _works(self, formatter: FormatterRun) -> bool:
        """Tried once."""
        if formatter.trial and formatter.name not in self._tried:
            trial = replace(formatter, command=formatter.trial)
            self._tried[formatter.name] = await self.run(trial, self._workspace) is None
        return self._tried.get(formatter.name, True)

    async def run(self, formatter: FormatterRun, workspace: SandboxWorkspace) -> str | None:
        """In the sandbox of whose file it is. The reason if it failed, None if not."""
        if time.monotonic() < self._slow_until.get(formatter.name, 0):
            return f"it took more than {FORMAT_SECONDS:g} seconds and is left out for a minute"
        said = Transcript()
        try:
            program = await asyncio.to_thread(
                self._sandbox.program, formatter.command, workspace, formatter.environment, shows_named=True
            )
            ended = await process.run(program, timeout=FORMAT_SECONDS, on_output=said.add)
        except OSError as error:
            return str(error)
        if ended.timed_out:
            self._slow_until[formatter.name] = time.monotonic() + PAUSE_SECONDS
            return f"it took more than {FORMAT_SECONDS:g} seconds"
        return None if ended.code == 0 else f"exit code {ended.code}: {_last(said.text())}"

    def failed(self, formatter: FormatterRun, reason: str) -> None:
        """Once for each in the log."""
        if formatter.name not in self._logged:
            self._logged.add(formatter.name)
            log.warning("the formatter %s of %s failed; said once: %s", formatter.name, self._workspace.directory, reason)

    async def statuses(self) -> list[FormatterStatus]:
        """Runs nothing: what has not been tried yet counts as working."""
        return await asyncio.to_thread(lambda: [self._status(kind) for kind in self._kinds])

    def _status(self, kind: FormatterKind) -> FormatterStatus:
        enabled = self._tried.get(kind.name, True) and self._command(kind) is not None
        return FormatterStatus(name=kind.name, extensions=list(kind.extensions), enabled=enabled)

    def _due(self, kinds: Sequence[FormatterKind], path: Path) -> list[FormatterRun]:
        found = ((kind, self._command(kind)) for kind in kinds)
        return [
            FormatterRun(
                kind.name,
                [word.replace("$FILE", str(path)) for word in command],
                {**self._environment, **kind.environment},
                [command[0], *kind.trial] if kind.trial else (),
            )
            for kind, command in found
            if command
        ]

    def _command(self, kind: FormatterKind) -> list[str] | None:
        """None where the project does not use it, or the program is not there."""
        *tops, directory = self._workspace.real_directories()
        top = tops[0] if tops else directory  # outside git
        if not kind.is_configured and not kind.is_used(FormattedProject(directory, top)):
            return None
        if any(self._command(other) for other in kind.unless):
            return None
        name, *arguments = kind.command
        path = self._environment.get("PATH")
        program = find_program(name, directory, top, path, is_configured=kind.is_configured)
        return [program or name, *arguments] if program or kind.is_configured else None


def _last(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text[-_MAX_REASON:]).strip()
