"""`opensession doctor`: what it finds, what it repairs, how it ends; also on what several servers share."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from git_files import put_file
from obstacles import OBSTACLES, SECRET, SPECIAL, put
from postgres import PostgresServer, migrated
from redis_server import running_redis
from running_app import make_workspace, running_app
from running_server import free_port
from sqlalchemy import make_url, text
from turns import bash, configured, say, talking
from typer.testing import CliRunner

from app.cli import app as command
from app.cli import checks
from app.record import maintenance
from app.record.engine import make_engine
from app.settings import Settings


@pytest.fixture
async def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a server that has stopped, in whose directory the command is run."""
    async with talking(tmp_path, turns=[[bash("echo new > b.txt")], [say("So it is.")]], title="The one") as (app, made):
        await app.prompt(made, "Go")
    go_there(tmp_path, monkeypatch)
    return str(made)


def go_there(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(base / "data"))
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(base))
    monkeypatch.chdir(base / "workspace")


def doctor(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, ["doctor", *options])
    return result.exit_code, result.output


def test_all_is_well(session: str) -> None:
    code, output = doctor()
    assert code == 0 and "fault" not in output
    for word in ("opensession ", "git version", "1 sessions, 3 messages", "1 repositories, all sound", "every layer can be read"):
        assert word in output


def test_damage_is_reported_and_what_can_be_is_repaired(tmp_path: Path, session: str) -> None:
    with closing(sqlite3.connect(tmp_path / "data" / "opensession.db")) as database, database:
        database.executescript(DAMAGE)
    (tmp_path / "data").chmod(0o755)
    (tmp_path / "data" / "opensession.db").chmod(0o644)
    code, output = doctor()
    assert code == 1 and "4 faults" in output and "2 messages were left unfinished" in output
    assert f"1 session rows are damaged and left out: {session}." in output and "1 part rows are damaged" in output
    code, output = doctor("--repair")
    assert code == 1 and output.count("repaired:") == 2 and "2 faults" in output


def test_a_data_directory_of_another_user_may_be_entered_as_its_files_are_private(
    tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the volume of the image is."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    (tmp_path / "data").chmod(0o1777)
    code, output = doctor()
    assert code == 0 and "the files in it are for this user alone" in output
    (tmp_path / "data" / "opensession.db").chmod(0o644)
    code, output = doctor()
    assert code == 1 and f"others may read {tmp_path / 'data' / 'opensession.db'}" in output


def test_what_cannot_be_repaired_is_told(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    (tmp_path / "data").chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    code, output = doctor("--repair")
    assert code == 1 and "could not be repaired: [Errno 1] Operation not permitted" in output and "1 faults" in output


def test_files_of_keys_that_cannot_be_read_are_named(tmp_path: Path, session: str) -> None:
    for name in ("auth.json", "tokens.json"):
        (tmp_path / "data" / name).write_text('{"anthropic": ')
    code, output = doctor()
    assert code == 1 and "auth.json is no JSON object" in output and "tokens.json is no JSON object" in output


DAMAGE = """
    UPDATE part SET body = '{broken' WHERE type = 'tool';
    UPDATE session SET body = '';
    UPDATE message SET open = 1 WHERE role = 'assistant';
"""


def test_a_damaged_snapshot_repository_is_set_aside(tmp_path: Path, session: str) -> None:
    (place,) = (tmp_path / "data" / "snapshot").glob("*/*")
    broken = next(path for path in (place / "objects").rglob("*") if path.is_file())
    broken.chmod(0o600)
    broken.write_bytes(b"nonsense")
    code, output = doctor()
    assert code == 1 and "is damaged" in output and str(place) in output
    assert doctor("--repair")[0] == 0
    assert not place.exists() and place.with_name(f"{place.name}.damaged").is_dir()


def test_configurations_databases_and_pages_that_cannot_be_read_are_reported(tmp_path: Path, session: str) -> None:
    """A key that changes nothing is told of."""
    configured(tmp_path, {"model": 7})
    code, output = doctor()
    assert code == 1 and "fault  configuration" in output and "opencode.json" in output
    configured(tmp_path, {"references": {"docs": "../docs"}})
    code, output = doctor()
    assert code == 0 and "note   configuration" in output and "references changes nothing here" in output
    file = tmp_path / "data" / "opensession.db"
    content = file.read_bytes()
    half = len(content) // 2
    file.write_bytes(content[:8192] + b"\x55" * (half - 8192) + content[half:])
    code, output = doctor()
    assert code == 1 and "fault  database" in output
    file.write_bytes(b"nonsense" * 1000)
    code, output = doctor()
    assert code == 1 and "not a database" in output


def test_the_programs_of_the_directory_are_named(tmp_path: Path, session: str) -> None:
    workspace = configured(tmp_path, {"lsp": {"absent": {"command": ["no-such-server"], "extensions": [".x"]}}})
    (workspace / "ruff.toml").write_text("")
    for name in ("pyright-langserver", "ruff"):
        put_file(workspace / ".venv" / "bin" / name, "#!/bin/sh\nexit 1\n").chmod(0o755)
    code, output = doctor()
    lines = {line.split(":")[0]: line for line in output.splitlines()}
    assert code == 0 and "pyright" in lines["fine   language servers"] and "absent" not in lines["fine   language servers"]
    assert "absent" in lines["note   language servers"] and "ruff" in lines["fine   formatters"], output


def test_a_first_start_has_nothing_to_repair(tmp_path: Path, session: str) -> None:
    shutil.rmtree(tmp_path / "data")
    code, output = doctor()
    assert code == 0 and "the first start creates the tables" in output


@pytest.mark.parametrize("kind", OBSTACLES)
def test_what_of_a_project_is_not_read_is_named(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, workspace = tmp_path / "theirs.md", make_workspace(tmp_path / "workspace")
    go_there(tmp_path, monkeypatch)
    theirs.write_text(SECRET)
    paths = [workspace / name for name in ("opencode.json", "AGENTS.md", ".opencode/agent/x.md", ".claude/skills/x/SKILL.md")]
    paths += [workspace / ".git/info/exclude"] if kind in SPECIAL else []
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(path.parent)
        put(kind, path, theirs)
    monkeypatch.chdir(workspace)
    code, output = doctor()
    assert code == 1 and SECRET not in output
    assert [path for path in paths if str(path) not in output.replace("\n", "")] == []


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return migrated(postgres)


def reported(data_dir: Path, url: str | None, redis_url: str | None = None) -> list[str]:
    data_dir.mkdir(exist_ok=True)
    settings = Settings(data_dir=data_dir, database_url=url, redis_url=redis_url)
    engine = make_engine(settings.resolved_database_url)
    try:
        return [f"{each.level} {each.subject}: {each.text}" for each in checks.check_servers(settings, engine)]
    finally:
        engine.dispose()


def test_all_is_well_between_servers_and_what_is_not_is_named(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_redis() as redis:
        found = reported(tmp_path / "data", url, redis.url)
    starts = ["PostgreSQL: PostgreSQL ", "clocks: this machine's and the database's differ by 0.0", "Redis: Redis "]
    starts += [f"volume: {tmp_path}/data: no server runs", "volume: locks work"]
    assert [line[: len(start) + 5] for line, start in zip(found, starts, strict=True)] == [f"fine {start}" for start in starts]
    assert list((tmp_path / "data").iterdir()) == [tmp_path / "data" / "volume"]
    assert any("fault Redis: Redis at 127.0.0.1:" in line for line in reported(tmp_path, url, f"redis://127.0.0.1:{free_port()}"))
    assert any("note Redis: none is named" in line for line in reported(tmp_path, url))
    for ahead, said in ((0.4, "fine clocks"), (90.0, "note clocks: the database's is 90 s ahead of")):
        monkeypatch.setattr(maintenance, "clock_ahead_seconds", lambda _, ahead=ahead: ahead)
        assert reported(tmp_path, url)[1].startswith(said)
    monkeypatch.setattr(checks, "_TRY_LOCK", "")
    assert reported(tmp_path, url)[-1].startswith("fault volume: "), "locks that do not work"


async def test_servers_that_see_another_directory_are_named(tmp_path: Path, url: str) -> None:
    async with running_app(tmp_path, database_url=url):
        same = await asyncio.to_thread(reported, tmp_path / "data", url)
        other = await asyncio.to_thread(reported, tmp_path / "elsewhere", url)
    assert any(line.endswith("1 running servers see it too") for line in same)
    assert any(line.startswith("fault volume: ") and "mount the same volume" in line for line in other)


def test_a_database_that_is_read_only_and_one_that_is_empty(tmp_path: Path, url: str, postgres: PostgresServer) -> None:
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {make_url(url).database} SET default_transaction_read_only = on"))
    engine.dispose()
    assert "is read-only: name the primary" in reported(tmp_path, url)[0]
    assert not any(line.startswith("fault") for line in reported(tmp_path, postgres.new_database()))


def test_on_sqlite_nothing_is_shared(tmp_path: Path) -> None:
    assert reported(tmp_path, None) == []
    [note] = reported(tmp_path, None, "redis://cache")
    assert note == "note Redis: not used: it connects servers of one PostgreSQL (OPENSESSION_DATABASE_URL)"
