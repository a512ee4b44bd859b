"""How SQLite answers what is asked of messages and parts: by an index, of the messages that are asked for alone.

In whatever order the indexes were made: of two that serve a query alike, SQLite takes the last one.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from storage_parts import Storage, message_row, part_row, session_row, writing

from app.record.repositories import journal_rows, message_rows, session_rows, work_rows


@pytest.fixture(params=["first to last", "last to first"], autouse=True)
async def indexes(storage: Storage, request: pytest.FixtureRequest) -> None:
    """Made anew in the order of their names, or against it."""

    def make(connection: Connection) -> None:
        made = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"))
        for name, statement in sorted(made.all(), reverse=request.param == "last to first"):
            connection.exec_driver_sql(f"DROP INDEX {name}")
            connection.exec_driver_sql(statement)

    await storage.database.write(make)


async def plans(storage: Storage, query: Callable[..., Any], *args: Any) -> list[str]:
    """The plan of every statement that a query makes, line by line."""
    await put_conversation(storage)

    def explained(connection: Connection) -> list[str]:
        asked: list[tuple[str, Any]] = []

        def note(_connection: Any, _cursor: Any, sql: str, parameters: Any, *_rest: Any) -> None:
            asked.append((sql, parameters))

        event.listen(connection, "before_cursor_execute", note)
        query(connection, "ses_1", *args)
        cursor = connection.connection.cursor()
        return [row[3] for sql, values in asked for row in cursor.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()]

    return await storage.database.read(explained)


async def put_conversation(storage: Storage) -> None:
    """The answer is a summary, from which on the model is told."""
    answer = message_row("msg_2", role="assistant", parent_id="msg_1", boundary=True)
    parts = [part_row("prt_1", "msg_2", type="step-start", snapshot="tree"), part_row("prt_2", "msg_2", type="patch")]
    writes = [
        (storage.sql.put_session, [session_row()]),
        (storage.sql.put_message, [message_row("msg_1"), answer]),
        (storage.sql.put_part, parts),
    ]
    await storage.writer.commit(writing(*writes))


def of_parts(plan: list[str]) -> list[str]:
    return [line.removesuffix(" LEFT-JOIN") for line in plan if "part" in line.split()]


def sorted_or_scanned(plan: list[str]) -> list[str]:
    return [line for line in plan if "TEMP B-TREE" in line or line.startswith("SCAN")]


@pytest.mark.parametrize(
    ("query", "args"),
    [
        (message_rows.live_messages, ()),
        (message_rows.older_messages, (2, None)),
        (message_rows.newer_messages, (2, 0)),
        (message_rows.some_messages, (["msg_1", "msg_2"],)),
        (message_rows.newest_answer, ()),
        (message_rows.newest_answer, ("msg_1",)),
    ],
)
async def test_the_parts_of_some_messages_are_looked_up_by_message(
    storage: Storage, query: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    plan = await plans(storage, query, *args)
    assert of_parts(plan) == ["SEARCH part USING INDEX part_by_message (session_id=? AND message_id=?)"]
    assert not sorted_or_scanned(plan)


async def test_all_parts_of_a_session_are_read_in_the_order_of_an_index(storage: Storage) -> None:
    plan = await plans(storage, message_rows.all_messages)
    assert of_parts(plan) == ["SEARCH part USING INDEX part_by_message (session_id=?)"]
    assert not sorted_or_scanned(plan)


@pytest.mark.parametrize(
    "query",
    [
        message_rows.unanswered_prompt,
        message_rows.message_seq,
        message_rows.input_hash,
        message_rows.answers_to,
        message_rows.history_extent,
        session_rows.session_to_prompt,
        session_rows.session_and_prompt,
        session_rows.session_and_waiting_prompts,
        work_rows.queued_prompts,
        work_rows.lease_of,
    ],
)
async def test_nothing_of_other_sessions_is_read(storage: Storage, query: Callable[..., Any]) -> None:
    more = ["msg_1"] if "message_id" in signature(query).parameters or "prompt_id" in signature(query).parameters else []
    assert not sorted_or_scanned(await plans(storage, query, *more))


async def test_a_snapshot_is_looked_up_by_message(storage: Storage) -> None:
    plan = await plans(storage, message_rows.edge_snapshots, "msg_1")
    assert set(of_parts(plan)) == {"SEARCH part USING INDEX part_snapshots (session_id=? AND message_id=? AND type=?)"}
    assert not sorted_or_scanned(plan)


@pytest.mark.parametrize("query", [message_rows.patches, message_rows.patches_version])
async def test_patches_are_looked_up_among_patches(storage: Storage, query: Callable[..., Any]) -> None:
    (line,) = of_parts(await plans(storage, query))
    assert line.replace("COVERING ", "").startswith("SEARCH part USING INDEX part_patches (session_id=?")


@pytest.mark.parametrize("before", [None, 7])
async def test_a_page_of_a_project_s_sessions_is_read_in_the_order_of_an_index(storage: Storage, before: int | None) -> None:
    wanted = session_rows.SessionFilter("p")
    plan = await plans(storage, lambda connection, _: session_rows.session_page(connection, wanted, 2, before))
    assert [line for line in plan if "session_by_project" in line] and sorted_or_scanned(plan) == []


@pytest.mark.parametrize("before", [None, 7])
async def test_a_page_of_all_sessions_is_read_in_the_order_of_an_index(storage: Storage, before: float | None) -> None:
    wanted = session_rows.SessionFilter(updated_before=before, archived=False)
    plan = await plans(storage, lambda connection, _: session_rows.updated_sessions(connection, wanted, 2))
    assert [line for line in plan if "session_by_update" in line] and not [line for line in plan if "TEMP B-TREE" in line]


async def test_unfinished_reverts_are_looked_up_among_themselves(storage: Storage) -> None:
    plan = await plans(storage, lambda connection, _: session_rows.unfinished_reverts(connection))
    assert plan[0] == "SCAN session USING INDEX session_reverting"


async def test_the_events_of_a_session_are_read_in_the_order_of_an_index(storage: Storage) -> None:
    plan = await plans(storage, journal_rows.session_events, 7)
    assert plan == ["SEARCH event_journal USING INDEX event_by_session (session_id=? AND seq>? AND seq<?)"]
