"""Worktrees of a project's repository: made in the data directory, each on a branch of its own. And `git init` of a directory.

The request for a worktree is answered when the worktree exists. Then its files are checked out, which an event announces, and
its start commands run. Only worktrees that this server made are reset and removed.
"""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.project.location import Location
from app.project.registry import Projects
from app.project.sandbox.git import NOT_STARTED, Git, GitResult
from app.project.sandbox.sandbox import Sandbox
from app.record.postgres import Locks
from app.schema.errors import ServiceError
from app.schema.event import AnnouncedEvent, EventWorktreeFailed, EventWorktreeReady, WorktreeFailure, WorktreeName
from app.schema.project import CreatedWorktree, WorktreeCreateInput
from app.sessions.fork import make_slug
from app.sessions.live import LiveSessions
from app.sessions.summary import SessionTasks
from app.tools.command_output import CommandOutput
from app.tools.process import run
from app.workspace.directories import Disposal, require_idle
from app.workspace.instances import Instances
from app.workspace.vcs import worktree_git
from app.workspace.vcs.comparison import GitFailed, default_branch
from app.workspace.workspace import Workspace
from app.workspace.workspaces import WorktreePlaces

log = logging.getLogger(__name__)

START_COMMAND_SECONDS = 1800.0
_OUTPUT_BYTES = 4096

WorktreeErrorName = Literal[
    "WorktreeNotGitError",
    "WorktreeNameGenerationFailedError",
    "WorktreeCreateFailedError",
    "WorktreeRemoveFailedError",
    "WorktreeResetFailedError",
]


class WorktreeError(ServiceError):
    status = 400

    def __init__(self, name: WorktreeErrorName, message: str) -> None:
        super().__init__(message)
        self.name = name


async def init_repository(workspace: Workspace, live: LiveSessions, disposal: Disposal, sandbox: Sandbox) -> None:
    """Turns a directory that is in no repository, or whose repository was deleted, into one. It is closed on all servers, to be
    opened anew. Raises DirectoryBusy, GitFailed."""
    directory, git_dir = workspace.location.directory, workspace.found.git_dir
    if git_dir is not None and git_dir.exists():
        return
    await require_idle(live, directory)
    entry = workspace.directories[-1].path / ".git"
    if os.path.lexists(entry):  # noqa: ASYNC240
        raise GitFailed("git init", f"{entry} is there, and is no repository that is used here")
    made = await Git(sandbox, workspace.directories[-1]).run("init", "--quiet", "--template=")
    if not made.ok:
        raise GitFailed("git init", made.stderr)
    await disposal.directory(directory)


MayEnter = Callable[[str], bool]
"""Whether the client may work in a directory."""

MAX_NAME = 64
_TRIES = 26


@dataclass(frozen=True)
class CommandSettings:
    """What start commands are run with: in the sandbox, as all commands."""

    instances: Instances
    shell: str
    environment: Mapping[str, str]
    sandbox: Sandbox


@dataclass(frozen=True)
class Worktrees:
    places: WorktreePlaces
    projects: Projects
    live: LiveSessions
    disposal: Disposal
    tasks: SessionTasks
    commands: CommandSettings
    locks: Locks
    announce: Callable[[str, AnnouncedEvent], Awaitable[None]]

    async def list(self, location: Location) -> list[str]:
        """The project's checkouts but the main one."""
        project = await self.projects.get(location.project_id)
        return await asyncio.to_thread(lambda: [path for path in project.sandboxes if os.path.isdir(path)])  # noqa: PTH112

    async def create(self, location: Location, wanted: WorktreeCreateInput) -> CreatedWorktree:
        """Raises WorktreeError."""
        git = location.git
        if git is None:
            raise WorktreeError(
                "WorktreeNotGitError", "A worktree is made of a git repository: make the directory one by `git init`"
            )
        async with self.locks.lock(f"worktrees {location.project_id}"):
            directory = await self._free_directory(location, git, wanted.name or "")
            self._make_empty(directory, location)
            added = await worktree_git.add(git, directory)
            if not added.ok:
                self.places.remove(directory)
                raise WorktreeError("WorktreeCreateFailedError", added.stderr)
            try:
                await self.projects.add_checkout(location.project_id, str(directory))
            except Exception:
                await self._discard(git, directory)
                raise
        self.tasks.start(str(directory), "worktree", self._prepare(location, git, directory, wanted.start_command))
        return CreatedWorktree(name=directory.name, branch=worktree_git.branch_of(directory), directory=str(directory))

    def _make_empty(self, directory: Path, location: Location) -> None:
        """Makes an empty directory and stores its origin. Raises WorktreeError; then there is neither."""
        try:
            directory.mkdir(parents=True, mode=0o700)
            try:
                self.places.add(directory, self.places.origin(location.worktree) or location.worktree)
            except OSError:
                self.places.remove(directory)
                raise
        except OSError as error:
            raise WorktreeError("WorktreeCreateFailedError", f"{directory} cannot be made: {error.strerror}") from error

    async def reset(self, location: Location, directory: str, may_enter: MayEnter) -> None:
        """Resets to the default branch's commit, and removes all else. Raises WorktreeError, DirectoryBusy."""
        worktree = self._own(location, directory, may_enter)
        git = worktree_git.of_worktree(location.git, worktree) if location.git and worktree else None
        if worktree is None or git is None:
            raise WorktreeError("WorktreeResetFailedError", f"{directory} is no worktree that this server made of this project")
        default = await default_branch(git)
        if default is None:
            raise WorktreeError(
                "WorktreeResetFailedError",
                "The repository has no default branch: no remote names one, and there is no main or master",
            )
        await require_idle(self.live, str(worktree))
        await self.tasks.cancel(str(worktree))
        for done in (await worktree_git.reset(git, default.ref), await worktree_git.clean(git)):
            if not done.ok:
                raise WorktreeError("WorktreeResetFailedError", done.stderr)
        self.tasks.start(str(worktree), "worktree", self._run_start_commands(location, worktree, None))

    async def remove(self, location: Location, directory: str, may_enter: MayEnter) -> None:
        """Removes the worktree and its branch. A worktree that is gone counts as removed. Raises WorktreeError, DirectoryBusy."""
        worktree, git = self._own(location, directory, may_enter), location.git
        if worktree is None or git is None or (worktree.exists() and worktree_git.of_worktree(git, worktree) is None):
            raise WorktreeError(
                "WorktreeRemoveFailedError",
                f"{directory} is no worktree that this server made of this project: use `git worktree remove`",
            )
        await require_idle(self.live, str(worktree))
        origin = self.places.origin(str(worktree)) or location.worktree
        self.places.forget(worktree)  # no turn begins there from now on
        try:
            await self._remove(location, git, worktree)
        except BaseException:
            if worktree.exists():
                self.places.add(worktree, origin)
            raise

    async def _remove(self, location: Location, git: Git, worktree: Path) -> None:
        """Raises WorktreeError, StorageError."""
        await self.tasks.cancel(str(worktree))
        await self.disposal.directory(str(worktree))
        async with self.locks.lock(f"worktrees {location.project_id}"):
            try:
                await self._discard(git, worktree)
            except OSError as error:
                raise WorktreeError("WorktreeRemoveFailedError", f"{worktree} is not removed: {error.strerror}") from error
            await self.projects.remove_checkout(location.project_id, str(worktree))

    async def _discard(self, git: Git, worktree: Path) -> None:
        """Removes the worktree from git and the disk, and its branch. Raises OSError."""
        await asyncio.to_thread(worktree_git.forget, git, worktree)
        await asyncio.to_thread(self.places.remove, worktree)
        await worktree_git.remove_branch(git, worktree)

    def _own(self, location: Location, directory: str, may_enter: MayEnter) -> Path | None:
        """The path of a worktree that this server made of this project, or that is gone and may have been one. None for any other
        path, and for a worktree that the client may not enter."""
        path = Path(os.path.normpath(directory))
        if not location.is_git:
            return None
        has_our_name = re.fullmatch(r"[a-z0-9][a-z0-9-]{0,254}", path.name) is not None
        if not has_our_name or path.parent != self.places.of_project(location.project_id):
            return None
        is_gone = self.places.origin(str(path)) is None and not path.exists()
        return path if is_gone or may_enter(str(path)) else None

    async def _free_directory(self, location: Location, git: Git, name: str) -> Path:
        wanted = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_NAME].strip("-")
        folder = self.places.of_project(location.project_id)
        for number in range(_TRIES):
            words = [wanted, make_slug()] if wanted and number else [wanted or make_slug()]
            directory = folder / "-".join(words)
            if await worktree_git.is_free(git, directory):
                return directory
        raise WorktreeError("WorktreeNameGenerationFailedError", "No name is free for the worktree: choose another one")

    async def _prepare(self, location: Location, git: Git, directory: Path, command: str | None) -> None:
        own = worktree_git.of_worktree(git, directory)
        filled = await worktree_git.reset(own) if own else GitResult(NOT_STARTED, b"", "it was changed meanwhile")
        if filled.ok:
            ready = WorktreeName(name=directory.name, branch=worktree_git.branch_of(directory))
            await self.announce(str(directory), EventWorktreeReady(properties=ready))
            await self._run_start_commands(location, directory, command)
        else:
            failure = WorktreeFailure(message=filled.stderr or "The files could not be checked out")
            await self.announce(str(directory), EventWorktreeFailed(properties=failure))

    async def _run_start_commands(self, location: Location, directory: Path, command: str | None) -> None:
        project = await self.projects.get(location.project_id)
        configured = project.commands.start if project.commands else None
        for each in (configured, command):
            if each and each.strip():
                await self._run(directory, each)

    async def _run(self, directory: Path, command: str) -> None:
        """A command that fails is logged: the worktree can be used anyway. It sees what all who work there may see."""
        settings, output = self.commands, CommandOutput(_OUTPUT_BYTES)
        workspace = await settings.instances.workspaces.get(str(directory))
        confined = workspace.sandboxed((await workspace.config()).config)
        argv = [settings.shell, "-c", command]
        try:
            program = await asyncio.to_thread(settings.sandbox.program, argv, confined, settings.environment)
            ended = await run(program, timeout=START_COMMAND_SECONDS, on_output=output.add)
        except (OSError, ValueError) as error:
            log.warning("the start command of %s could not be run: %s", directory, error)
            return
        if ended.code != 0:
            log.warning("the start command of %s failed with %s: %s", directory, ended.code, output.text())
