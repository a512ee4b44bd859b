"""What the readers ask: sessions of a project, messages in their order, the journal."""

from collections.abc import Callable
from typing import Any

import pytest
from postgres import PostgresServer, migrated
from sqlalchemy import Connection, select
from sqlalchemy import text as sql
from sqlalchemy.event import listen, remove
from storage_parts import Storage, event, message_row, open_storage_at, part_row, put_lease, session_row, writing

from app.record.maintenance import database_bytes
from app.record.repositories import journal_rows, message_rows, session_rows
from app.record.statements import statements
from app.record.tables import EVENT, METADATA
from app.util import clock


async def asked(storage: Storage, query: Any, *args: Any) -> Any:
    return await storage.database.read(lambda connection: query(connection, *args))


async def test_one_id_may_stand_in_two_sessions(storage: Storage) -> None:
    for session in ("ses_1", "ses_2"):
        await storage.put(session=[session_row(session)], message=[message_row("msg_1", session, body=session)])
        await storage.put(part=[part_row("prt_1", session_id=session, body=session)])
    for session in ("ses_1", "ses_2"):
        stored = await asked(storage, message_rows.some_messages, session, ["msg_1"])
        assert [row.body for row in (*stored.messages, *stored.parts)] == [session, session]


async def test_the_model_is_told_from_the_newest_finished_compaction_on(storage: Storage) -> None:
    async def live() -> list[str]:
        return [row.id for row in (await asked(storage, message_rows.live_messages, "ses_1")).messages]

    summary = {"role": "assistant", "boundary": True}
    rows = [
        message_row("msg_1"),
        message_row("msg_2"),
        message_row("msg_3", parent_id="msg_2", **summary),
        message_row("msg_4"),
        message_row("msg_5", parent_id="msg_4", role="assistant"),
    ]
    await storage.put(session=[session_row()], message=rows)
    assert await live() == ["msg_2", "msg_3", "msg_4", "msg_5"]
    await storage.put(message=[message_row("msg_6", parent_id="msg_4", **summary)])
    assert await live() == ["msg_4", "msg_5", "msg_6"]


def fork(connection: Connection, session_id: str) -> None:
    copy = {"source": session_id, "target": "ses_3", "before": 99, "letters": "x", "message_offset": 1, "part_offset": 1}
    for statement in statements("postgresql").copy_history:
        connection.execute(statement, copy)


def page(connection: Connection, session_id: str) -> None:
    message_rows.older_messages(connection, session_id, 100)


@pytest.mark.parametrize("query", [page, fork])
async def test_postgresql_compares_not_all_rows_of_a_session_that_is_new_to_it(
    postgres: PostgresServer, query: Callable[[Connection, str], object]
) -> None:
    storage, plans = open_storage_at(migrated(postgres)), list[str]()
    await storage.put(session=[session_row("ses_1")], message=[message_row("msg_1")], part=[part_row("prt_1")])
    await storage.database.write(lambda connection: connection.exec_driver_sql("ANALYZE"))
    new = [session_row("ses_2"), session_row("ses_3")]
    await storage.put(session=new, message=[message_row("msg_1", "ses_2")], part=[part_row("prt_1", session_id="ses_2")])

    def explain(connection: Connection) -> None:
        def note(_connection: Any, cursor: Any, statement: str, values: Any, *_rest: Any) -> None:
            if not statement.startswith("SET"):
                plans.append(str(cursor.execute(f"EXPLAIN {statement}", values).fetchall()))

        listen(connection, "before_cursor_execute", note)
        query(connection, "ses_2")
        remove(connection, "before_cursor_execute", note)

    await storage.database.write(explain)
    assert len(plans) > 1 and not [plan for plan in plans if "Join Filter" in plan or "Semi Join" in plan]
    storage.database.close()


OF_SESSION: dict[str, dict[str, Any]] = {
    "todo": {"session_id": "ses_1", "body": "[]"},
    "diff": {"session_id": "ses_1", "body": "[]"},
    "share": {"session_id": "ses_1", "id": "sh", "secret": "s", "created": 1},
    "request": {"id": "per_1", "kind": "permission", "session_id": "ses_1", "directory": "/d", "body": "{}"},
    "approval": {"project_id": "p", "permission": "bash", "pattern": "*", "session_id": "ses_1"},
}


async def test_a_deleted_session_leaves_nothing_behind(storage: Storage) -> None:
    rows = {kind: [row] for kind, row in OF_SESSION.items()}
    await storage.put(session=[session_row()], message=[message_row("msg_1")], part=[part_row("prt_1")], **rows)
    await storage.database.write(lambda connection: put_lease(connection, "ses_1", "me", 1))
    tables = ["session", "message", "part", "todo", "session_diff", "share", "pending_ask", "permission_approval", "run_lease"]
    assert [await storage.count(METADATA.tables[name]) for name in tables] == [1] * len(tables)
    gone = [{"gone": "ses_1"}]
    await storage.writer.commit(writing((storage.sql.delete_approvals, gone), (storage.sql.delete_session, gone)))
    assert [name for name in tables if await storage.count(METADATA.tables[name])] == []


async def test_a_trimmed_journal_keeps_the_newest_and_goes_on_counting(storage: Storage) -> None:
    async def trimmed_to(older_than: int) -> Any:
        upto = await asked(storage, journal_rows.newest_to_trim, 3, 10**9, older_than)
        await storage.database.write(lambda connection: journal_rows.trim_journal(connection, upto))
        return await asked(storage, journal_rows.journal_span)

    await storage.writer.commit(writing(events=[event(f"{n}") for n in range(10)]))
    assert await trimmed_to(0) == (8, 10)
    assert await trimmed_to(2**60) == (11, 10)
    await storage.writer.commit(writing(events=[event("next")]))
    assert await asked(storage, journal_rows.journal_span) == (11, 11)


async def test_the_newest_events_are_kept_though_the_clock_was_put_back(storage: Storage) -> None:
    for hour in (9, 8):
        clock.set_source(lambda hour=hour: hour * 3600.0)
        await storage.writer.commit(writing(events=[event("x") for _ in range(10)]))
    clock.set_source()
    [size] = set(await asked(storage, lambda connection: connection.execute(select(EVENT.c.bytes)).scalars().all()))
    assert await asked(storage, journal_rows.newest_to_trim, 100, 10 * size, 0) == 10


async def test_trimming_reads_no_payload(storage: Storage) -> None:
    if storage.database.dialect == "sqlite":
        query = sql(f"EXPLAIN QUERY PLAN {journal_rows._TOO_MANY_BYTES.compile(storage.database.engine)}".replace("?", ":keep"))
        plan = await storage.database.read(lambda c: c.execute(query, {"keep": 1}).all())
        assert any("COVERING INDEX event_by_time" in row[-1] for row in plan), plan


async def test_what_a_project_takes_is_counted_in_bytes(storage: Storage) -> None:
    await storage.put(
        session=[session_row("ses_mine"), session_row("ses_theirs", project_id="other")],
        message=[message_row("msg_1", "ses_mine", body="ü" * 100), message_row("msg_2", "ses_theirs", body="x" * 50)],
        part=[part_row("prt_1", "msg_1", "ses_mine", body="x" * 30)],
    )
    assert await asked(storage, session_rows.project_bytes, "p") == 230
    assert await asked(storage, session_rows.project_bytes, "nobody") == 0
    assert await asked(storage, database_bytes) > 230
