"""The migrations lead from nothing to exactly the tables that the code declares."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from database_schema import database_schema
from older_database import check_events, check_steps_and_reverts, put_events, put_steps_and_reverts, upgrade_to
from postgres import PostgresServer
from sqlalchemy import Engine, inspect, text
from typer.testing import CliRunner

from app import __version__, cli
from app.record.engine import make_engine
from app.record.migrate import HEAD, migrations_dir, revision, upgrade
from app.record.repositories import journal_rows, session_rows, webhook_rows, work_rows
from app.record.tables import METADATA
from app.record.text_search import FTS, TRIGRAMS
from app.sessions.session_tx import UNKNOWN_BASIS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return make_engine(f"sqlite:///{tmp_path / 'opensession.db'}")


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Of an empty database, another each time."""
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return postgres.new_database
    numbers = count()
    return lambda: f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"


SESSION = "session (id, project_id, directory, title_folded, updated, body)"
SESSION_1 = (SESSION, "'ses_1', 'p', '/d', 't', 1, '{}'")
JOURNAL = "event_journal (seq, directory, time, payload, bytes)"
ASK = "pending_ask (id, kind, session_id, directory, body)"
DAMAGED = "CAST(x'7bff7d' AS TEXT)"


def put(engine: Engine, *rows: tuple[str, str]) -> None:
    """Each the table with its columns, and the values."""
    with engine.begin() as connection:
        for into, values in rows:
            connection.exec_driver_sql(f"INSERT INTO {into} VALUES ({values})")


def values_of(engine: Engine, statement: str) -> list[Any]:
    """Its rows, or what is in their only column."""
    with engine.begin() as connection:
        rows = connection.execute(text(statement)).all()
    return [row[0] if len(row) == 1 else tuple(row) for row in rows]


def schema(path: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def is_of_text_index(difference: Any) -> bool:
    """The tables of FTS5 and PostgreSQL's index are made without SQLAlchemy."""
    name = difference[1].name
    return (difference[0] == "remove_table" and name.startswith(FTS)) or name == TRIGRAMS


def test_they_lead_from_nothing_to_exactly_the_declared_tables_which_a_new_database_has_too(new_url: Callable[[], str]) -> None:
    migrated, new = make_engine(new_url()), make_engine(new_url())
    upgrade_to(migrated, HEAD)
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert [difference for difference in compare_metadata(context, METADATA) if not is_of_text_index(difference)] == []
        tables = {name for name in inspect(connection).get_table_names() if not name.startswith(FTS)}
    assert tables == {*METADATA.tables, "alembic_version"}
    upgrade(new)
    assert database_schema(new) == database_schema(migrated)
    migrated.dispose()
    new.dispose()


def test_one_revision_is_the_newest() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_sequences_are_never_given_twice_and_the_counters_are_there(engine: Engine) -> None:
    """SQLite reuses the number of a deleted last row unless AUTOINCREMENT says otherwise; autogenerate does not see that."""
    upgrade(engine)
    counted = values_of(engine, "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'")
    assert set(counted) == {"session", "message", "part", "pending_ask", "queued_prompt"}
    counters = dict(values_of(engine, "SELECT name, value FROM counter"))
    assert counters.keys() == {"journal", "identity"} and counters["journal"] == 0 != counters["identity"]


def test_what_is_stored_survives_every_revision(engine: Engine) -> None:
    """A session with a share and a prompt that changed a file, as revision 0001 held it."""
    upgrade_to(engine, "0001")
    message = "message (session_id, id, role, open, boundary, body)"
    summary = '{"role":"user","summary":{"title":"T","diffs":[{"file":"a"}]}}'
    put(
        engine,
        SESSION_1,
        ("share (session_id, id, secret, created)", "'ses_1', 'abc', 'unused', 2"),
        ("session_diff (session_id, body)", "'ses_1', '[]'"),
        (message, f"'ses_1', 'msg_1', 'user', false, false, '{summary}'"),
        (message, """'ses_1', 'msg_2', 'user', false, false, '{"role":"user","summary":{"diffs":[]}}'"""),
    )
    upgrade(engine)
    without = '{"role":"user","summary":{"title":"T","diffs":[]}}'
    assert values_of(engine, "SELECT live_body FROM message ORDER BY seq") == [without, None]
    assert values_of(engine, "SELECT diff_basis FROM session") == [UNKNOWN_BASIS]
    assert values_of(engine, "SELECT * FROM share") == [("ses_1", "abc", 2)]
    values_of(engine, "DELETE FROM session RETURNING id")
    assert values_of(engine, "SELECT * FROM share") == []


def test_snapshots_and_reverts_of_an_older_database_get_columns(engine: Engine) -> None:
    upgrade_to(engine, "0006")
    put_steps_and_reverts(engine)
    values_of(engine, f"UPDATE part SET body = {DAMAGED} WHERE id = 'prt_5' RETURNING id")
    upgrade(engine)
    check_steps_and_reverts(engine)


def test_requests_and_leases_of_an_older_database_are_kept(engine: Engine) -> None:
    upgrade_to(engine, "0007")
    lease = ("run_lease (session_id, owner, generation, heartbeat)", "'ses_1', 'gone', 7, 1")
    put(engine, SESSION_1, (ASK, "'a', 'question', 'ses_1', '/', '{}'"), lease)
    upgrade(engine)
    with engine.begin() as connection:
        assert work_rows.is_pending(connection, "a")
        (held,) = work_rows.leases(connection)
        assert (held.owner, held.generation) == ("gone", 7)


def test_what_was_stored_before_there_were_users_is_nobodys(engine: Engine) -> None:
    """Its events too: none of the users may be sent them but those who see everything."""
    upgrade_to(engine, "0010")
    put(engine, SESSION_1, (JOURNAL, "1, '/d', 1, '{}', 2"))
    upgrade(engine)
    assert values_of(engine, "SELECT owner FROM event_journal") == [""]
    with engine.begin() as connection:
        assert session_rows.owners(connection, ["ses_1"]) == {"ses_1": ""}
        assert journal_rows.events_after(connection, 0, None, 1000, "anna") == ([], True)


def test_an_older_database_takes_webhooks(engine: Engine) -> None:
    """They begin behind the events that it has; with a webhook goes the log of its deliveries."""
    upgrade_to(engine, "0013")
    put(engine, (JOURNAL, "1, '/d', 1, '{}', 2"))
    values_of(engine, "UPDATE counter SET value = 1 WHERE name = 'journal' RETURNING name")
    upgrade(engine)
    row = {"id": "whk_1", "owner": "", "role": "admin", "url": "", "events": "[]", "secret": "", "id_key": "", "created": 1}
    delivery = {"message_id": "evt_1", "type": "t", "time": 1, "attempt": 1, "milliseconds": 1, "status": 204, "error": None}
    with engine.begin() as connection:
        webhook_rows.add(connection, {**row, "cursor": journal_rows.journal_span(connection)[1]})
        webhook_rows.add_deliveries(connection, "whk_1", [delivery])
        page = journal_rows.journal_page(connection, 1, None, None, 1000)
        assert (page.upto, page.is_last, page.is_gap, list(page.rows)) == (1, True, False, [])
        assert len(webhook_rows.deliveries(connection, "whk_1", 10)) == 1 and webhook_rows.remove(connection, "whk_1")
    assert values_of(engine, "SELECT count(*) FROM webhook_delivery") == [0]


def test_approvals_wider_than_a_folder_are_dropped(engine: Engine) -> None:
    """They are asked for again; a request that waits offers them no more."""
    upgrade_to(engine, "0017")
    kept = ["/srv/data/*", "/srv/data", "/srv/a*/*"]
    approvals = [("external_directory", pattern) for pattern in (*kept, "/srv/data*", "/home/u*", "/*")]
    request = {"id": "per_1", "permission": "external_directory", "always": ["/srv/data*", "/srv/data/*"]}
    put(
        engine,
        SESSION_1,
        *(("permission_approval", f"'p', '{kind}', '{pattern}', 'ses_1'") for kind, pattern in [*approvals, ("bash", "ls /x*")]),
        (ASK, f"'per_1', 'permission', 'ses_1', '/', '{json.dumps(request)}'"),
        (ASK, f"'per_2', 'permission', 'ses_1', '/', {DAMAGED}"),
    )
    upgrade(engine)
    with engine.begin() as connection:
        found = {(permission, pattern) for permission, pattern in session_rows.approvals(connection, "p")}
    assert found == {("bash", "ls /x*"), *(("external_directory", pattern) for pattern in kept)}
    [body] = values_of(engine, "SELECT body FROM pending_ask WHERE id = 'per_1'")
    assert json.loads(body) == {**request, "always": ["/srv/data/*"]}


def test_events_of_an_older_journal_get_their_type_and_session(engine: Engine) -> None:
    upgrade_to(engine, "0018")
    put_events(engine)
    put(engine, (JOURNAL, f"99, '/d', 1, {DAMAGED}, 2"))
    upgrade(engine)
    stored = values_of(engine, "DELETE FROM event_journal WHERE seq = 99 RETURNING type, session_id")
    assert stored == [("", None)], "a damaged one stays as it is"
    check_events(engine)


def test_a_second_upgrade_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    upgrade(engine)
    before = schema(tmp_path / "opensession.db")
    values_of(engine, "UPDATE counter SET value = 7 RETURNING name")
    upgrade(engine)
    assert schema(tmp_path / "opensession.db") == before
    assert values_of(engine, "SELECT value FROM counter WHERE name = 'journal'") == [7]
    with engine.connect() as connection:
        assert revision(connection) == HEAD


def test_an_upgrade_that_fails_leaves_nothing_half_made(engine: Engine, tmp_path: Path) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE part (unexpected TEXT)")
    with pytest.raises(Exception, match="part"):
        upgrade(engine)
    assert [name for name, _ in schema(tmp_path / "opensession.db")] == ["part"]


def test_two_processes_at_once_migrate_once(new_url: Callable[[], str]) -> None:
    url = new_url()
    code = (
        "import sys; from app.record.engine import make_engine; from app.record.migrate import upgrade;"
        "engine = make_engine(sys.argv[1]); print('ready', flush=True); sys.stdin.readline(); upgrade(engine)"
    )
    command = [sys.executable, "-c", code, url]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    both = [subprocess.Popen(command, cwd=ROOT, text=True, **pipes) for _ in range(2)]
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    errors = [process.communicate(timeout=180)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    engine = make_engine(url)
    assert values_of(engine, "SELECT version_num FROM alembic_version") == [HEAD]
    assert values_of(engine, "SELECT name FROM counter ORDER BY name") == ["identity", "journal"]
    engine.dispose()


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
