"""Databases as earlier revisions held them."""

from collections.abc import Callable

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, text

from app.record.migrate import migrations_dir

MANY = 6_000
"""More rows than a migration reads at once."""


def upgrade_to(engine: Engine, revision: str) -> None:
    _run(engine, command.upgrade, revision)


def downgrade_to(engine: Engine, revision: str) -> None:
    _run(engine, command.downgrade, revision)


def _run(engine: Engine, migrate: Callable[[Config, str], None], revision: str) -> None:
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(migrations_dir()))
        config.attributes["connection"] = connection
        migrate(config, revision)


def put_steps_and_reverts(engine: Engine) -> None:
    """As they stood before their snapshots and reverts had columns, some of them damaged."""
    sessions = {
        "ses_1": '{"id":"ses_1","revert":{"messageID":"msg_1","unfinished":true}}',
        "ses_2": '{"id":"ses_2","title":"\\"unfinished\\":true","revert":{"messageID":"msg_1"}}',
        "ses_3": '{"id":"ses_3","share":{"unfinished":true}}',
        "ses_4": '{"unfinished":true',
    }
    parts = [
        ("prt_1", "step-start", '{"type":"step-start","snapshot":"tree1"}'),
        ("prt_2", "text", '{"type":"text","text":"x","snapshot":"no tree"}'),
        ("prt_3", "step-finish", '{"type":"step-finish","snapshot":"tree2"}'),
        ("prt_4", "step-start", '{"type":"step-start"}'),
        ("prt_5", "step-start", '{"type":"step-start","snapshot":"tre'),
        *((f"prt_many{n}", "step-finish", '{"type":"step-finish","snapshot":"tree3"}') for n in range(MANY)),
    ]
    with engine.begin() as connection:
        put_session = (
            "INSERT INTO session (id, project_id, directory, title_folded, updated, body) VALUES (:id, 'p', '/', '', 1, :body)"
        )
        connection.execute(text(put_session), [{"id": session_id, "body": body} for session_id, body in sessions.items()])
        put_part = "INSERT INTO part (session_id, message_id, id, type, body) VALUES ('ses_1', 'msg_1', :id, :type, :body)"
        connection.execute(text(put_part), [{"id": part_id, "type": kind, "body": body} for part_id, kind, body in parts])


def check_steps_and_reverts(engine: Engine) -> None:
    with engine.begin() as connection:
        trees = connection.execute(text("SELECT id, snapshot FROM part WHERE snapshot IS NOT NULL ORDER BY seq")).all()
        assert trees[:2] == [("prt_1", "tree1"), ("prt_3", "tree2")]
        assert {tree for _, tree in trees[2:]} == {"tree3"} and len(trees) == MANY + 2
        assert connection.execute(text("SELECT id FROM session WHERE reverting")).all() == [("ses_1",)]


EVENTS = {
    '{"type":"session.created","properties":{"info":{"id":"ses_1","projectID":"p"}}}': ("session.created", "ses_1"),
    '{"type":"session.idle","properties":{"sessionID":"ses_2"}}': ("session.idle", "ses_2"),
    '{"type":"message.updated","properties":{"info":{"id":"msg_1","sessionID":"ses_3"}}}': ("message.updated", "ses_3"),
    '{"type":"message.part.updated","properties":{"part":{"id":"prt_1","sessionID":"ses_4","text":"\\u0000"}}}': (
        "message.part.updated",
        "ses_4",
    ),
    '{"type":"pty.created","properties":{"info":{"id":"pty_1","title":"\\"sessionID\\":\\"ses_5\\""}}}': ("pty.created", None),
    '{"type":"tui.session.select","properties":{"sessionID":"ses_6"}}': ("tui.session.select", None),
    '{"type":"global.disposed","properties":{}}': ("global.disposed", None),
    "{}": ("", None),
}
"""As the journal held them before their types and sessions had columns, by the JSON of each."""


def put_events(engine: Engine) -> None:
    rows = [{"seq": seq, "payload": payload} for seq, payload in enumerate(EVENTS, start=1)]
    with engine.begin() as connection:
        columns = "event_journal (seq, directory, time, payload, bytes)"
        connection.execute(text(f"INSERT INTO {columns} VALUES (:seq, '/d', 1, :payload, 2)"), rows)


def check_events(engine: Engine) -> None:
    with engine.begin() as connection:
        stored = connection.execute(text("SELECT payload, type, session_id FROM event_journal ORDER BY seq")).all()
    assert {payload: (kind, session_id) for payload, kind, session_id in stored} == EVENTS
