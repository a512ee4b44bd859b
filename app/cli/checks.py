"""Checks a server's surroundings: versions, data directory, database, snapshots, configuration, and what several servers share:
PostgreSQL, Redis, the volume with the data directory, the time. `examine` is `opensession doctor`; `startup_lines` tells at each
start whether the server works alone or with others."""

import fcntl
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from app import __version__
from app.events.bus.redis_link import RedisUnusable, describe_redis
from app.project.config.flags import Flags
from app.project.config.loader import load
from app.project.discovery import ProjectInfo, discover
from app.project.sandbox.git import Git
from app.project.sandbox.machine import SandboxUnusable
from app.project.sandbox.sandbox import OFF, open_sandbox
from app.project.sandbox.scope import SandboxWorkspace
from app.project.snapshot import maintenance as snapshots
from app.project.snapshot.snapshots import Snapshots, snapshot_dir
from app.record import maintenance
from app.record.engine import Connection, DatabaseUnusable, Engine, StorageError, make_engine, require_writable, transaction
from app.record.maintenance import Finding
from app.record.migrate import HEAD, revision
from app.record.postgres import locks_of
from app.record.repositories import work_rows
from app.schema.config import Config
from app.schema.errors import ServiceError
from app.sessions.lease import DEAD_AFTER_MS
from app.settings import Settings
from app.util.data_files import PrivateJson, volume_id
from app.util.environment import minimal
from app.util.git_obstacles import obstacle
from app.util.project_files import HeldDirectory
from app.workspace.formatters import Formatters
from app.workspace.instructions import InstructionScope, read_files
from app.workspace.lsp.kinds import programs_found

_PRIVATE_FILES = ("auth.json", "opensession.db")
_JSON_FILES = ("auth.json", "mcp-auth.json", "secret.json", "tokens.json")


async def examine(settings: Settings, directory: Path) -> list[Finding]:
    """`directory`: the one whose configuration is read."""
    try:
        require_writable(settings.data_dir)
        engine = make_engine(settings.resolved_database_url)
        stored = maintenance.check(engine)
    except DatabaseUnusable as error:
        return [*await _versions(), Finding("data directory", "fault", str(error))]
    servers: list[Finding] = []
    with suppress(StorageError):  # already reported as a fault of the database
        servers = list(check_servers(settings, engine))
    return [
        *await _versions(),
        *_permissions(settings.data_dir),
        *_damaged_files(settings.data_dir),
        _sandbox(settings),
        *stored,
        *servers,
        *await _snapshots(settings, engine),
        *await _configuration(directory),
        await _undo(settings, directory),
    ]


async def _snapshots(settings: Settings, engine: Engine) -> list[Finding]:
    with suppress(StorageError), closing(locks_of(engine)) as locks:  # already reported as a fault of the database
        return await snapshots.check(settings.data_dir, locks)
    return []


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
    """Whether others may read the data. The directory of another user, such as a volume, cannot be closed to others, so only the
    files in it are checked."""
    own = [data_dir] if data_dir.stat().st_uid == os.geteuid() else []
    open_to_others = [path for path in (*own, *(data_dir / name for name in _PRIVATE_FILES)) if _is_open(path)]
    for path in open_to_others:
        mode = 0o700 if path.is_dir() else 0o600
        yield Finding("data directory", "fault", f"others may read {path}", f"chmod {mode:o}", partial(path.chmod, mode))
    if not open_to_others:
        others = ", which others may enter; the files in it are" if _is_open(data_dir) else ","
        yield Finding("data directory", "fine", f"{data_dir}{others} for this user alone")


def _damaged_files(data_dir: Path) -> Iterator[Finding]:
    for name in _JSON_FILES:
        if PrivateJson(data_dir / name).is_damaged():
            text = f"{data_dir / name} is no JSON object: nothing in it counts, and the next change replaces it. Correct it."
            yield Finding("data directory", "fault", text)


def _is_open(path: Path) -> bool:
    """A file in a directory that is closed to others is closed, too."""
    if not path.exists() or not stat.S_IMODE(path.stat().st_mode) & 0o077:
        return False
    return path.is_dir() or _is_open(path.parent)


async def _undo(settings: Settings, directory: Path) -> Finding:
    real, project = Path(os.path.realpath(directory)), await discover(directory)  # noqa: ASYNC240
    if project.git is not None:
        return Finding("undo", "fine", f"of {directory}: what git does not ignore")
    git_dir = snapshot_dir(settings.data_dir, project.id, real)
    reason = await Snapshots(git_dir, Git(OFF, HeldDirectory(real)), real, [settings.data_dir]).no_undo()
    if reason is None:
        return Finding("undo", "fine", f"of {directory}, which is outside git")
    return Finding("undo", "note", f"none in {directory}: {reason}")


async def _configuration(directory: Path) -> list[Finding]:
    project, flags = await discover(directory), Flags.from_env()
    try:
        loaded = load(directory, project.checkout, flags)
    except ServiceError as error:
        return [Finding("configuration", "fault", error.message)]
    refused: list[OSError] = []
    read_files(InstructionScope(directory, project.checkout, flags, loaded.config.instructions), refused.append)
    refused += filter(None, [obstacle(directory)])
    problems = dict.fromkeys([*(warning.message for warning in loaded.warnings), *map(str, refused)])
    left_out = [Finding("configuration", "fault", f"left out: {text}") for text in problems]
    unused = [Finding("configuration", "note", f"{key} changes nothing here. {reason}") for key, reason in loaded.unused.items()]
    readable = [Finding("configuration", "fine", f"of {directory}: every layer can be read")]
    return [*(left_out or readable), *unused, *await _programs(directory, project, loaded.config)]


async def _programs(directory: Path, project: ProjectInfo, config: Config) -> list[Finding]:
    """The language servers and formatters of the directory, none of which is run. A configured server that is not found is a
    note."""
    flags, environment = Flags.from_env(), minimal()
    workspace = SandboxWorkspace(directory, project.checkout, config.sandbox)
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


CONNECTIONS_OF_A_SERVER = 6
MAX_CLOCK_DIFFERENCE_SECONDS = 1.0
LOCK_TIMEOUT_SECONDS = 10

_TRY_LOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def check_servers(settings: Settings, engine: Engine) -> Iterator[Finding]:
    """Servers share nothing on SQLite. Raises StorageError."""
    if engine.dialect.name == "sqlite":
        if settings.redis_url:
            yield Finding("Redis", "note", "not used: it connects servers of one PostgreSQL (OPENSESSION_DATABASE_URL)")
        return
    with transaction(engine) as connection:
        replicas = work_rows.replicas(connection) if revision(connection) == HEAD else []
        yield from _postgres(connection)
        yield _clock(connection)
    yield _redis(settings)
    yield _volume(settings.data_dir, [each for each in replicas if each.age <= DEAD_AFTER_MS])
    yield _lock(settings.data_dir)


def _postgres(connection: Connection) -> Iterator[Finding]:
    found = maintenance.describe_database(connection)
    if maintenance.is_read_only(connection):
        yield Finding("PostgreSQL", "fault", f"{found} is read-only: name the primary in OPENSESSION_DATABASE_URL")
        return
    free = maintenance.free_connections(connection)
    room = f"room for {free // CONNECTIONS_OF_A_SERVER} more servers"
    if free < CONNECTIONS_OF_A_SERVER:
        yield Finding("PostgreSQL", "fault", f"{found}: {free} connections are free, a server takes {CONNECTIONS_OF_A_SERVER}")
    else:
        yield Finding("PostgreSQL", "fine", f"{found}, {room}")


def _clock(connection: Connection) -> Finding:
    ahead = maintenance.clock_ahead_seconds(connection)
    if abs(ahead) <= MAX_CLOCK_DIFFERENCE_SECONDS:
        return Finding("clocks", "fine", f"this machine's and the database's differ by {abs(ahead):.2f} s")
    where = "ahead of" if ahead > 0 else "behind"
    text = f"the database's is {abs(ahead):.0f} s {where} this machine's: leases hold, but times in messages and logs are wrong"
    return Finding("clocks", "note", text)


_WITHOUT_REDIS = "events of other servers are read from the database"


def _redis(settings: Settings) -> Finding:
    if settings.redis_url is None:
        return Finding("Redis", "note", f"none is named (OPENSESSION_REDIS_URL): {_WITHOUT_REDIS}")
    try:
        return Finding("Redis", "fine", describe_redis(settings.redis_url))
    except RedisUnusable as error:
        return Finding("Redis", "fault", f"{error}. Until it can, {_WITHOUT_REDIS}")


def _volume(data_dir: Path, alive: Sequence[Any]) -> Finding:
    own = volume_id(data_dir)
    if elsewhere := [each.address for each in alive if each.volume != own]:
        text = f"{data_dir} is not what {', '.join(elsewhere)} see: mount the same volume there"
        return Finding("volume", "fault", text)
    seen = f"{len(alive)} running servers see it too" if alive else "no server runs that could see it too"
    return Finding("volume", "fine", f"{data_dir}: {seen}")


def _lock(data_dir: Path) -> Finding:
    """Another process must not get a lock that this one holds. Between machines this cannot be tried from one of them."""
    with tempfile.NamedTemporaryFile(dir=data_dir, prefix="lock.") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return Finding("volume", "fault", f"{data_dir}: files there cannot be locked ({error.strerror})")
        command = [sys.executable, "-c", _TRY_LOCK, file.name]
        other = subprocess.run(command, stderr=subprocess.DEVNULL, timeout=LOCK_TIMEOUT_SECONDS, env={"PATH": os.defpath})
    if other.returncode == 0:
        return Finding("volume", "fault", f"{data_dir}: a file that is locked could be locked by another process")
    return Finding("volume", "fine", "locks work between processes of this machine")


# What a start prints.


def startup_lines(settings: Settings) -> list[str]:
    """The lines that a starting server prints on how it works: alone or with others, with or without Redis. Needs a database of
    the current schema. Raises StorageError."""
    engine = make_engine(settings.resolved_database_url)
    try:
        with engine.connect() as connection:
            found = maintenance.describe_database(connection)
            others = [each for each in work_rows.replicas(connection) if each.age <= DEAD_AFTER_MS]
    finally:
        engine.dispose()
    absent = [f"OPENSESSION_ROOTS: there is no directory {root}" for root in settings.root_dirs if not root.is_dir()]
    if engine.dialect.name == "sqlite":
        lines = [f"Mode: one server on SQLite ({found})", *absent]
        unused = "OPENSESSION_REDIS_URL is not used: it connects servers of one PostgreSQL (OPENSESSION_DATABASE_URL)."
        return [*lines, unused] if settings.redis_url else lines
    volume = _volume(settings.data_dir, others)
    return [
        f"Mode: several servers on PostgreSQL ({found})",
        *absent,
        f"Redis: {_redis(settings).text}",
        f"Other servers of this database: {', '.join(each.address for each in others) or 'none yet'}",
        *([f"WARNING: {volume.text}"] if volume.level == "fault" else []),
    ]
