"""Measure servers that act as one: sessions that stream on some replicas while clients listen on all of them.

    make bench-replicas ARGS="--replicas 3 --load 30x150"

Each session works in a directory of its own and its clients are spread over all replicas. Servers run on a PostgreSQL and a Redis
of their own, or (`--replicas 0`) one on SQLite. Times are taken by the clients: `foreign` ones listen on another replica than the
one that runs the session. An event counts from the time that its row has in the journal, which is taken just before its commit.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
from sqlalchemy import create_engine, text

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from postgres import migrated, running_postgres  # noqa: E402
from redis_server import running_redis  # noqa: E402
from running_server import clean_environment, free_port  # noqa: E402

MODEL = "bench-50-20"
"""50 tokens, 20 ms apart."""
TEXT_BYTES = sum(len(f"tok{n} ") for n in range(50))
SECONDS_TO_START = 60


@dataclass
class Client:
    """One event stream. `seen`: when each event came, by its sequence; `first`: when a session's text began, of each turn."""

    replica: int
    directory: int
    bytes: int = 0
    seen: dict[int, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)

    async def listen(self, http: httpx2.AsyncClient, base: str, directory: Path, ready: asyncio.Event) -> None:
        query = {"parts": "delta", "directory": str(directory)}
        async with http.stream("GET", f"{base}/event", params=query, timeout=None) as response:
            response.raise_for_status()
            rest = b""
            async for piece in response.aiter_raw():
                ready.set()
                now = time.time()
                self.bytes += len(piece)
                *frames, rest = (rest + piece).split(b"\n\n")
                for frame in frames:
                    self._take(frame, now)

    def _take(self, frame: bytes, now: float) -> None:
        if frame.startswith(b"id: "):
            self.seen.setdefault(int(frame[4 : frame.index(b"\n")]), now)
        elif b'"delta"' in frame:
            self.first.setdefault(json.loads(frame[frame.index(b"{") :])["properties"]["messageID"], now)


@dataclass
class Replica:
    base: str
    process: psutil.Popen


@dataclass
class Cluster:
    replicas: list[Replica]
    directories: list[Path]
    processes: dict[str, psutil.Process]
    database_url: str
    redis_url: str | None

    def cpu(self) -> dict[str, float]:
        """Seconds, of each process with its children."""
        return {name: _cpu(process) for name, process in self.processes.items()}

    def redis(self) -> dict[str, int]:
        if self.redis_url is None:
            return {"commands": 0, "bytes": 0}
        import redis

        with redis.Redis.from_url(self.redis_url) as client:
            stats = client.info("stats")
        return {"commands": stats["total_commands_processed"], "bytes": stats["total_net_output_bytes"]}

    def database(self) -> dict[str, int]:
        """`commits` of transactions that wrote; SQLite counts none."""
        engine = create_engine(self.database_url)
        with engine.connect() as connection:
            head = connection.execute(text("SELECT value FROM counter WHERE name = 'journal'")).scalar_one()
            is_sqlite = engine.dialect.name == "sqlite"
            commits = 0 if is_sqlite else int(connection.execute(text("SELECT pg_current_xact_id()::text")).scalar_one())
        engine.dispose()
        return {"events": head, "commits": commits}

    def journal(self, after: int) -> dict[int, tuple[str, float]]:
        """By sequence: the directory, and the time in seconds."""
        engine = create_engine(self.database_url)
        query = text("SELECT seq, directory, time FROM event_journal WHERE seq > :after")
        with engine.connect() as connection:
            rows = {row.seq: (row.directory, row.time / 1000) for row in connection.execute(query, {"after": after})}
        engine.dispose()
        return rows


def _cpu(process: psutil.Process) -> float:
    """Children that ended are in their parent's account."""
    used = 0.0
    for each in [process, *process.children(recursive=True)]:
        try:
            times = each.cpu_times()
            used += times.user + times.system + (times.children_user + times.children_system if each == process else 0)
        except psutil.NoSuchProcess:
            pass
    return used


@contextmanager
def cluster(replicas: int, sessions: int, with_redis: bool) -> Iterator[Cluster]:
    """`replicas` 0: one server on SQLite."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="bench-replicas-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        environ = {"OPENSESSION_ROOTS": str(directory), "OPENSESSION_DATA_DIR": str(directory / "data")}
        environ |= {"OPENSESSION_MAX_EVENT_STREAMS": "5000", "OPENSESSION_MAX_CONNECTIONS": "6000"}
        database_url, redis_url, engines = f"sqlite:///{directory}/data/opensession.db", None, {}
        if replicas:
            database_url = migrated(postgres := stack.enter_context(running_postgres()))
            environ["OPENSESSION_DATABASE_URL"] = database_url
            engines["postgresql"] = _listener(postgres.port)
        if replicas and with_redis:
            redis = stack.enter_context(running_redis())
            redis_url = redis.url
            environ["OPENSESSION_REDIS_URL"] = redis_url
            engines["redis"] = _listener(redis.port)
        llm = _model(stack, directory)
        directories = [_workspace(directory / f"work{n}", llm) for n in range(sessions)]
        served = [_server(stack, directory, clean_environment(directory, **environ), n) for n in range(replicas or 1)]
        engines |= {f"server {n + 1}": psutil.Process(replica.process.pid) for n, replica in enumerate(served)}
        engines |= {"clients": psutil.Process()}
        yield Cluster(served, directories, engines, database_url, redis_url)


def _listener(port: int) -> psutil.Process:
    """The process that listens on a port."""
    pids = [each.pid for each in psutil.net_connections("tcp") if each.status == "LISTEN" and each.laddr.port == port]
    return psutil.Process(next(pid for pid in pids if pid))


def _model(stack: ExitStack, directory: Path) -> str:
    program = Path(os.environ.get("SHARED", ROOT.parent / "shared")) / "conform" / "fakellm.py"
    if not program.exists():
        sys.exit(f"The scripted model was not found at {program}: set SHARED to the directory that holds conform/.")
    base = f"http://127.0.0.1:{free_port()}"
    _run(stack, [sys.executable, str(program), base.rpartition(":")[2]], directory, dict(os.environ), directory / "model.log")
    _await(f"{base}/log", directory / "model.log")
    return base


def _workspace(directory: Path, llm: str) -> Path:
    """Without snapshots: git would be measured more than the servers."""
    limit = {"name": MODEL, "tool_call": True, "limit": {"context": 100_000, "output": 8000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{llm}/v1", "apiKey": "k"}}
    directory.mkdir()
    config = {
        "model": f"fake/{MODEL}",
        "small_model": "fake/title",
        "snapshot": False,
        "provider": {"fake": {**provider, "models": {MODEL: limit, "title": {**limit, "name": "title"}}}},
    }
    (directory / "opencode.json").write_text(json.dumps(config))
    subprocess.run(["git", "init", "-q"], cwd=directory, check=True)
    subprocess.run(["git", "add", "-A"], cwd=directory, check=True)
    subprocess.run(["git", "-c", "user.email=a@b", "-c", "user.name=a", "commit", "-qm", "first"], cwd=directory, check=True)
    return directory


def _server(stack: ExitStack, directory: Path, environ: dict[str, str], number: int) -> Replica:
    base, log = f"http://127.0.0.1:{free_port()}", directory / f"server{number}.log"
    command = [sys.executable, "-m", "app.cli", "serve", "--port", base.rpartition(":")[2]]
    process = _run(stack, command, directory, {**environ, "PYTHONPATH": str(ROOT)}, log)
    _await(f"{base}/global/health", log)
    return Replica(base, process)


def _run(stack: ExitStack, command: list[str], directory: Path, environ: dict[str, str], log: Path) -> psutil.Popen:
    process = psutil.Popen(
        command, cwd=directory, env=environ, stdout=stack.enter_context(log.open("wb")), stderr=subprocess.STDOUT
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def _await(url: str, log: Path) -> None:
    from urllib.request import urlopen

    deadline = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            with urlopen(url, timeout=2):
                return
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(f"No answer from {url}:\n{log.read_text()}")
            time.sleep(0.1)


@dataclass
class Turn:
    session: int
    replica: int
    prompted: float
    answer: str = ""


async def run_load(running: Cluster, sessions: int, clients: int, rounds: int) -> dict[str, Any]:
    size = len(running.replicas)
    async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None), timeout=300) as http:
        ids = await asyncio.gather(*(_create(http, running, n) for n in range(sessions)))
        # The first turn loads the directory; it is not measured.
        await asyncio.gather(*(_prompt(http, running, n, ids[n]) for n in range(sessions)))
        listening = [Client(replica=(n + n // sessions) % size, directory=n % sessions) for n in range(clients)]
        tasks = await _listen(http, running, listening)
        counted = running.cpu(), running.redis(), running.database()
        began = time.time()
        turns = await asyncio.gather(*(_turns(http, running, n, ids[n], rounds) for n in range(sessions)))
        ended = time.time()
        await asyncio.sleep(2)
        used = running.cpu(), running.redis(), running.database()
        for task in tasks:
            assert not task.done(), f"a stream ended: {task.exception()}"
            task.cancel()
    flat = [turn for each in turns for turn in each]
    return _report(running, listening, flat, counted, used, ended - began, sessions)


async def _create(http: httpx2.AsyncClient, running: Cluster, number: int) -> str:
    replica, directory = running.replicas[number % len(running.replicas)], running.directories[number]
    response = await http.post(f"{replica.base}/session", params={"directory": str(directory)}, json={"title": "T"})
    response.raise_for_status()
    session: str = response.json()["id"]
    return session


async def _prompt(http: httpx2.AsyncClient, running: Cluster, number: int, session: str) -> Turn:
    replica = number % len(running.replicas)
    turn = Turn(number, replica, time.time())
    body = {"parts": [{"type": "text", "text": "Go"}]}
    response = await http.post(f"{running.replicas[replica].base}/session/{session}/message", json=body)
    response.raise_for_status()
    answer = response.json()
    said = "".join(part.get("text", "") for part in answer["parts"] if part["type"] == "text")
    assert len(said.split()) == 50, f"the answer is {said[:200]!r} {answer['info'].get('error')}"
    turn.answer = answer["info"]["id"]
    return turn


async def _turns(http: httpx2.AsyncClient, running: Cluster, number: int, session: str, rounds: int) -> list[Turn]:
    turns = []
    for _ in range(rounds):
        await asyncio.sleep(random.random())
        turns.append(await _prompt(http, running, number, session))
    return turns


async def _listen(http: httpx2.AsyncClient, running: Cluster, listening: list[Client]) -> list[asyncio.Task[None]]:
    tasks, begun = [], []
    for client in listening:
        begun.append(ready := asyncio.Event())
        base, directory = running.replicas[client.replica].base, running.directories[client.directory]
        tasks.append(asyncio.create_task(client.listen(http, base, directory, ready)))
        if len(begun) % 50 == 0:
            await _all_of(begun)
    await _all_of(begun)
    return tasks


async def _all_of(begun: list[asyncio.Event]) -> None:
    async with asyncio.timeout(30):
        for ready in begun:
            await ready.wait()


def _report(
    running: Cluster,
    listening: list[Client],
    turns: list[Turn],
    before: tuple[dict[str, float], dict[str, int], dict[str, int]],
    after: tuple[dict[str, float], dict[str, int], dict[str, int]],
    seconds: float,
    sessions: int,
) -> dict[str, Any]:
    events: dict[bool, list[float]] = defaultdict(list)
    first: dict[bool, list[float]] = defaultdict(list)
    missed: dict[bool, int] = defaultdict(int)
    by_directory: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for seq, (directory, stored) in running.journal(before[2]["events"]).items():
        by_directory[directory].append((seq, stored))
    for client in listening:
        foreign = client.replica != client.directory % len(running.replicas)
        for seq, stored in by_directory[str(running.directories[client.directory])]:
            came = client.seen.get(seq)
            missed[foreign] += came is None
            if came is not None:
                events[foreign].append(came - stored)
        for turn in turns:
            if turn.session == client.directory and turn.answer in client.first:
                first[foreign].append(client.first[turn.answer] - turn.prompted)
    sent = sum(client.bytes for client in listening)
    heard = sum(len(turns) // sessions for _ in listening)
    return {
        "seconds": round(seconds, 1),
        "commit_to_client_ms": {_side(side): _spread(values) for side, values in events.items()},
        "first_delta_ms": {_side(side): _spread(values) for side, values in first.items()},
        "events_missed": {_side(side): number for side, number in missed.items()},
        "commits_per_s": round((after[2]["commits"] - before[2]["commits"]) / seconds),
        "events_per_s": round((after[2]["events"] - before[2]["events"]) / seconds),
        "redis_ops_per_s": round((after[1]["commands"] - before[1]["commands"]) / seconds),
        "redis_kb_per_s": round((after[1]["bytes"] - before[1]["bytes"]) / seconds / 1000),
        "sse_kb_per_s": round(sent / seconds / 1000),
        "sse_bytes_per_text_byte": round(sent / max(1, heard * TEXT_BYTES), 1),
        "cpu": {name: f"{(after[0][name] - used) / seconds:.0%}" for name, used in before[0].items()},
    }


def _side(foreign: bool) -> str:
    return "foreign" if foreign else "own"


def _spread(values: list[float]) -> dict[str, int]:
    ordered = sorted(values)
    return {
        "p50": round(ordered[len(ordered) // 2] * 1000),
        "p95": round(ordered[int(len(ordered) * 0.95)] * 1000),
        "max": round(ordered[-1] * 1000),
        "count": len(ordered),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--replicas", default="0,1,3", help="how many, in turn; 0 is one server on SQLite")
    options.add_argument("--load", default="30x150,100x600", help="sessions x clients, in turn")
    options.add_argument("--rounds", type=int, default=5, help="turns of each session")
    options.add_argument("--no-redis", action="store_true")
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for load in chosen.load.split(","):
        sessions, clients = map(int, load.split("x"))
        for replicas in map(int, chosen.replicas.split(",")):
            with cluster(replicas, sessions, not chosen.no_redis) as running:
                measured = asyncio.run(run_load(running, sessions, clients, chosen.rounds))
            about = {"replicas": replicas or "SQLite", "sessions": sessions, "clients": clients}
            print(json.dumps(about | measured), flush=True)


if __name__ == "__main__":
    main()
