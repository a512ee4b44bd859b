"""The migrations lead from nothing to exactly the tables that the code declares."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from database_schema import database_schema
from older_database import check_events, check_steps_and_reverts, put_events, put_steps_and_reverts, upgrade_to
from sqlalchemy import Engine, inspect, text
from typer.testing import CliRunner

from app import __version__, cli
from app.record.engine import make_engine
from app.record.migrate import HEAD, migrations_dir, revision, upgrade
from app.record.repositories import directory_rows, journal_rows, session_rows, webhook_rows, work_rows
from app.record.tables import METADATA
from app.record.text_search import FTS
from app.sessions.session_tx import UNKNOWN_BASIS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return make_engine(f"sqlite:///{tmp_path / 'opensession.db'}")


def scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()))
    return ScriptDirectory.from_config(config)


SESSION = "session (id, project_id, directory, title_folded, updated, body)"
SESSION_1 = "'ses_1', 'p', '/d', 't', 1, '{}'"


def put(engine: Engine, *rows: tuple[str, str]) -> None:
    """Each the table with its columns, and the values."""
    with engine.begin() as connection:
        for into, values in rows:
            connection.execute(text(f"INSERT INTO {into} VALUES ({values})"))


def schema(path: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def test_from_nothing_they_make_exactly_the_declared_tables(engine: Engine) -> None:
    upgrade_to(engine, HEAD)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        differences = [difference for difference in compare_metadata(context, METADATA) if not is_of_text_index(difference)]
        assert differences == []
        tables = {name for name in inspect(connection).get_table_names() if not name.startswith(FTS)}
        assert tables == {*METADATA.tables, "alembic_version"}


def test_a_new_database_is_made_with_what_they_make(engine: Engine, tmp_path: Path) -> None:
    upgrade(engine)
    migrated = make_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    upgrade_to(migrated, HEAD)
    assert database_schema(engine) == database_schema(migrated)


def is_of_text_index(difference: Any) -> bool:
    """The tables of FTS5 are made without SQLAlchemy."""
    return difference[0] == "remove_table" and difference[1].name.startswith(FTS)


def test_sequences_are_never_given_twice_and_the_counters_are_there(engine: Engine) -> None:
    """SQLite reuses the number of a deleted last row unless AUTOINCREMENT says otherwise; autogenerate does not see that."""
    upgrade(engine)
    counted = {"session", "message", "part", "pending_ask", "queued_prompt"}
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"))
        assert set(rows.scalars()) == counted
        counters = dict(connection.execute(text("SELECT name, value FROM counter")).all())
    assert counters.keys() == {"journal", "identity"} and counters["journal"] == 0 != counters["identity"]


def test_head_names_the_newest_revision() -> None:
    assert scripts().get_heads() == [HEAD]


def test_what_is_stored_survives_every_revision(engine: Engine) -> None:
    """A session with a share and a prompt that changed a file, as revision 0001 held it."""
    upgrade_to(engine, "0001")
    put(
        engine,
        (SESSION, SESSION_1),
        ("share (session_id, id, secret, created)", "'ses_1', 'abc', 'unused', 2"),
        ("session_diff (session_id, body)", "'ses_1', '[]'"),
    )
    with engine.begin() as connection:
        for message, summary in (("msg_1", {"title": "T", "diffs": [{"file": "a"}]}), ("msg_2", {"diffs": []})):
            row = {"id": message, "body": json.dumps({"role": "user", "summary": summary}, separators=(",", ":"))}
            columns = "session_id, id, role, open, boundary, body"
            connection.execute(text(f"INSERT INTO message ({columns}) VALUES ('ses_1', :id, 'user', false, false, :body)"), row)
    upgrade(engine)
    with engine.begin() as connection:
        without = '{"role":"user","summary":{"title":"T","diffs":[]}}'
        assert connection.execute(text("SELECT live_body FROM message ORDER BY seq")).scalars().all() == [without, None]
        assert connection.execute(text("SELECT diff_basis FROM session")).scalar_one() == UNKNOWN_BASIS
        assert connection.execute(text("SELECT * FROM share")).all() == [("ses_1", "abc", 2)]
        connection.execute(text("DELETE FROM session"))
        assert connection.execute(text("SELECT * FROM share")).all() == []


def test_snapshots_and_reverts_of_an_older_database_get_columns(engine: Engine) -> None:
    upgrade_to(engine, "0006")
    put_steps_and_reverts(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE part SET body = CAST(x'7bff7d' AS TEXT) WHERE id = 'prt_5'"))
    upgrade(engine)
    check_steps_and_reverts(engine)


def test_requests_and_leases_of_an_older_database_are_kept(engine: Engine) -> None:
    upgrade_to(engine, "0007")
    put(
        engine,
        (SESSION, SESSION_1),
        ("pending_ask (id, kind, session_id, directory, body)", "'a', 'question', 'ses_1', '/', '{}'"),
        ("run_lease (session_id, owner, generation, heartbeat)", "'ses_1', 'gone', 7, 1"),
    )
    upgrade(engine)
    with engine.begin() as connection:
        assert work_rows.is_pending(connection, "a")
        (held,) = work_rows.leases(connection)
        assert (held.owner, held.generation) == ("gone", 7)


def test_what_was_stored_before_there_were_users_is_nobodys(engine: Engine) -> None:
    """Its events too: none of the users may be sent them but those who see everything."""
    upgrade_to(engine, "0010")
    put(engine, (SESSION, SESSION_1), ("event_journal (seq, directory, time, payload, bytes)", "1, '/d', 1, '{}', 2"))
    upgrade(engine)
    with engine.begin() as connection:
        assert session_rows.owners(connection, ["ses_1"]) == {"ses_1": ""}
        assert connection.execute(text("SELECT owner FROM event_journal")).scalars().all() == [""]
        assert journal_rows.events_after(connection, 0, None, 1000, "anna") == ([], True)


def test_an_older_database_takes_webhooks(engine: Engine) -> None:
    """They begin behind the events that it has; with a webhook goes the log of its deliveries."""
    upgrade_to(engine, "0013")
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO event_journal (seq, directory, time, payload, bytes) VALUES (1, '/d', 1, '{}', 2)"))
        connection.execute(text("UPDATE counter SET value = 1 WHERE name = 'journal'"))
    upgrade(engine)
    row = {"id": "whk_1", "owner": "", "role": "admin", "url": "", "events": "[]", "secret": "", "id_key": "", "created": 1}
    delivery = {"message_id": "evt_1", "type": "t", "time": 1, "attempt": 1, "milliseconds": 1, "status": 204, "error": None}
    with engine.begin() as connection:
        webhook_rows.add(connection, {**row, "cursor": journal_rows.journal_span(connection)[1]})
        webhook_rows.add_deliveries(connection, "whk_1", [delivery])
        page = journal_rows.journal_page(connection, 1, None, None, 1000)
        assert (page.upto, page.is_last, page.is_gap, list(page.rows)) == (1, True, False, [])
        assert len(webhook_rows.deliveries(connection, "whk_1", 10)) == 1 and webhook_rows.remove(connection, "whk_1")
        assert connection.execute(text("SELECT count(*) FROM webhook_delivery")).scalar_one() == 0


def test_approvals_wider_than_a_folder_are_dropped(engine: Engine) -> None:
    """They are asked for again; a request that waits offers them no more."""
    upgrade_to(engine, "0017")
    kept = ["/srv/data/*", "/srv/data", "/srv/a*/*"]
    request = {"id": "per_1", "permission": "external_directory", "always": ["/srv/data*", "/srv/data/*"]}
    put(engine, (SESSION, SESSION_1))
    with engine.begin() as connection:
        for pattern in [*kept, "/srv/data*", "/home/u*", "/*"]:
            row = {"pattern": pattern}
            connection.execute(text("INSERT INTO permission_approval VALUES ('p', 'external_directory', :pattern, 'ses_1')"), row)
        connection.execute(text("INSERT INTO permission_approval VALUES ('p', 'bash', 'ls /x*', 'ses_1')"))
        waiting = "pending_ask (id, kind, session_id, directory, body)"
        row = {"body": json.dumps(request)}
        connection.execute(text(f"INSERT INTO {waiting} VALUES ('per_1', 'permission', 'ses_1', '/', :body)"), row)
        damaged = "CAST(x'7bff7d' AS TEXT)"
        connection.execute(text(f"INSERT INTO {waiting} VALUES ('per_2', 'permission', 'ses_1', '/', {damaged})"))
    upgrade(engine)
    with engine.begin() as connection:
        found = {(permission, pattern) for permission, pattern in directory_rows.approvals(connection, "p")}
        assert found == {("bash", "ls /x*"), *(("external_directory", pattern) for pattern in kept)}
        body = json.loads(connection.execute(text("SELECT body FROM pending_ask WHERE id = 'per_1'")).scalar_one())
        assert body == {**request, "always": ["/srv/data/*"]}


def test_events_of_an_older_journal_get_their_type_and_session(engine: Engine) -> None:
    upgrade_to(engine, "0018")
    put_events(engine)
    with engine.begin() as connection:
        damaged = (
            "INSERT INTO event_journal (seq, directory, time, payload, bytes) VALUES (99, '/d', 1, CAST(x'7bff' AS TEXT), 2)"
        )
        connection.execute(text(damaged))
    upgrade(engine)
    with engine.begin() as connection:
        (stored,) = connection.execute(text("DELETE FROM event_journal WHERE seq = 99 RETURNING type, session_id")).all()
        assert stored == ("", None), "a damaged one stays as it is"
    check_events(engine)


def test_a_second_upgrade_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    upgrade(engine)
    before = schema(tmp_path / "opensession.db")
    with engine.begin() as connection:
        connection.execute(text("UPDATE counter SET value = 7"))
    upgrade(engine)
    assert schema(tmp_path / "opensession.db") == before
    with engine.connect() as connection:
        assert connection.execute(text("SELECT value FROM counter WHERE name = 'journal'")).scalar_one() == 7
        assert revision(connection) == HEAD


def test_an_upgrade_that_fails_leaves_nothing_half_made(engine: Engine, tmp_path: Path) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE part (unexpected TEXT)"))
    with pytest.raises(Exception, match="part"):
        upgrade(engine)
    assert [name for name, _ in schema(tmp_path / "opensession.db")] == ["part"]


def test_two_processes_at_once_migrate_once(tmp_path: Path) -> None:
    path = tmp_path / "opensession.db"
    code = (
        "import sys; from app.record.engine import make_engine; from app.record.migrate import upgrade;"
        "engine = make_engine(sys.argv[1]); print('ready', flush=True); sys.stdin.readline(); upgrade(engine)"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{path}"]
    both = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    errors = [process.communicate(timeout=180)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert "counter" in dict(schema(path))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]


COMMANDS = ["serve --port 0", "migrate", "doctor", "stats", "user list", "session list", "prune --older-than 1d", "run Hi"]


@pytest.mark.parametrize(("found", "means"), [("9999", "a newer opensession"), ("0001x", "no version of opensession has")])
def test_every_command_says_of_an_unknown_schema_which_versions_these_are(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str, means: str
) -> None:
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :found"), {"found": found})
    for name in ("OPENSESSION_DATA_DIR", "OPENCODE_TEST_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        result = CliRunner().invoke(cli.app, command.split())
        (said,) = [line for line in result.output.splitlines() if means in line]
        assert result.exit_code == 1 and found in said and HEAD in said and __version__ in said, command
        assert "Traceback" not in result.output
    with engine.connect() as connection:
        assert revision(connection) == found, "nothing was changed"
