"""How SQLite answers what is asked of messages and parts: by an index, of the messages that are asked for alone.

In whatever order the indexes were made: of two that serve a query alike, SQLite takes the last one.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from storage_parts import Storage, message_row, part_row, session_row

from app.record.repositories import journal_rows, message_rows, session_rows, work_rows


@pytest.fixture(params=["first to last", "last to first"], autouse=True)
async def indexes(storage: Storage, request: pytest.FixtureRequest) -> None:
    """Made anew in the order of their names, or against it. The conversation has an answer that is a summary."""

    def make(connection: Connection) -> None:
        made = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"))
        for name, statement in sorted(made.all(), reverse=request.param == "last to first"):
            connection.exec_driver_sql(f"DROP INDEX {name}")
            connection.exec_driver_sql(statement)

    await storage.database.write(make)
    answer = message_row("msg_2", role="assistant", parent_id="msg_1", boundary=True)
    parts = [part_row("prt_1", "msg_2", type="step-start", snapshot="tree"), part_row("prt_2", "msg_2", type="patch")]
    await storage.put(session=[session_row()], message=[message_row("msg_1"), answer], part=parts)


async def plan_of(storage: Storage, query: Callable[..., Any], *args: Any) -> list[str]:
    """The plan of every statement that a query makes, line by line."""

    def explained(connection: Connection) -> list[str]:
        asked: list[tuple[str, Any]] = []

        def note(_connection: Any, _cursor: Any, sql: str, parameters: Any, *_rest: Any) -> None:
            asked.append((sql, parameters))

        event.listen(connection, "before_cursor_execute", note)
        query(connection, *args)
        cursor = connection.connection.cursor()
        return [row[3] for sql, values in asked for row in cursor.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()]

    return await storage.database.read(explained)


def of_parts(plan: list[str]) -> set[str]:
    return {line.removesuffix(" LEFT-JOIN") for line in plan if "part" in line.split()}


def sorted_or_scanned(plan: list[str]) -> list[str]:
    return [line for line in plan if "TEMP B-TREE" in line or line.startswith("SCAN")]


BY_MESSAGE = "SEARCH part USING INDEX part_by_message (session_id=? AND message_id=?)"


@pytest.mark.parametrize(
    ("query", "args", "looked_up"),
    [
        (message_rows.live_messages, (), BY_MESSAGE),
        (message_rows.older_messages, (2, None), BY_MESSAGE),
        (message_rows.newer_messages, (2, 0), BY_MESSAGE),
        (message_rows.some_messages, (["msg_1", "msg_2"],), BY_MESSAGE),
        (message_rows.newest_answer, (), BY_MESSAGE),
        (message_rows.newest_answer, ("msg_1",), BY_MESSAGE),
        (message_rows.all_messages, (), "SEARCH part USING INDEX part_by_message (session_id=?)"),
        (
            message_rows.edge_snapshots,
            ("msg_1",),
            "SEARCH part USING INDEX part_snapshots (session_id=? AND message_id=? AND type=?)",
        ),
    ],
)
async def test_parts_are_looked_up_by_an_index(
    storage: Storage, query: Callable[..., Any], args: tuple[Any, ...], looked_up: str
) -> None:
    plan = await plan_of(storage, query, "ses_1", *args)
    assert of_parts(plan) == {looked_up} and sorted_or_scanned(plan) == []


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
    more = ["msg_1"] if signature(query).parameters.keys() & {"message_id", "prompt_id"} else []
    assert sorted_or_scanned(await plan_of(storage, query, "ses_1", *more)) == []


@pytest.mark.parametrize("query", [message_rows.patches, message_rows.patches_version])
async def test_patches_are_looked_up_among_patches(storage: Storage, query: Callable[..., Any]) -> None:
    (line,) = of_parts(await plan_of(storage, query, "ses_1"))
    assert line.replace("COVERING ", "").startswith("SEARCH part USING INDEX part_patches (session_id=?")


@pytest.mark.parametrize("before", [None, 7])
async def test_pages_of_sessions_are_read_in_the_order_of_an_index(storage: Storage, before: int | None) -> None:
    of_project = await plan_of(storage, session_rows.session_page, session_rows.SessionFilter("p"), 2, before)
    assert [line for line in of_project if "session_by_project" in line] and sorted_or_scanned(of_project) == []
    wanted = session_rows.SessionFilter(updated_before=before, archived=False)
    of_all = await plan_of(storage, session_rows.updated_sessions, wanted, 2)
    assert [line for line in of_all if "session_by_update" in line] and not [line for line in of_all if "TEMP B-TREE" in line]


async def test_unfinished_reverts_and_the_events_of_a_session_are_read_by_an_index(storage: Storage) -> None:
    assert (await plan_of(storage, session_rows.unfinished_reverts))[0] == "SCAN session USING INDEX session_reverting"
    events = await plan_of(storage, journal_rows.session_events, "ses_1", 7)
    assert events == ["SEARCH event_journal USING INDEX event_by_session (session_id=? AND seq>? AND seq<?)"]
