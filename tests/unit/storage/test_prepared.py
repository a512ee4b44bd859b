"""Prepared statements: what they give is what SQLAlchemy gives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, event, insert, select, text
from sqlalchemy.exc import IntegrityError, MultipleResultsFound, NoResultFound, OperationalError
from sqlalchemy.sql.base import Executable
from storage_parts import Storage, message_row, session_row

from app.storage.prepared import PreparedStatement
from app.storage.repositories.lease_rows import now_ms
from app.storage.tables import MESSAGE, SESSION
from app.util import clock

OF_PROJECT = select(SESSION.c.id, SESSION.c.updated).where(SESSION.c.project_id == bindparam("project")).order_by(SESSION.c.seq)
EVERY_ANSWER: list[tuple[str, Callable[[Any], Any]]] = [
    ("p2", lambda found: found.one()),
    ("p2", lambda found: found.one_or_none()),
    ("p2", lambda found: found.first().updated),
    ("p2", lambda found: found.scalar_one()),
    ("p2", lambda found: found.scalar_one_or_none()),
    ("none", lambda found: found.one_or_none()),
    ("none", lambda found: found.first()),
    ("none", lambda found: found.scalar_one_or_none()),
    ("none", lambda found: found.all()),
    ("p", lambda found: [row.id for row in found.all()]),
    ("p", lambda found: [row.updated for row in found]),
    ("p", lambda found: list(found.scalars())),
]


async def put_sessions(storage: Storage) -> None:
    rows = [session_row(f"ses_{n}", project_id="p2" if n == 2 else "p", updated=n) for n in range(4)]
    await storage.database.write(lambda c: c.execute(PreparedStatement(insert(SESSION)), rows).close())


@pytest.mark.parametrize(("project", "ask"), EVERY_ANSWER)
async def test_every_way_to_ask_is_answered_as_by_sqlalchemy(storage: Storage, project: str, ask: Callable[[Any], Any]) -> None:
    await put_sessions(storage)
    both = [
        await storage.database.read(lambda c, query=query: ask(c.execute(query, {"project": project})))
        for query in (PreparedStatement(OF_PROJECT), OF_PROJECT)
    ]
    assert both[0] == both[1]


FOR_ONE = ["one", "one_or_none", "scalar_one", "scalar_one_or_none"]


@pytest.mark.parametrize(
    ("project", "ask", "raised"),
    [*(("p", ask, MultipleResultsFound) for ask in FOR_ONE), *(("none", ask, NoResultFound) for ask in FOR_ONE[::2])],
)
@pytest.mark.parametrize("query", [OF_PROJECT, PreparedStatement(OF_PROJECT)])
async def test_other_rows_than_one_are_refused_as_by_sqlalchemy(
    storage: Storage, project: str, ask: str, raised: type[Exception], query: Executable
) -> None:
    await put_sessions(storage)
    with pytest.raises(raised):
        await storage.database.read(lambda c: getattr(c.execute(query, {"project": project}), ask)())


async def test_rows_have_the_defaults_of_their_table(storage: Storage) -> None:
    await put_sessions(storage)
    row = {name: value for name, value in message_row("msg_1").items() if name not in ("open", "boundary")}
    await storage.database.write(lambda c: c.execute(PreparedStatement(insert(MESSAGE)), row).close())
    (stored,) = await storage.rows(MESSAGE)
    assert (stored.open, stored.boundary) == (False, False)


async def test_rows_with_other_columns_are_stored_by_the_same_statement(storage: Storage) -> None:
    put = PreparedStatement(insert(SESSION))
    await storage.database.write(lambda c: c.execute(put, session_row("ses_1")).close())
    await storage.database.write(lambda c: c.execute(put, session_row("ses_2", owner="anna")).close())
    assert [row.owner for row in await storage.rows(SESSION)] == ["", "anna"]


@pytest.fixture
def restored_clock() -> Iterator[None]:
    yield
    clock.set_source()


@pytest.mark.usefixtures("restored_clock")
async def test_the_time_is_that_of_each_execution(storage: Storage) -> None:
    asks = PreparedStatement(select(now_ms("sqlite").label("now")))
    times = []
    for now in (1.0, 2.0):
        clock.set_source(lambda now=now: now)
        times.append(await storage.database.read(lambda c: c.execute(asks).scalar_one()))
    assert times == [1000, 2000]


async def test_how_many_rows_were_written_is_told(storage: Storage) -> None:
    await put_sessions(storage)
    rename = PreparedStatement(SESSION.update().where(SESSION.c.project_id == bindparam("of")).values(project_id="q"))
    counts = [{"of": "p"}, [{"of": "p"}, {"of": "p2"}], [{"of": "q"}, {"of": "p2"}]]
    assert [await storage.database.write(lambda c, of=of: c.execute(rename, of).rowcount) for of in counts] == [3, 1, 4]


@pytest.mark.parametrize(
    ("sql", "raised"),
    [("SELECT nothing", OperationalError), ("INSERT INTO todo (session_id, body) VALUES ('ses_none', '[]')", IntegrityError)],
)
async def test_errors_are_sqlalchemy_s(storage: Storage, sql: str, raised: type[Exception]) -> None:
    with pytest.raises(raised, match="sqlite3"):
        await storage.database.write(lambda c: c.execute(PreparedStatement(text(sql))).close())


async def test_a_damaged_text_is_found_with_replacement_characters(storage: Storage) -> None:
    await put_sessions(storage)
    damage = text("UPDATE session SET project_id = CAST(X'ff' AS TEXT) WHERE id = 'ses_2'")
    await storage.database.write(lambda c: c.execute(damage).close())
    projects = PreparedStatement(select(SESSION.c.project_id).where(SESSION.c.id == bindparam("id")))
    for ask in (storage.database.read, storage.database.look_up):
        assert await ask(lambda c: c.execute(projects, {"id": "ses_2"}).scalar_one()) == "\ufffd"


@contextmanager
def statements_heard(connection: Connection) -> Iterator[list[tuple[str, Any, bool]]]:
    heard: list[tuple[str, Any, bool]] = []

    def note(_connection: Any, _cursor: Any, sql: str, values: Any, _context: Any, is_many: bool) -> None:
        heard.append((sql, values, is_many))

    event.listen(connection, "before_cursor_execute", note)
    yield heard
    event.remove(connection, "before_cursor_execute", note)


async def test_who_listens_to_statements_hears_of_them(storage: Storage) -> None:
    def ask(connection: Connection) -> list[tuple[str, Any, bool]]:
        with statements_heard(connection) as heard:
            connection.execute(PreparedStatement(text("SELECT :a")), {"a": 1})
        return heard

    assert await storage.database.read(ask) == [("SELECT :a", {"a": 1}, False)]


async def test_a_column_that_would_have_to_be_converted_is_refused(storage: Storage) -> None:
    with pytest.raises(AssertionError, match="archived has to be converted"):
        await storage.database.read(lambda c: c.execute(PreparedStatement(select(SESSION.c.archived))).all())
