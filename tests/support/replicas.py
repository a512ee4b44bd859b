"""Several servers on one PostgreSQL, one Redis, one data directory and one workspace, each in a process that a test may end."""

import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx2
import psutil
import psycopg
from cable import Cable
from follower import Follower
from killable import PATIENCE, Client
from model_server import model_server
from postgres import PostgresServer, migrated
from processes import running_in
from prompted_model import PromptedModel
from real_server import ServerProcess
from redis_server import RedisServer
from running_server import ROOT, clean_environment, new_workspace

COUNT = int(os.environ.get("OPENSESSION_TEST_REPLICAS", "3"))
"""1: the tests run against one server, which tells a wrong test from a wrong server."""

GRACE_SECONDS = 1
"""What a turn is given when its server is told to stop."""

_TOLD = "FROM event_journal WHERE directory = %s AND payload NOT LIKE %s"
_SECOND_API = '{"type":"session.next.%'


class Replica(ServerProcess):
    def __init__(self, name: str, directory: Path, workspace: Path, environment: dict[str, str]) -> None:
        super().__init__(workspace, environment, directory / f"{name}.log")
        self.name = name

    @property
    def is_running(self) -> bool:
        return hasattr(self, "process") and self.process.poll() is None

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """As an operator does: it has its grace."""
        self.process.terminate()
        self.process.wait(PATIENCE)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        limits = httpx2.Limits(max_keepalive_connections=0)  # a connection that a killed server left would be used again
        async with httpx2.AsyncClient(base_url=self.url, timeout=PATIENCE, limits=limits) as http:
            yield Client(http, self.process)


class Replicas:
    """`database` is a URL as psycopg reads it."""

    def __init__(
        self, directory: Path, postgres: PostgresServer, redis: RedisServer, model: PromptedModel, wire: Cable | None
    ) -> None:
        self.directory, self.postgres, self.redis, self.model, self.wire = directory, postgres, redis, model, wire
        self.workspace = new_workspace(directory / "workspace")
        # Sessions share the files: a revert would take back what commands of the others noted while its own turn ran.
        (self.workspace / ".gitignore").write_text("log.txt\ngo-*\n")
        url = migrated(postgres)
        self.database = url.replace("+psycopg", "")
        (directory / "home").mkdir()
        environment = clean_environment(
            directory / "home",
            OPENSESSION_DATA_DIR=str(directory / "data"),
            OPENSESSION_DATABASE_URL=url,
            OPENSESSION_REDIS_URL=redis.url,
            OPENSESSION_SHUTDOWN_SECONDS=str(GRACE_SECONDS),
            OPENSESSION_WEBHOOK_PRIVATE_ADDRESSES="true",
            PYTHONPATH=str(ROOT),
        )
        self.all = [Replica(name, directory, self.workspace, dict(environment)) for name in "abcdefgh"[:COUNT]]
        if wire is not None:
            self.all[0].environment["OPENSESSION_DATABASE_URL"] = url.replace(f":{postgres.port}/", f":{wire.port}/")
        self.configure({})

    def configure(self, config: dict[str, Any]) -> None:
        """The workspace's `opencode.json`, which names the model."""
        (self.workspace / "opencode.json").write_text(json.dumps({**self.model.config(), **config}))

    def start(self) -> None:
        """Those that do not run, all at once."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(Replica.start, [replica for replica in self.all if not replica.is_running]))

    def end(self) -> None:
        for replica in self.all:
            if replica.is_running:
                replica.kill()

    def rows(self, query: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.database, autocommit=True) as connection:
            return connection.execute(query, values).fetchall()

    def journal(self, after: int = 0, upto: int = 2**62) -> list[tuple[int, dict[str, Any]]]:
        """The events of the workspace that clients of the first API are told, as the database has them."""
        query = f"SELECT seq, payload {_TOLD} AND seq > %s AND seq <= %s ORDER BY seq"
        found = self.rows(query, str(self.workspace), _SECOND_API, after, upto)
        return [(seq, json.loads(payload)) for seq, payload in found]

    def head(self) -> int:
        return int(self.rows(f"SELECT coalesce(max(seq), 0) {_TOLD}", str(self.workspace), _SECOND_API)[0][0])

    def left_running(self) -> list[int]:
        """Processes that work in the workspace and are no replica."""
        return list({*running_in(self.workspace)} - {replica.process.pid for replica in self.all})

    def orphaned(self) -> list[int]:
        """Processes that work in the workspace and that no living replica started. What ends while this looks is none."""
        found = running_in(self.workspace)
        living = [psutil.Process(replica.process.pid) for replica in self.all if replica.is_running]
        own = {process.pid for replica in living for process in (replica, *replica.children(recursive=True))}
        return [pid for pid in running_in(self.workspace) if pid in found and pid not in own]

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[list[Client]]:
        """Three, also where fewer replicas run."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(replica.client()) for replica in islice(cycle(self.all), 3)]

    @asynccontextmanager
    async def followers(self, *parts: str) -> AsyncIterator[list[Follower]]:
        """For each replica one of each kind of `parts` that goes on at another when its own is gone."""
        urls = [replica.url for replica in self.all]
        made = [Follower([*urls[at:], *urls[:at]], kind) for at in range(len(urls)) for kind in parts or ("full",)]
        async with AsyncExitStack() as stack:
            for follower in made:
                await stack.enter_async_context(follower.following())
            yield made


@contextmanager
def running_replicas(
    directory: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    *,
    own: Sequence[dict[str, str]] = (),
    wire: Cable | None = None,
) -> Iterator[Replicas]:
    """`own`: what the environment of each has besides. `wire`: by which the first reaches PostgreSQL."""
    with model_server(PromptedModel) as model:
        made = Replicas(directory, postgres, redis, model, wire)
        for replica, environment in zip(made.all, own, strict=False):
            replica.environment |= environment
        try:
            made.start()
            yield made
        finally:
            made.end()
