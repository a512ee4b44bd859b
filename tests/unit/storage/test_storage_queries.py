"""What the readers ask: sessions of a project, messages in their order, the journal."""

from typing import Any

import orjson
import pytest
from sqlalchemy import text as sql
from storage_parts import Storage, event, message_row, part_row, put_lease, session_row, writing

from app.storage.maintenance import database_bytes
from app.storage.repositories import directory_rows, journal_rows, message_rows, session_rows
from app.storage.repositories.message_rows import StoredMessages
from app.storage.repositories.session_rows import SessionFilter
from app.storage.tables import APPROVAL, DIFF, LEASE, MESSAGE, PART, PENDING_REQUEST, SESSION, SHARE, TODO
from app.storage.text_search import fold


async def put(storage: Storage, **rows: list[dict[str, Any]]) -> None:
    """`session=[row…], message=[…], part=[…]`."""
    for kind, of_kind in rows.items():
        writes = [(getattr(storage.sql, f"put_{kind}"), of_kind)]
        await storage.writer.commit(writing(*writes))


async def listed(storage: Storage, **wanted: Any) -> list[str]:
    limit = wanted.pop("limit", None)
    found, _ = await asked(storage, session_rows.session_page, SessionFilter("p", **wanted), limit)
    return [orjson.loads(row.body)["id"] for row in found]


async def titled(storage: Storage, *titles: str) -> None:
    rows = [session_row(f"ses_{n}", title_folded=fold(title)) for n, title in enumerate(titles)]
    await put(storage, session=rows)


async def asked(storage: Storage, query: Any, *args: Any) -> Any:
    return await storage.database.read(lambda connection: query(connection, *args))


def ids(stored: StoredMessages) -> list[str]:
    return [row.id for row in stored.messages]


async def test_sessions_come_newest_created_first_whatever_their_ids(storage: Storage) -> None:
    await put(storage, session=[session_row("ses_b"), session_row("ses_z"), session_row("ses_a")])
    assert await listed(storage) == ["ses_a", "ses_z", "ses_b"]


async def test_only_sessions_of_the_project_are_listed(storage: Storage) -> None:
    await put(storage, session=[session_row("ses_mine"), session_row("ses_theirs", project_id="other")])
    assert await listed(storage) == ["ses_mine"]


async def test_filters_hold_together(storage: Storage) -> None:
    await put(
        storage,
        session=[
            session_row("ses_root", updated=5),
            session_row("ses_child", parent_id="ses_root", updated=9),
            session_row("ses_away", directory="/elsewhere", updated=9),
        ],
    )
    assert await listed(storage, directories=["/d"]) == ["ses_child", "ses_root"]
    assert await listed(storage, roots_only=True) == ["ses_away", "ses_root"]
    assert await listed(storage, updated_since=6) == ["ses_away", "ses_child"]
    assert await listed(storage, parent_id="ses_root") == ["ses_child"]
    assert await listed(storage, directories=["/d"], updated_since=6, roots_only=True) == []
    assert await listed(storage, limit=2) == ["ses_away", "ses_child"]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("straße", ["ses_0"]),
        ("STRASSE", ["ses_0"]),
        ("ПРИВЕТ", ["ses_1"]),
        ("100%", ["ses_2"]),
        ("a_b", ["ses_3"]),
        ("\\", ["ses_4"]),
        ("/", ["ses_5"]),
        ("%", ["ses_2"]),
        ("_", ["ses_3"]),
        ("", ["ses_5", "ses_4", "ses_3", "ses_2", "ses_1", "ses_0"]),
        ("'; DROP TABLE session; --", []),
    ],
)
async def test_a_search_takes_every_character_as_it_is_and_no_case(storage: Storage, search: str, found: list[str]) -> None:
    await titled(storage, "Große Straße", "Привет", "100% done", "a_b", "back\\slash", "either/or")
    assert await listed(storage, search=search) == found


async def test_a_family_has_children_before_parents(storage: Storage) -> None:
    rows = [("ses_root", None), ("ses_child", "ses_root"), ("ses_grandchild", "ses_child"), ("ses_other", None)]
    await put(storage, session=[session_row(session_id, parent_id=parent) for session_id, parent in rows])
    family = await asked(storage, session_rows.session_tree, "ses_root")
    assert [orjson.loads(row.body)["id"] for row in family] == ["ses_grandchild", "ses_child", "ses_root"]


async def test_messages_and_parts_come_in_the_order_of_their_arrival(storage: Storage) -> None:
    await put(storage, session=[session_row()], message=[message_row("msg_z"), message_row("msg_a")])
    await put(storage, part=[part_row("prt_2", "msg_a"), part_row("prt_1", "msg_a")])
    stored = await asked(storage, message_rows.all_messages, "ses_1")
    assert ids(stored) == ["msg_z", "msg_a"]
    assert [row.id for row in stored.parts] == ["prt_2", "prt_1"]


async def test_one_id_may_stand_in_two_sessions(storage: Storage) -> None:
    await put(storage, session=[session_row("ses_1"), session_row("ses_2")])
    await put(storage, message=[message_row("msg_1", "ses_1", body="1"), message_row("msg_1", "ses_2", body="2")])
    await put(storage, part=[part_row("prt_1", session_id="ses_1", body="1"), part_row("prt_1", session_id="ses_2", body="2")])
    for session, body in (("ses_1", "1"), ("ses_2", "2")):
        stored = await asked(storage, message_rows.some_messages, session, ["msg_1"])
        assert [row.body for row in (*stored.messages, *stored.parts)] == [body, body]


async def test_pages_walk_back_through_all_messages(storage: Storage) -> None:
    await put(storage, session=[session_row()], message=[message_row(f"msg_{n}") for n in range(7)])
    pages, before = [], None
    while True:
        page = await asked(storage, message_rows.older_messages, "ses_1", 3, before)
        pages.append(ids(page))
        if not page.more:
            break
        before = page.messages[0].seq
    assert pages == [["msg_4", "msg_5", "msg_6"], ["msg_1", "msg_2", "msg_3"], ["msg_0"]]


async def test_a_page_that_ends_at_the_oldest_message_has_no_more(storage: Storage) -> None:
    await put(storage, session=[session_row()], message=[message_row(f"msg_{n}") for n in range(3)])
    assert (await asked(storage, message_rows.older_messages, "ses_1", 3, None)).more is False


async def test_a_page_has_the_parts_of_its_messages_alone(storage: Storage) -> None:
    await put(storage, session=[session_row()], message=[message_row("msg_1"), message_row("msg_2")])
    await put(storage, part=[part_row("prt_1", "msg_1"), part_row("prt_2", "msg_2")])
    page = await asked(storage, message_rows.older_messages, "ses_1", 1, None)
    assert [row.id for row in page.parts] == ["prt_2"]


async def test_the_model_is_told_from_the_newest_finished_compaction_on(storage: Storage) -> None:
    await put(storage, session=[session_row()])
    summary = {"role": "assistant", "boundary": True}
    rows = [
        message_row("msg_1"),
        message_row("msg_2"),
        message_row("msg_3", parent_id="msg_2", **summary),
        message_row("msg_4"),
        message_row("msg_5", parent_id="msg_4", role="assistant"),
    ]
    await put(storage, message=rows)
    assert ids(await asked(storage, message_rows.live_messages, "ses_1")) == ["msg_2", "msg_3", "msg_4", "msg_5"]
    await put(storage, message=[message_row("msg_6", parent_id="msg_4", **summary)])
    assert ids(await asked(storage, message_rows.live_messages, "ses_1")) == ["msg_4", "msg_5", "msg_6"]


async def test_without_a_compaction_the_model_is_told_everything(storage: Storage) -> None:
    await put(storage, session=[session_row()], message=[message_row("msg_1"), message_row("msg_2")])
    assert ids(await asked(storage, message_rows.live_messages, "ses_1")) == ["msg_1", "msg_2"]


OF_SESSION = {
    "todo": {"session_id": "ses_1", "body": "[]"},
    "diff": {"session_id": "ses_1", "body": "[]"},
    "share": {"session_id": "ses_1", "id": "sh", "secret": "s", "created": 1},
    "request": {"id": "per_1", "kind": "permission", "session_id": "ses_1", "directory": "/d", "body": "{}"},
    "approval": {"project_id": "p", "permission": "bash", "pattern": "*", "session_id": "ses_1"},
}


async def test_a_deleted_session_leaves_nothing_behind(storage: Storage) -> None:
    await put(storage, session=[session_row()], message=[message_row("msg_1")], part=[part_row("prt_1")])
    await put(storage, **{kind: [row] for kind, row in OF_SESSION.items()})
    await storage.database.write(lambda c: put_lease(c, "ses_1", "me", 1))
    gone = [{"gone": "ses_1"}]
    await storage.writer.commit(writing((storage.sql.delete_approvals, gone), (storage.sql.delete_session, gone)))
    left = {
        table.name: await storage.count(table)
        for table in (SESSION, MESSAGE, PART, TODO, DIFF, SHARE, PENDING_REQUEST, APPROVAL, LEASE)
    }
    assert set(left.values()) == {0}, left


async def announced(storage: Storage, count: int, directory: str = "/d", text: str = "") -> None:
    await storage.writer.commit(writing(events=[event(text or f"{directory}{n}", directory=directory) for n in range(count)]))


async def page(storage: Storage, cursor: int, directory: str | None, max_bytes: int = 10**9) -> tuple[list[int], bool]:
    rows, last = await asked(storage, journal_rows.events_after, cursor, directory, max_bytes)
    return [row.seq for row in rows], last


async def trim(storage: Storage, keep_events: int, keep_bytes: int, older_than: int) -> None:
    upto = await asked(storage, journal_rows.journal_end, keep_events, keep_bytes, older_than)
    await storage.database.write(lambda connection: journal_rows.trim_journal(connection, upto))


async def test_the_journal_is_read_from_a_cursor_by_directory_or_whole(storage: Storage) -> None:
    await announced(storage, 2, "/a")
    await announced(storage, 2, "/b")
    assert await page(storage, 1, None) == ([2, 3, 4], True)
    assert await page(storage, 1, "/a") == ([2], True)


@pytest.mark.parametrize(("most", "seqs"), [(1, [2]), (11, [2]), (20, [2, 3]), (29, [2, 3]), (30, [2, 3, 4]), (39, [2, 3, 4])])
async def test_a_page_of_the_journal_has_a_number_of_bytes_and_one_event_at_least(
    storage: Storage, most: int, seqs: list[int]
) -> None:
    await announced(storage, 5, text="x" * 10)
    assert await page(storage, 1, None, most) == (seqs, False)
    assert await page(storage, 1, None, 40) == ([2, 3, 4, 5], True)


async def test_an_empty_journal_spans_nothing(storage: Storage) -> None:
    assert await asked(storage, journal_rows.journal_span) == (1, 0)


async def test_a_trimmed_journal_keeps_the_newest_and_goes_on_counting(storage: Storage) -> None:
    await announced(storage, 10)
    await trim(storage, 3, 10**9, 0)
    assert await asked(storage, journal_rows.journal_span) == (8, 10)
    await trim(storage, 3, 10**9, 2**60)
    assert await asked(storage, journal_rows.journal_span) == (11, 10)
    await announced(storage, 1)
    assert await asked(storage, journal_rows.journal_span) == (11, 11)


@pytest.mark.parametrize(("keep", "oldest"), [(100, 1), (95, 2), (90, 2), (89, 3), (10, 10), (9, 11)])
async def test_a_trimmed_journal_keeps_a_number_of_bytes(storage: Storage, keep: int, oldest: int) -> None:
    await announced(storage, 10, text="x" * 8 + "é")
    await trim(storage, 10, keep, 0)
    assert await asked(storage, journal_rows.journal_span) == (oldest, 10)


async def test_trimming_reads_no_payload(storage: Storage) -> None:
    if storage.database.dialect == "sqlite":
        query = sql(f"EXPLAIN QUERY PLAN {journal_rows._TOO_MANY_BYTES.compile(storage.database.engine)}".replace("?", ":keep"))
        plan = await storage.database.read(lambda c: c.execute(query, {"keep": 1}).all())
        assert any("COVERING INDEX event_by_time" in row[-1] for row in plan), plan


async def test_what_a_project_takes_is_counted_in_bytes(storage: Storage) -> None:
    await put(
        storage,
        session=[session_row("ses_mine"), session_row("ses_theirs", project_id="other")],
        message=[message_row("msg_1", "ses_mine", body="ü" * 100), message_row("msg_2", "ses_theirs", body="x" * 50)],
        part=[part_row("prt_1", "msg_1", "ses_mine", body="x" * 30)],
    )
    assert await asked(storage, directory_rows.project_bytes, "p") == 230
    assert await asked(storage, directory_rows.project_bytes, "nobody") == 0
    assert await asked(storage, database_bytes) > 230
