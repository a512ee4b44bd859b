"""`opensession doctor`: what it finds, what it repairs, how it ends."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from obstacles import OBSTACLES, SECRET, SPECIAL, put
from running_app import running_app
from turns import bash, configured, say, talking, texts
from typer.testing import CliRunner

from app.cli import app as command

BODY = '{"a":1}'


@pytest.fixture
async def session(tmp_path: Path) -> str:
    """Of a server that has stopped."""
    async with talking(tmp_path, turns=[[bash("echo new > b.txt")], [say("So it is.")]], title="The one") as (app, made):
        await app.prompt(made, "Go")
        return str(made)


def doctor(base: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[int, str]:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(base / "data"))
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(base))
    monkeypatch.chdir(base / "workspace")
    result = CliRunner().invoke(command, ["doctor", *options])
    return result.exit_code, result.output


def execute(base: Path, *statements: str) -> None:
    with sqlite3.connect(base / "data" / "opensession.db") as database:
        for statement in statements:
            database.execute(statement)
    database.close()


def test_all_is_well(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = doctor(tmp_path, monkeypatch)
    assert code == 0 and "fault" not in output
    for word in ("opensession ", "git version", "1 sessions, 3 messages", "1 repositories, all sound", "every layer can be read"):
        assert word in output


async def test_damage_is_reported_and_repaired(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(
        tmp_path,
        "UPDATE part SET body = '{broken' WHERE type = 'tool'",
        "UPDATE session SET body = ''",
        f"INSERT INTO part (session_id, message_id, id, type, body) SELECT id, 'msg_0', 'prt_0', 'text', '{BODY}' FROM session",
        f"INSERT INTO message (session_id, id, role, open, boundary, body) VALUES ('ses_none', 'msg_1', 'user', 0, 0, '{BODY}')",
        "UPDATE message SET open = 1 WHERE role = 'assistant' AND session_id != 'ses_none'",
    )
    (tmp_path / "data").chmod(0o755)
    code, output = await asyncio.to_thread(doctor, tmp_path, monkeypatch)
    assert (
        code == 1
        and "6 faults" in output
        and "--repair would: delete them" in output
        and "2 messages were left unfinished" in output
    )
    code, output = await asyncio.to_thread(doctor, tmp_path, monkeypatch, "--repair")
    assert code == 0 and output.count("repaired:") == 6
    code, output = await asyncio.to_thread(doctor, tmp_path, monkeypatch)
    assert code == 0 and "fault" not in output
    async with running_app(tmp_path) as app:
        (listed,) = await app.get("/session")
        assert (listed["id"], listed["title"]) == (session, "the one")
        assert texts((await app.messages(session))[-1]) == ["So it is."]


def test_a_damaged_snapshot_repository_is_set_aside(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (place,) = (tmp_path / "data" / "snapshot").glob("*/*")
    broken = next(path for path in (place / "objects").rglob("*") if path.is_file())
    broken.chmod(0o600)
    broken.write_bytes(b"nonsense")
    code, output = doctor(tmp_path, monkeypatch)
    assert code == 1 and "is damaged" in output and str(place) in output
    assert doctor(tmp_path, monkeypatch, "--repair")[0] == 0
    assert not place.exists() and place.with_name(f"{place.name}.damaged").is_dir()


def test_a_configuration_that_cannot_be_read_is_reported(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(tmp_path, {"model": 7})
    code, output = doctor(tmp_path, monkeypatch)
    assert code == 1 and "fault  configuration" in output and "opencode.json" in output


def test_keys_that_change_nothing_are_told_of(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(tmp_path, {"references": {"docs": "../docs"}})
    code, output = doctor(tmp_path, monkeypatch)
    assert code == 0 and "note   configuration" in output and "references changes nothing here" in output


def test_the_programs_of_the_directory_are_named(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = configured(tmp_path, {"lsp": {"absent": {"command": ["no-such-server"], "extensions": [".x"]}}})
    (workspace / "ruff.toml").write_text("")
    for name in ("pyright-langserver", "ruff"):
        program = workspace / ".venv" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
    code, output = doctor(tmp_path, monkeypatch)
    lines = {line.split(":")[0]: line for line in output.splitlines()}
    assert code == 0 and "pyright" in lines["fine   language servers"] and "absent" not in lines["fine   language servers"]
    assert "absent" in lines["note   language servers"] and "ruff" in lines["fine   formatters"], output


def test_a_database_that_is_none_is_reported(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "opensession.db").write_bytes(b"nonsense" * 1000)
    code, output = doctor(tmp_path, monkeypatch)
    assert code == 1 and "not a database" in output


def test_pages_that_are_damaged_are_reported(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data" / "opensession.db"
    content = bytearray(file.read_bytes())
    content[8192 : len(content) // 2] = b"\x55" * (len(content) // 2 - 8192)
    file.write_bytes(content)
    code, output = doctor(tmp_path, monkeypatch)
    assert code == 1 and "fault  database" in output


def test_a_first_start_has_nothing_to_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workspace").mkdir()
    code, output = doctor(tmp_path, monkeypatch)
    assert code == 0 and "the first start creates the tables" in output


@pytest.mark.parametrize("kind", OBSTACLES)
async def test_what_of_a_project_is_not_read_is_named(
    tmp_path: Path, session: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, workspace = tmp_path / "theirs.md", tmp_path / "workspace"
    theirs.write_text(SECRET)
    paths = [workspace / name for name in ("opencode.json", "AGENTS.md", ".opencode/agent/x.md", ".claude/skills/x/SKILL.md")]
    paths += [workspace / ".git/info/exclude"] if kind in SPECIAL else []
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(path.parent)
        put(kind, path, theirs)
    code, output = await asyncio.to_thread(doctor, tmp_path, monkeypatch)
    assert code == 1 and SECRET not in output
    assert [path for path in paths if str(path) not in output.replace("\n", "")] == []
