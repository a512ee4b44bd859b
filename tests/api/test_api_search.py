"""Searching messages over HTTP, in SQLite and in PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from session_parts import putting
from user_logins import user

from app.record import tables
from app.schema.part import TextPart
from app.sessions.live_parts import LivePart

TURN = [
    {"reasoning": "Perhaps the lighthouse."},
    {"tool": "read", "args": {"filePath": "a.txt"}, "id": "call_1"},
]


@pytest.fixture
async def app(tmp_path: Path, database: dict[str, str]) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path, turns=[TURN, [{"text": "The file greets the world."}]], **database) as running:
        yield running


async def say(app: RunningApp, text: str, **session: Any) -> dict[str, Any]:
    """A prompt that nobody answers, in a session of its own; the stored message."""
    created = await app.create_session(**session)
    return await said_in(app, created["id"], text)


async def said_in(app: RunningApp, session_id: str, text: str) -> dict[str, Any]:
    message: dict[str, Any] = await app.prompt(session_id, text, noReply=True)
    return message


async def search(app: RunningApp, query: str, **parameters: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = (await app.get("/find/message", params={"query": query, **parameters}))["results"]
    return results


async def texts(app: RunningApp, query: str, **parameters: Any) -> list[str]:
    return [result["snippet"] for result in await search(app, query, **parameters)]


def marked(result: dict[str, Any]) -> list[str]:
    """What the ranges mark, counted as JavaScript does."""
    units = result["snippet"].encode("utf-16-le")
    return [units[2 * start : 2 * end].decode("utf-16-le") for start, end in result["ranges"]]


async def test_a_result_says_where_the_words_are(app: RunningApp) -> None:
    message = await say(app, "The Crème brûlée is on the table.", title="Dessert")
    [result] = await search(app, "creme TABLE")
    assert result == {
        "sessionID": message["info"]["sessionID"],
        "messageID": message["info"]["id"],
        "partID": message["parts"][0]["id"],
        "role": "user",
        "title": "Dessert",
        "time": message["info"]["time"]["created"],
        "snippet": "The Crème brûlée is on the table.",
        "ranges": [[4, 9], [27, 32]],
    }


async def test_all_words_must_occur_in_one_part(app: RunningApp) -> None:
    await say(app, "one apple")
    await say(app, "one pear")
    assert await texts(app, "one") == ["one pear", "one apple"]
    assert await texts(app, "apple one") == ["one apple"]
    assert await texts(app, "apple pear") == []
    assert await texts(app, "appl") == ["one apple"], "within a word"


async def test_words_of_many_languages(app: RunningApp) -> None:
    await say(app, "另外的话 и другое, something else 100 xaxbx")
    for text, query, found in (
        ("我们今天去吃饭了", "吃饭", ["吃饭"]),
        ("我们昨天没走", "没", ["没"]),
        ("メッセージを検索する", "検索", ["検索"]),
        ("二つのセッタ", "ｯﾀ", ["ッタ"]),
        ("한국어로 씁니다", "국어", ["국어"]),
        ("Straße", "STRASSE", ["Straße"]),
        ("e\u0301te\u0301 🎉 été", "ete", ["e\u0301te\u0301", "été"]),
        ("🎉🎉 Привет", "привет", ["Привет"]),
        ("is 50% of a_b\\c", "50% a_b\\c", ["50%", "a_b\\c"]),
        ('say "hello" AND go', '"hello"', ['"hello"']),
        ("in fine", "fi", ["fi"]),
    ):
        message = await say(app, text)
        [result] = await search(app, query, sessionID=message["info"]["sessionID"])
        assert (result["snippet"], marked(result)) == (text, found)
        assert await texts(app, query) == [text]


async def test_what_a_turn_says_thinks_and_does_is_found(app: RunningApp) -> None:
    session = await app.create_session()
    answer = await app.prompt(session["id"], "What is in the file?")
    messages = await app.messages(session["id"])
    [said] = await search(app, "greets")
    assert (said["messageID"], said["role"]) == (answer["info"]["id"], "assistant")
    for query, kind, expected in (
        ("lighthouse", "reasoning", "reasoning"),
        ("hello world", "tool", "tool"),
        ("greets", "text", "text"),
    ):
        [result] = await search(app, query, **{"in": kind})
        [part] = [part for message in messages for part in message["parts"] if part["id"] == result["partID"]]
        assert part["type"] == expected
        assert [await search(app, query, **{"in": other}) for other in {"text", "reasoning", "tool"} - {kind}] == [[], []]
    [tool] = await search(app, "a.txt", **{"in": "tool"})
    assert set(marked(tool)) == {"a.txt"}, "the arguments of a call, too"


async def test_a_streaming_part_is_found_once_it_ends(app: RunningApp) -> None:
    message = (await say(app, "A prompt."))["info"]
    ids = {"session_id": message["sessionID"], "message_id": message["id"], "id": "prt_streaming"}
    store, directory = app.services.store, str(app.directory)
    live = LivePart(TextPart(**ids, text=""), directory)
    store.live.append(live, "a comet passes")
    await store.barrier()
    assert await search(app, "comet") == []
    await store.post_parts(message["sessionID"], directory, putting(live.up_to_date()), parts=[live.part])
    assert await texts(app, "comet") == ["a comet passes"]


async def test_a_search_finds_what_is_stored_now(app: RunningApp) -> None:
    """Parts that are changed and removed."""
    message = await say(app, "the first word")
    part, session_id = message["parts"][0], message["info"]["sessionID"]
    path = f"/session/{session_id}/message/{message['info']['id']}/part/{part['id']}"

    await app.call("PATCH", path, {**part, "text": "the second word"})
    assert (await texts(app, "first"), await texts(app, "second")) == ([], ["the second word"])
    assert (await texts(app, "first"), await texts(app, "second")) == ([], ["the second word"])
    await app.call("PATCH", path, {**part, "text": "the second word", "ignored": True})
    assert await texts(app, "second") == []
    await app.call("PATCH", path, {**part, "text": "the third word"})
    await app.call("DELETE", path)
    assert await texts(app, "word") == []
    other = await said_in(app, session_id, "of the fourth message")
    await app.call("DELETE", f"/session/{session_id}/message/{other['info']['id']}")
    assert await texts(app, "fourth") == []


async def test_a_deleted_session_leaves_nothing_in_the_index(app: RunningApp) -> None:
    parent = await say(app, "a pearl in the parent")
    child = await say(app, "a pearl in the child", parentID=parent["info"]["sessionID"])
    kept = await say(app, "a pearl that is kept")
    assert len(await search(app, "pearl")) == 3
    await app.call("DELETE", f"/session/{parent['info']['sessionID']}")
    assert await texts(app, "pearl") == ["a pearl that is kept"]
    rows = await app.services.store.query(lambda connection: connection.execute(tables.PART_TEXT.select()).all())
    assert len(rows) == 1
    assert await search(app, "pearl", sessionID=child["info"]["sessionID"]) == []
    assert len(await search(app, "pearl", sessionID=kept["info"]["sessionID"])) == 1


async def test_a_fork_is_found_too(app: RunningApp) -> None:
    message = await say(app, "copied words")
    fork = await app.post(f"/session/{message['info']['sessionID']}/fork", {})
    found = await search(app, "copied")
    assert [result["sessionID"] for result in found] == [fork["id"], message["info"]["sessionID"]]
    assert {result["time"] for result in found} == {message["info"]["time"]["created"]}


async def test_filters(app: RunningApp) -> None:
    session = await app.create_session(title="Asked")
    await app.prompt(session["id"], "Does the file greet the world?")
    elsewhere = app.directory / "below"
    elsewhere.mkdir()
    other = await app.post("/session", {}, params={"directory": str(elsewhere)})
    later = await said_in(app, other["id"], "The world is elsewhere.")
    ours, theirs = "Does the file greet the world?", "The world is elsewhere."
    answer = "The file greets the world."
    tool = next(text for text in await texts(app, "world") if text not in (ours, theirs, answer))
    assert await texts(app, "world") == [theirs, answer, tool, ours]
    assert await texts(app, "world", sessionID=other["id"]) == [theirs]
    assert await texts(app, "world", directory=str(elsewhere)) == [theirs]
    assert await texts(app, "world", directory=str(app.directory)) == [answer, tool, ours]
    assert await texts(app, "world", role="user") == [theirs, ours]
    assert await texts(app, "world", role="assistant", **{"in": "text"}) == [answer]
    assert await texts(app, "world", since=later["info"]["time"]["created"]) == [theirs]
    assert await texts(app, "world", until=later["info"]["time"]["created"] - 1) == [answer, tool, ours]
    assert await texts(app, "world", until=0) == []


async def test_pages_follow_each_other(app: RunningApp) -> None:
    said = [await say(app, f"number {number}") for number in range(7)]
    said += [await say(app, f"number {number}") for number in range(7, 9)]
    pages, cursor = [], {}
    while True:
        page = await app.get("/find/message", params={"query": "number", "limit": 4, **cursor})
        pages.append([result["messageID"] for result in page["results"]])
        if "next" not in page:
            break
        await say(app, "number of one who comes between")
        cursor = {"cursor": page["next"]}
    ids = [message["info"]["id"] for message in reversed(said)]
    assert pages == [ids[:4], ids[4:8], ids[8:]]


async def test_a_hostile_query_finds_what_it_says(app: RunningApp) -> None:
    await say(app, "quite plain")
    assert [await texts(app, query) for query in ("%00", "x%00y")] == [[], []]
    for query in ("'; DROP TABLE part_text; --", "%", "_", "*", '"', "(", "NEAR(a b)", "\\", "a" * 1000):
        message = await say(app, "quite plain")
        session = message["info"]["sessionID"]
        assert await texts(app, query, sessionID=session) == []
        await said_in(app, session, f"quite {query} plain")
        assert len(await texts(app, query, sessionID=session)) == 1


async def test_a_member_finds_only_what_is_theirs(app: RunningApp) -> None:
    await say(app, "nobody's secret")
    async with user(app, "anna") as anna, user(app, "bert") as bert, user(app, "vera", "viewer") as vera:
        mine = await say(anna, "anna's secret")
        assert await texts(anna, "secret") == ["anna's secret"]
        assert await texts(bert, "secret") == []
        assert await texts(bert, "secret", directory=str(app.directory)) == []
        assert await texts(vera, "secret") == ["anna's secret", "nobody's secret"]
        session_id = mine["info"]["sessionID"]
        assert await search(bert, "secret", sessionID=session_id) == []
        await say(anna, "another secret")
        page = await anna.get("/find/message?query=secret&limit=1")
        assert not page["next"].isdigit()
        following = await anna.get("/find/message", params={"query": "secret", "cursor": page["next"]})
        assert [result["snippet"] for result in following["results"]] == ["anna's secret"]
        await bert.get("/find/message", params={"query": "secret", "cursor": page["next"]}, expect=400)
