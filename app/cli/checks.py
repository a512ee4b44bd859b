"""Looks over what a server works with: versions, data directory, database, snapshots, what servers share, configuration."""

import os
import platform
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from app import __version__
from app.cli.server_checks import check_servers
from app.config.flags import Flags
from app.config.loader import load
from app.context.instructions import InstructionScope, read_files
from app.formatter.formatters import Formatters
from app.lsp.kinds import programs_found
from app.project.discovery import ProjectInfo, discover
from app.sandbox.git import Git
from app.sandbox.sandbox import OFF, open_sandbox
from app.sandbox.scope import SandboxWorkspace
from app.sandbox.trial import SandboxUnusable
from app.schema.config import Config
from app.schema.errors import ServiceError
from app.settings import Settings
from app.snapshot import maintenance as snapshots
from app.snapshot.snapshots import Snapshots, snapshot_dir
from app.storage import checkup as database
from app.storage.engine import DatabaseUnusable, Engine, StorageError, make_engine, require_writable
from app.storage.locks import locks_of
from app.util.environment import minimal
from app.util.finding import Finding
from app.util.git_obstacles import obstacle
from app.util.held_directory import HeldDirectory

_PRIVATE_FILES = ("auth.json", "opensession.db")


async def examine(settings: Settings, directory: Path) -> list[Finding]:
    """`directory` is the one whose configuration is read."""
    try:
        require_writable(settings.data_dir)
        engine = make_engine(settings.resolved_database_url)
        stored = database.check(engine)
    except DatabaseUnusable as error:
        return [*await _versions(), Finding("data directory", "fault", str(error))]
    return [
        *await _versions(),
        *_permissions(settings.data_dir),
        _sandbox(settings),
        *stored,
        *_servers(settings, engine),
        *await _snapshots(settings, engine),
        *await _configuration(directory),
        await _undo(settings, directory),
    ]


def _servers(settings: Settings, engine: Engine) -> Iterator[Finding]:
    with suppress(StorageError):  # already reported as a fault of the database
        yield from check_servers(settings, engine)


async def _snapshots(settings: Settings, engine: Engine) -> list[Finding]:
    locks = locks_of(engine)
    try:
        return await snapshots.check(settings.data_dir, locks)
    except StorageError:  # already reported as a fault of the database
        return []
    finally:
        locks.close()


async def _versions() -> list[Finding]:
    ours = f"opensession {__version__}, Python {platform.python_version()}"
    if shutil.which("git") is None:
        return [Finding("versions", "fine", ours), Finding("versions", "fault", "git is not installed: no snapshots, no revert")]
    return [Finding("versions", "fine", f"{ours}, {(await Git(OFF, HeldDirectory(Path.cwd())).run('version')).text}")]


def _sandbox(settings: Settings) -> Finding:
    try:
        state = open_sandbox(settings).state
    except SandboxUnusable as error:
        return Finding("sandbox", "fault", str(error))
    return Finding("sandbox", "fine", state.removeprefix("Sandbox: "))


def _permissions(data_dir: Path) -> Iterator[Finding]:
    open_to_others = [path for path in (data_dir, *(data_dir / name for name in _PRIVATE_FILES)) if _is_open(path)]
    for path in open_to_others:
        mode = 0o700 if path.is_dir() else 0o600
        yield Finding("data directory", "fault", f"others may read {path}", f"chmod {mode:o}", partial(path.chmod, mode))
    if not open_to_others:
        yield Finding("data directory", "fine", f"{data_dir}, for this user alone")


def _is_open(path: Path) -> bool:
    """A file in a directory that is closed to others is closed, too."""
    if not path.exists() or not stat.S_IMODE(path.stat().st_mode) & 0o077:
        return False
    return path.is_dir() or _is_open(path.parent)


async def _undo(settings: Settings, directory: Path) -> Finding:
    real, place = Path(os.path.realpath(directory)), await discover(directory)  # noqa: ASYNC240
    if place.git is not None:
        return Finding("undo", "fine", f"of {directory}: what git does not ignore")
    git_dir = snapshot_dir(settings.data_dir, place.id, real)
    reason = await Snapshots(git_dir, Git(OFF, HeldDirectory(real)), real, [settings.data_dir]).no_undo()
    if reason is None:
        return Finding("undo", "fine", f"of {directory}, which is outside git")
    return Finding("undo", "note", f"none in {directory}: {reason}")


async def _configuration(directory: Path) -> list[Finding]:
    place, flags = await discover(directory), Flags.from_env()
    try:
        loaded = load(directory, place.checkout, flags)
    except ServiceError as error:
        return [Finding("configuration", "fault", error.message)]
    instructions = read_files(InstructionScope(directory, place.checkout, flags, loaded.config.instructions))
    refused = [*instructions.refused, *filter(None, [obstacle(directory)])]
    named = dict.fromkeys([*(warning.message for warning in loaded.warnings), *map(str, refused)])
    left_out = [Finding("configuration", "fault", f"left out: {text}") for text in named]
    unused = [Finding("configuration", "note", f"{key} changes nothing here. {reason}") for key, reason in loaded.unused.items()]
    readable = [Finding("configuration", "fine", f"of {directory}: every layer can be read")]
    return [*(left_out or readable), *unused, *await _programs(directory, place, loaded.config)]


async def _programs(directory: Path, place: ProjectInfo, config: Config) -> list[Finding]:
    """The language servers and formatters of the directory, of which none is run. A server that is configured and not found is
    worth knowing."""
    flags, environment = Flags.from_env(), minimal()
    workspace = SandboxWorkspace(directory, place.checkout, config.sandbox)
    servers = programs_found(config.lsp, flags, directory, workspace.top, environment.get("PATH"))
    found = [name for name, program in servers.items() if program]
    missing = [name for name, program in servers.items() if not program]
    noted = [Finding("language servers", "note", f"{name}: its program is not found") for name in missing]
    formatters = Formatters(workspace, OFF, environment, config.formatter, flags)
    enabled = [status.name for status in await formatters.statuses() if status.enabled]
    return [
        Finding("language servers", "fine", ", ".join(found) or "none is found for this directory"),
        *noted,
        Finding("formatters", "fine", ", ".join(enabled) or "none is found for this directory"),
    ]
