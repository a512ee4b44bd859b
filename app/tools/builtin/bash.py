"""The tool `bash`: what it asks permission for, and how a command ends."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from app.project.sandbox.sandbox import Sandbox, hint
from app.project.sandbox.scope import Program
from app.schema.base import Wire
from app.tools import boundary, process
from app.tools.base import Tool, ToolContext, ToolError, ToolPermission, ToolResult, load_description
from app.tools.command_output import CommandOutput, LivePreview, cut_preview

DEFAULT_TIMEOUT_MS = 120_000
_GRACE_MS = 100
"""Added to the timeout: a command that has the same timeout of its own reports it first."""


class BashParameters(Wire):
    command: Annotated[str, Field(description="The command line to run")]
    timeout: Annotated[float | None, Field(description="Milliseconds after which it is stopped")] = None
    workdir: Annotated[
        str | None, Field(description="Directory to run in; the session's own directory if absent. Use this instead of `cd`")
    ] = None
    description: Annotated[str, Field(description="What the command does, in five to ten words")]


class BashTool(Tool[BashParameters]):
    """`shell` runs the commands with the current content of `environment`."""

    id = "bash"
    parameters = BashParameters

    def __init__(
        self,
        *,
        shell: str,
        sandbox: Sandbox,
        environment: Mapping[str, str],
        default_timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        self._shell = shell
        self._sandbox = sandbox
        self._environment = environment
        self._default_timeout_ms = default_timeout_ms
        self.description = load_description(self.id).replace("{timeout}", str(default_timeout_ms))

    async def execute(self, args: BashParameters, ctx: ToolContext) -> ToolResult:
        timeout_ms = self._default_timeout_ms if args.timeout is None else args.timeout
        if timeout_ms < 0:
            raise ToolError(f"The timeout must not be negative, but it is {timeout_ms:g}")
        directory = boundary.locate(ctx, args.workdir or ".")
        granted = await self._require_permission(args.command, directory, ctx)
        if not os.path.isdir(directory):  # noqa: ASYNC240, PTH112  False for a name that is too long, too
            raise ToolError(f"The working directory does not exist: {directory}")
        approved = await ctx.host.approved_directories() if self._sandbox.is_on else []
        argv, workspace = [self._shell, "-c", args.command], ctx.sandbox_workspace
        try:
            program = await asyncio.to_thread(
                self._sandbox.program, argv, workspace, self._environment, cwd=directory, granted=granted, approved=approved
            )
        except OSError as error:
            raise ToolError(f"{ctx.directory} cannot be used: {error.strerror}") from error
        return await self._run(args, program, timeout_ms, ctx)

    async def _require_permission(self, command: str, directory: Path, ctx: ToolContext) -> list[Path]:
        """The paths outside the project that the command was allowed. A command line that runs no program (`cd` alone) needs no
        permission."""
        from app.permissions.shell.analysis import always_patterns, analyse

        within = boundary.project_of(ctx)
        async with ctx.host.in_order():
            analysis = await asyncio.to_thread(analyse, command, directory, within, self._environment)
        outside = analysis.readable_outside if self._sandbox.is_on else analysis.outside
        shown = {"command": command}
        if outside:
            await ctx.host.require_permission(
                ToolPermission("external_directory", list(outside), always_patterns(outside), shown)
            )
        if analysis.patterns:
            await ctx.host.require_permission(
                ToolPermission(self.id, analysis.patterns, analysis.always, shown, subjects=analysis.subjects)
            )
        return [Path(path) for path in analysis.readable_outside]

    async def _run(self, args: BashParameters, program: Program, timeout_ms: float, ctx: ToolContext) -> ToolResult:
        captured = CommandOutput()

        async def publish(preview: str) -> None:
            await ctx.host.update(metadata={"output": preview, "description": args.description})

        async with LivePreview(publish) as live:
            live.show("")
            try:
                ended = await self._start(program, timeout_ms, captured, live)
            except asyncio.CancelledError:
                live.show(cut_preview(captured.text() + _metadata_block("The user stopped the command.")))
                raise
        output = captured.text()
        timeout = f"it ran longer than its timeout of {timeout_ms:g} ms" if ended.timed_out else None
        if timeout:
            output += _metadata_block(f"The command was stopped: {timeout}.")
        elif advice := await asyncio.to_thread(hint, program, output, ended.code):
            output += _metadata_block(advice)
        metadata = {"output": cut_preview(output), "exit": ended.code, "description": args.description}
        return ToolResult(title=args.description, output=output, metadata=metadata, timeout=timeout)

    async def _start(
        self, program: Program, timeout_ms: float, captured: CommandOutput, live: LivePreview
    ) -> process.ProcessExit:
        def take(chunk: bytes) -> None:
            captured.add(chunk)
            live.show(captured.preview)

        seconds = (timeout_ms + _GRACE_MS) / 1000
        try:
            return await process.run(program, timeout=seconds, on_output=take)
        except (OSError, ValueError) as error:
            raise ToolError(f"The shell {self._shell} could not run the command: {error}") from error


def _metadata_block(text: str) -> str:
    return f"\n\n<bash_metadata>\n{text}\n</bash_metadata>"
