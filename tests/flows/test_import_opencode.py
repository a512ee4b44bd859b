"""`opensession import-opencode`: what a server shows of what it imported, and that another run brings what is new."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import opencode_source
import pytest
from forked import PROGRAM
from opencode_source import MOVED, VERSIONS, answers, edit, generate, session_file, state_of, taken_over, unpack
from running_app import RunningApp, running_app
from running_server import clean_environment, this_checkout
from turns import infos
from typer.testing import CliRunner

from app import cli
from app.record import tables
from app.record.engine import make_engine
from app.record.repositories import session_rows

WAIT_SECONDS = 120


@pytest.fixture
def database(database: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """The one of the commands, too."""
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    if "database_url" in database:
        monkeypatch.setenv("OPENSESSION_DATABASE_URL", database["database_url"])
    return database


@pytest.fixture
async def app(tmp_path: Path, database: dict[str, str]) -> AsyncIterator[RunningApp]:
    """Runs while sessions are imported."""
    async with running_app(tmp_path, **database) as running:
        yield running


@pytest.fixture
def newest(app: RunningApp, tmp_path: Path) -> Path:
    """The data directory of the newest version that is read."""
    return unpack(VERSIONS[-1], tmp_path / "opencode", app.directory)


@pytest.mark.parametrize("statements", [(MOVED,), (MOVED, "DELETE FROM session_v2 WHERE rowid > 1"), ("DROP TABLE session",)])
async def test_what_opencode_2_has_taken_over_is_refused_in_a_sentence(
    app: RunningApp, newest: Path, statements: tuple[str, ...]
) -> None:
    before = state_of(taken_over(newest, *statements))
    for words in ([], ["--dry-run"]):
        code, output = await asyncio.to_thread(run, str(newest), *words)
        assert code == 1 and "taken over by OpenCode 2" in output and len(output.splitlines()) == 1
    assert await app.get("/experimental/session") == [] and state_of(newest) == before


async def test_tables_of_opencode_2_that_are_empty_keep_nothing_from_being_imported(app: RunningApp, newest: Path) -> None:
    assert (await imported(taken_over(newest)))[0] == "13 sessions imported"


async def test_messages_of_the_second_api_that_are_not_read_are_named(app: RunningApp, newest: Path) -> None:
    with closing(sqlite3.connect(newest / "opencode.db")) as database, database:
        (session,) = database.execute("SELECT min(id) FROM session").fetchone()
        for number in range(2):
            row = (f"msg_{number}", session, "user", number, 1, 1, "{}")
            database.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    code, output = await asyncio.to_thread(run, str(newest))
    assert code == 1 and "13 sessions imported" in output
    (named,) = [line for line in output.splitlines() if "second API" in line]
    assert session in named and "2 messages" in named


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def data(version: str, app: RunningApp, tmp_path: Path) -> Path:
    return unpack(version, tmp_path / "opencode", app.directory)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["import-opencode", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


async def imported(*words: str | Path) -> list[str]:
    """The lines of an import that could read everything."""
    code, output = await asyncio.to_thread(run, *map(str, words))
    assert code == 0, output
    return output.splitlines()


async def test_a_server_shows_what_opencode_showed(app: RunningApp, version: str, data: Path) -> None:
    recorded, before = answers(data), state_of(data)
    lines = await imported(data)
    assert lines == ["13 sessions imported", "57 messages and 6 snapshots imported"]
    assert state_of(data) == before
    project = (await app.get("/project/current"))["id"]
    assert {each["id"] for each in await app.get("/session")} == {each["id"] for each in recorded["sessions"]}
    for session, info in recorded["one"].items():
        shown = {kind: await app.get(f"/session/{session}{kind}") for kind in ("", "/message", "/todo", "/children")}
        newer = opencode_source.newer_fields(version, info, recorded["messages"][session])
        assert shown[""] == {**opencode_source.as_shown_here(version, "session", info), **newer, "projectID": project}
        for kind, name in (("/message", "messages"), ("/todo", "todo")):
            assert shown[kind] == opencode_source.as_shown_here(version, name, recorded[name][session])
        assert {child["id"] for child in shown["/children"]} == {child["id"] for child in recorded["children"][session]}


async def test_imported_sessions_go_on_and_their_reverts_work(app: RunningApp, version: str, data: Path) -> None:
    workspace, names = app.directory, answers(data)["names"]
    for name, text in {"a.txt": "Grüße\nWelt\n", "rev.txt": "one\n"}.items():
        (workspace / name).write_text(text)
    await imported(data)
    await app.post(f"/session/{names['revert']}/unrevert")
    assert (workspace / "rev.txt").read_text() == "uno\n"
    first = (await app.messages(names["tools"]))[0]["info"]["id"]
    await app.post(f"/session/{names['tools']}/revert", {"messageID": first})
    assert (workspace / "a.txt").read_text() == "hello\nworld\n"
    await app.post(f"/session/{names['tools']}/unrevert")
    assert (workspace / "a.txt").read_text() == "Grüße\nWelt\n"
    answer = await app.prompt(names["compaction"], "And then?")
    assert answer["info"]["time"]["completed"]
    assert len(await app.messages(names["compaction"])) > len(answers(data)["messages"][names["compaction"]])


@pytest.mark.parametrize("version", ["1.1.34"], indirect=True)
async def test_a_second_import_brings_what_is_new(app: RunningApp, data: Path) -> None:
    """What grew in OpenCode alone is updated; what was changed or deleted here stays so."""
    names = answers(data)["names"]
    await imported(data)
    assert await imported(data) == ["13 sessions unchanged since the last import", "0 messages and 0 snapshots imported"]
    for name in ("misc", "archived"):
        edit(session_file(data, names[name]), title="Changed there")
    await app.call("PATCH", f"/session/{names['archived']}", {"title": "Changed here"})
    await app.call("DELETE", f"/session/{names['image']}")
    grown = names["compaction"]
    last = sorted((data / "storage" / "message" / grown).glob("*.json"))[-1]
    message = json.loads(last.read_text())
    later = {**message, "id": f"{message['id']}z", "time": {**message["time"], "created": message["time"]["created"] + 1}}
    last.with_name(f"{later['id']}.json").write_text(json.dumps(later))
    part = {"id": "prt_z", "sessionID": grown, "messageID": later["id"], "type": "text", "text": "One more"}
    (data / "storage" / "part" / later["id"]).mkdir()
    (data / "storage" / "part" / later["id"] / "prt_z.json").write_text(json.dumps(part))
    (data / "storage" / "part" / message["id"]).rename(data / "gone")

    lines = await imported(data)
    assert lines[:4] == [
        "2 sessions updated: grown in OpenCode since the last import",
        "9 sessions unchanged since the last import",
        "1 sessions left alone: changed here and in OpenCode since the last import",
        "1 sessions left out: deleted here since the last import",
    ]
    assert (await app.get(f"/session/{names['misc']}"))["title"] == "Changed there"
    assert (await app.get(f"/session/{names['archived']}"))["title"] == "Changed here"
    messages = await app.messages(grown)
    assert [each["info"]["id"] for each in messages[-2:]] == [message["id"], later["id"]]
    assert [each["parts"] for each in messages[-2:]] == [[], [part]]
    assert (await imported(data))[0] == "11 sessions unchanged since the last import"


@pytest.mark.parametrize("version", ["1.18.33"], indirect=True)
async def test_another_session_of_the_same_id_is_left_alone(app: RunningApp, data: Path, database: dict[str, str]) -> None:
    names = answers(data)["names"]
    await imported(data)
    await app.call("PATCH", f"/session/{names['misc']}", {"title": "Ours"})
    engine = make_engine(database.get("database_url") or f"sqlite:///{app.data_dir / 'opensession.db'}")
    with engine.begin() as connection:
        connection.execute(tables.IMPORTED_SESSION.delete())
    engine.dispose()
    lines = await imported(data)
    alone = "1 sessions left alone: another session has the same id here"
    assert lines[:2] == ["12 sessions unchanged since the last import", alone]
    assert (await app.get(f"/session/{names['misc']}"))["title"] == "Ours"


@pytest.mark.parametrize("version", ["1.1.34"], indirect=True)
async def test_one_project_alone_and_what_cannot_be_read_is_named(app: RunningApp, data: Path, tmp_path: Path) -> None:
    names = answers(data)["names"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    edit(session_file(data, names["misc"]), directory=str(elsewhere))
    assert (await imported(data, "--project", elsewhere))[0] == "1 sessions imported"
    assert await app.get("/session") == []
    damaged = sorted((data / "storage" / "message" / names["tools"]).glob("*.json"))[1]
    damaged.write_text("{")
    code, output = await asyncio.to_thread(run, str(data))
    assert code == 1 and f"  {damaged}: " in output
    assert output.splitlines()[:2] == ["12 sessions imported", "1 sessions unchanged since the last import"]
    assert len(await app.messages(names["tools"])) == len(answers(data)["messages"][names["tools"]]) - 1


@pytest.mark.parametrize("version", ["1.1.34"], indirect=True)
async def test_a_directory_that_cannot_be_asked_for_ends_no_import_and_one_that_is_no_path_is_named(
    app: RunningApp, data: Path
) -> None:
    names = answers(data)["names"]
    edit(session_file(data, names["misc"]), directory=f"/{'x' * 300}")
    edit(session_file(data, names["tools"]), directory="")
    edit(session_file(data, names["fork"]), directory="/a\0b")
    code, output = await asyncio.to_thread(run, str(data))
    assert code == 1 and output.splitlines()[0] == "11 sessions imported" and output.count("directory: is no path") == 2
    assert (await app.get(f"/session/{names['misc']}"))["directory"] == f"/{'x' * 300}"
    assert len(await app.get("/experimental/session")) == 9


@pytest.mark.parametrize("version", ["1.1.34"], indirect=True)
@pytest.mark.parametrize("project_id", ["../../elsewhere", "x" * 300, ""])
async def test_an_id_that_is_no_projects_leads_to_no_folder(app: RunningApp, data: Path, project_id: str) -> None:
    session = answers(data)["names"]["misc"]
    edit(session_file(data, session), projectID=project_id, directory="/not/here")
    code, output = await asyncio.to_thread(run, str(data))
    assert code == 1 and output.startswith("13 sessions imported") and "projectID: names no project" in output
    assert (await app.get(f"/session/{session}"))["projectID"] == "global"


@pytest.mark.parametrize("version", ["1.1.34"], indirect=True)
async def test_sessions_that_are_their_own_ancestors_can_be_exported_and_deleted(app: RunningApp, data: Path) -> None:
    first, second = (answers(data)["names"][name] for name in ("misc", "tools"))
    edit(session_file(data, first), parentID=second)
    edit(session_file(data, second), parentID=first)
    await imported(data)
    exported = await app.get(f"/session/{first}/export?children=true")
    assert second in [child["info"]["id"] for child in exported["children"]]
    await app.call("DELETE", f"/session/{first}")
    await app.get(f"/session/{second}", expect=404)


async def test_prompts_are_answered_while_a_big_directory_is_imported(app: RunningApp, tmp_path: Path) -> None:
    source = generate(tmp_path / "generated", sessions=60, turns=5, directory=str(app.directory))
    session = (await app.create_session(title="Beside"))["id"]
    importing = asyncio.create_task(imported(source))
    prompted = 0
    while not importing.done():
        await app.prompt(session, "Hi")
        prompted += 1
    assert (await importing)[0] == "60 sessions imported"
    assert prompted >= 1
    assert len(infos(await app.messages(session), "assistant")) >= prompted
    assert len(await app.get("/session")) == 61


def stored(path: Path) -> int:
    """How many sessions there are; 0 before there is a database."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            return int(database.execute("SELECT count(*) FROM session").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def test_a_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    source = unpack("1.18.33", tmp_path / "opencode")
    before = state_of(source)
    code, output = run(str(source), "--dry-run")
    assert code == 0
    assert output.splitlines()[:2] == ["Nothing was written. What an import would do:", "13 sessions imported"]
    assert not (tmp_path / "data").exists()
    run(str(source))
    assert "13 sessions unchanged" in run(str(source), "--dry-run")[1]
    assert state_of(source) == before


def test_a_directory_without_sessions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    code, output = run()
    assert code == 1
    assert f"{tmp_path / 'opencode'} holds no sessions of OpenCode" in output


def test_a_killed_import_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    source, total = generate(tmp_path / "opencode", sessions=150, turns=3), 150
    database = tmp_path / "data" / "opensession.db"
    environment = clean_environment(tmp_path, **this_checkout()[1], OPENSESSION_DATA_DIR=str(tmp_path / "data"))
    process = subprocess.Popen([*PROGRAM, "import-opencode", str(source)], env=environment)
    deadline = time.monotonic() + WAIT_SECONDS
    while stored(database) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = stored(database)
    assert 5 <= before < total
    code, output = run(str(source))
    left = [f"{total - before} sessions imported", f"{before} sessions unchanged since the last import"]
    assert code == 0 and output.splitlines()[:2] == left
    engine = make_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        assert len(session_rows.imported_sessions(connection)) == total
        counts = [connection.execute(table.select()).all() for table in (tables.MESSAGE, tables.PART)]
    engine.dispose()
    assert list(map(len, counts)) == [total * 3 * 2, total * 3 * 5]
