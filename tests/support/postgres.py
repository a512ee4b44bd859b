"""A PostgreSQL of the tests' own: a cluster in a directory that goes with it, on a free port, run by an unprivileged user."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from running_server import free_port, skip_or_fail
from sqlalchemy import create_engine

from app.record.engine import make_engine
from app.record.migrate import upgrade

SUPERUSER = "opensession"
UNPRIVILEGED = "postgres"
"""Who runs it when the tests are run by root, which PostgreSQL refuses; Debian's package makes this user."""

PATIENCE = 180


@dataclass(frozen=True)
class PostgresServer:
    """`restart` breaks all connections and returns when new ones are accepted."""

    port: int
    restart: Callable[[], None]
    _numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def new_database(self, like: str = "template1") -> str:
        """The URL of a new database, a copy of `like`."""
        name = f"test_{next(self._numbers)}"
        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            quick = "STRATEGY FILE_COPY" if connection.dialect.server_version_info >= (15,) else ""
            connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {like} {quick}")
        engine.dispose()
        return self.url(name)

    @cached_property
    def migrated_template(self) -> str:
        """The name of a database with the newest schema, to be copied."""
        url = self.new_database()
        engine = make_engine(url)
        upgrade(engine)
        engine.dispose()
        return url.rpartition("/")[2]


def migrated(server: PostgresServer) -> str:
    """The URL of a new database with the newest schema."""
    return server.new_database(like=server.migrated_template)


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Skips where PostgreSQL, psycopg or a user to run it is missing."""
    if find_spec("psycopg") is None:
        skip_or_fail("psycopg is not installed")
    programs, user = _programs(), _user()
    directory = Path(tempfile.mkdtemp(prefix="opensession-postgres-"))
    if user:
        shutil.chown(directory, user)
    try:
        with _cluster(programs, directory, user) as running:
            yield running
    finally:
        shutil.rmtree(directory)


@contextmanager
def _cluster(programs: Path, directory: Path, user: str | None) -> Iterator[PostgresServer]:
    data, port = directory / "data", free_port()

    def run(program: str, *arguments: str) -> None:
        """The server inherits these streams: pipes would be waited for until it stops."""
        with (directory / f"{program}.out").open("ab") as output:
            result = subprocess.run(
                [programs / program, *arguments],
                cwd=directory,
                user=user,
                group=user,
                extra_groups=[] if user else None,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE,
            )
        assert result.returncode == 0, Path(output.name).read_text() + _read(directory / "log")

    run("initdb", f"--pgdata={data}", f"--username={SUPERUSER}", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
    options = f"-p {port} -F -c listen_addresses=127.0.0.1 -c unix_socket_directories={directory}"
    start = ("--wait", f"--pgdata={data}", f"--log={directory / 'log'}", f"--options={options}")
    run("pg_ctl", "start", *start)
    try:
        yield PostgresServer(port, lambda: run("pg_ctl", "restart", "--mode=fast", *start))
    finally:
        run("pg_ctl", "stop", f"--pgdata={data}", "--mode=immediate")


def _read(log: Path) -> str:
    return log.read_text() if log.exists() else ""


def _programs() -> Path:
    """Where initdb and pg_ctl are; Debian keeps them off the PATH."""
    on_path = shutil.which("initdb")
    found = [Path(on_path)] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        skip_or_fail("PostgreSQL is not installed (initdb)")
    return found[-1].parent


def _user() -> str | None:
    """None: whoever runs the tests may run it too."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(UNPRIVILEGED).pw_name
    except KeyError:
        skip_or_fail(f"PostgreSQL does not run as root, and there is no user {UNPRIVILEGED}")
        raise
