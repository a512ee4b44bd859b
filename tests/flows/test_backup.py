"""Backups of servers at work, restored elsewhere: all that was acknowledged before is there, and reverts work."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from launcher import opensession
from postgres import SUPERUSER, PostgresServer, migrated
from running_app import RunningApp, running_app
from running_server import needed
from turns import ALLOW, bash, play, revert, until
from typer.testing import CliRunner

from app import cli
from app.project.snapshot.lock import collection_lock
from app.util.tasks import ProcessLocks

SESSIONS = 8
WAIT_SECONDS = 60


def run(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def refused(*words: str | Path) -> str:
    return run(*words, code=1)


class Busy:
    """Sessions that are prompted one prompt after another. `acknowledged`: the messages that clients know to be stored."""

    def __init__(self, app: RunningApp) -> None:
        self.app = app
        self.acknowledged: dict[str, list[str]] = {}

    async def work(self) -> None:
        session = (await self.app.create_session(title="T", permission=ALLOW))["id"]
        self.acknowledged[session] = []
        while True:
            info = (await self.app.prompt(session, "Go on"))["info"]
            self.acknowledged[session] += [info["parentID"], info["id"]]

    @property
    def is_busy(self) -> bool:
        return len(self.acknowledged) == SESSIONS and all(self.acknowledged.values())

    def known(self) -> dict[str, list[str]]:
        return {session: list(messages) for session, messages in self.acknowledged.items()}


@asynccontextmanager
async def at_work(app: RunningApp) -> AsyncIterator[Busy]:
    busy = Busy(app)
    tasks = [asyncio.create_task(busy.work()) for _ in range(SESSIONS)]
    try:
        await until(lambda: busy.is_busy)
        yield busy
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results), results


async def changed_file(app: RunningApp) -> tuple[str, str]:
    """A session that has changed a.txt, and its prompt."""
    session = (await app.create_session(title="Changes", permission=ALLOW))["id"]
    return session, await play(app, session, bash("echo changed > a.txt"))


async def is_all_there(app: RunningApp, acknowledged: dict[str, list[str]]) -> None:
    for session, expected in acknowledged.items():
        found = [message["info"]["id"] for message in await app.messages(session)]
        assert [each for each in expected if each not in found] == []


async def reverts(app: RunningApp, session: str, prompt: str) -> None:
    assert (app.directory / "a.txt").read_text() == "changed\n"
    await revert(app, session, prompt)
    assert (app.directory / "a.txt").read_text() == "hello\nworld\n"


async def backed_up_at_work(busy: Busy, directory: Path, name: str) -> tuple[Path, dict[str, list[str]]]:
    """A backup during which sessions were answered, and what was acknowledged when it began."""
    for number in range(100):
        acknowledged, target = busy.known(), directory / f"{number}-{name}"
        await asyncio.to_thread(run, "backup", target)
        if busy.known() != acknowledged:
            return target, acknowledged
    raise AssertionError("nobody worked meanwhile")


async def test_a_backup_of_sessions_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    async with running_app(tmp_path) as app:
        session, prompt = await changed_file(app)
        (app.data_dir / "auth.json").write_text("{}")
        monkeypatch.setenv("OPENSESSION_DATA_DIR", str(app.data_dir))
        async with at_work(app) as busy:
            target, acknowledged = await backed_up_at_work(busy, tmp_path, "backup.tar.gz")
        assert "stop it first" in await asyncio.to_thread(refused, "restore", target, "--force")
    shutil.rmtree(app.data_dir)
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(elsewhere))
    await asyncio.to_thread(run, "restore", target)
    async with running_app(tmp_path, data_dir=elsewhere) as restored:
        await is_all_there(restored, acknowledged)
        await reverts(restored, session, prompt)
        assert (await restored.prompt(next(iter(acknowledged)), "Go on"))["info"]["time"]["completed"]
        assert (elsewhere / "auth.json").exists()


async def test_snapshots_are_not_collected_while_they_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_app(tmp_path) as app:
        await changed_file(app)
        monkeypatch.setenv("OPENSESSION_DATA_DIR", str(app.data_dir))
        (repository,) = app.data_dir.glob("snapshot/*/*")
        async with collection_lock(repository.absolute(), ProcessLocks()):
            copying = asyncio.create_task(asyncio.to_thread(_backup_process, app.data_dir, tmp_path / "backup"))
            await until(lambda: list(tmp_path.glob(".backup.partial/backup")))
            await asyncio.sleep(1)  # all but the snapshots takes a part of it
            assert not copying.done() and not (tmp_path / "backup").exists()
        await copying
        assert (tmp_path / "backup").is_file()


def _backup_process(data_dir: Path, target: Path) -> None:
    """Another process: the lock of this one is to be seen by it."""
    command = [opensession(), "backup", str(target)]
    subprocess.run(command, env={**os.environ, "OPENSESSION_DATA_DIR": str(data_dir)}, check=True, timeout=2 * WAIT_SECONDS)


async def test_the_files_of_a_server_with_postgresql(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the command says it: the dump first, then the files; and the way back."""
    url, target, elsewhere = migrated(postgres), tmp_path / "backup.tar.gz", tmp_path / "elsewhere"
    monkeypatch.setenv("OPENSESSION_DATABASE_URL", url)
    async with running_app(tmp_path, database_url=url) as app:
        session, prompt = await changed_file(app)
        monkeypatch.setenv("OPENSESSION_DATA_DIR", str(app.data_dir))
        async with at_work(app) as busy:
            acknowledged = busy.known()
            await asyncio.to_thread(program, "pg_dump", "--format=custom", f"--file={tmp_path / 'opensession.dump'}", plain(url))
            said = await asyncio.to_thread(run, "backup", target)
            assert f"pg_dump --format=custom --file=opensession.dump '{plain(url)}'" in said
        assert "stop it first" in await asyncio.to_thread(refused, "restore", target, "--force")
    empty = postgres.new_database()
    monkeypatch.setenv("OPENSESSION_DATABASE_URL", empty)
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(elsewhere))
    said = await asyncio.to_thread(run, "restore", target)
    assert f"--single-transaction --dbname='{plain(empty)}' opensession.dump" in said
    assert not (elsewhere / "opensession.db").exists()
    options = ("--clean", "--if-exists", "--no-owner", "--single-transaction")
    await asyncio.to_thread(program, "pg_restore", *options, f"--dbname={plain(empty)}", str(tmp_path / "opensession.dump"))
    await asyncio.to_thread(run, "migrate")
    async with running_app(tmp_path, data_dir=elsewhere, database_url=empty) as restored:
        await is_all_there(restored, acknowledged)
        await reverts(restored, session, prompt)


async def test_a_backup_of_the_other_kind_of_database_is_refused(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(tmp_path) as app:
        monkeypatch.setenv("OPENSESSION_DATA_DIR", str(app.data_dir))
        await asyncio.to_thread(run, "backup", tmp_path / "backup")
    monkeypatch.setenv("OPENSESSION_DATABASE_URL", postgres.new_database())
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "elsewhere"))
    assert "is of a server with sqlite" in await asyncio.to_thread(refused, "restore", tmp_path / "backup")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_password_of_the_database_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("OPENSESSION_DATABASE_URL", "postgresql+psycopg://me:hunter2@127.0.0.1:1/db?password=hunter3")
    said = refused("backup", tmp_path / "backup")
    assert "'postgresql://me@127.0.0.1:1/db'" in said and "hunter" not in said


def plain(url: str) -> str:
    assert SUPERUSER in url
    return url.replace("postgresql+psycopg", "postgresql")


def program(name: str, *arguments: Any) -> None:
    done = subprocess.run([needed(name), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
