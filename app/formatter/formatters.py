"""The formatters of one directory. Whether one is used is asked anew for each file: a project changes."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from app.formatter.kinds import FormattedProject, FormatterKind, configured
from app.sandbox.sandbox import Sandbox
from app.sandbox.scope import SandboxWorkspace
from app.schema.config import FormatterConfig
from app.schema.lsp import FormatterStatus
from app.tool.process import process
from app.tool.process.transcript import Transcript
from app.util.project_programs import find_program

FORMAT_SECONDS = 10.0
PAUSE_SECONDS = 60.0
"""That one is left out after it took too long."""
_MAX_REASON = 500

log = logging.getLogger(__name__)

FormatterChoice = bool | Mapping[str, FormatterConfig] | None


@dataclass(frozen=True, slots=True)
class FormatterRun:
    """A formatter that a file is due to."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


class Formatters:
    """`environment` is what programs see of this process's variables."""

    def __init__(
        self, workspace: SandboxWorkspace, sandbox: Sandbox, environment: Mapping[str, str], config: FormatterChoice
    ) -> None:
        self._workspace = workspace
        self._sandbox = sandbox
        self._environment = environment
        self._config = config
        self._slow_until: dict[str, float] = {}
        self._logged: set[str] = set()

    @cached_property
    def _kinds(self) -> list[FormatterKind]:
        return configured(self._config)

    async def due(self, path: Path) -> list[FormatterRun]:
        """Those of a file of the project, in their order."""
        kinds = [kind for kind in self._kinds if kind.formats(path)]
        return await asyncio.to_thread(self._due, kinds, path) if kinds else []

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
        return await asyncio.to_thread(lambda: [self._status(kind) for kind in self._kinds])

    def _status(self, kind: FormatterKind) -> FormatterStatus:
        return FormatterStatus(name=kind.name, extensions=list(kind.extensions), enabled=self._command(kind) is not None)

    def _due(self, kinds: Sequence[FormatterKind], path: Path) -> list[FormatterRun]:
        found = ((kind, self._command(kind)) for kind in kinds)
        return [
            FormatterRun(
                kind.name,
                [word.replace("$FILE", str(path)) for word in command],
                {**self._environment, **kind.environment},
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
        name, *arguments = kind.command
        program = find_program(name, directory, top, self._environment.get("PATH"))
        return [program or name, *arguments] if program or kind.is_configured else None


def _last(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text[-_MAX_REASON:]).strip()
