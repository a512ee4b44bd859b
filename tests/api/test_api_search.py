"""Searching messages over HTTP, in SQLite and in PostgreSQL."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
from running_app import RunningApp, running_app
from session_parts import putting
from turns import call, say

from app.record import tables
from app.schema.part import TextPart
from app.sessions.live_parts import LivePart
from app.sessions.search import snippet

TURN = [{"reasoning": "Perhaps the lighthouse."}, call("read", filePath="a.txt")]
ANSWER = "The file greets the world."


@pytest.fixture
async def app(tmp_path: Path, database: dict[str, str]) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path, turns=[TURN, [say(ANSWER)]], **database) as running:
        yield running


async def put(app: RunningApp, text: str, session_id: str | None = None, **session: Any) -> dict[str, Any]:
    """A prompt that nobody answers, in a session of its own unless it is named; what is stored of it."""
    session_id = session_id or (await app.create_session(**session))["id"]
    return (await app.prompt(session_id, text, noReply=True))["info"]


async def search(app: RunningApp, query: str, **parameters: Any) -> list[dict[str, Any]]:
    return (await app.get("/find/message", params={"query": query, **parameters}))["results"]


async def texts(app: RunningApp, query: str, **parameters: Any) -> list[str]:
    return [result["snippet"] for result in await search(app, query, **parameters)]


def marked(result: dict[str, Any]) -> list[str]:
    """What the ranges mark, counted as JavaScript does."""
    units = result["snippet"].encode("utf-16-le")
    return [units[2 * start : 2 * end].decode("utf-16-le") for start, end in result["ranges"]]


async def test_a_result_says_where_the_words_are_which_all_occur_in_one_part(app: RunningApp) -> None:
    message = await put(app, "The Crème brûlée is on the table.", title="Dessert")
    [result] = await search(app, "creme TABLE")
    [stored] = await app.messages(message["sessionID"])
    assert result == {
        "sessionID": message["sessionID"],
        "messageID": message["id"],
        "partID": stored["parts"][0]["id"],
        "role": "user",
        "title": "Dessert",
        "time": message["time"]["created"],
        "snippet": "The Crème brûlée is on the table.",
        "ranges": [[4, 9], [27, 32]],
    }
    for text in ("one apple", "one pear"):
        await put(app, text)
    found = {"one": ["one pear", "one apple"], "apple one": ["one apple"], "apple pear": [], "appl": ["one apple"]}
    assert {query: await texts(app, query) for query in found} == found


WORDS: tuple[tuple[str, str, list[str]], ...] = (
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
)
HOSTILE = ("'; DROP TABLE part_text; --", "%", "_", "*", '"', "(", "NEAR(a b)", "\\", "a" * 1000)


async def test_words_of_many_languages_and_of_hostile_queries_are_found(app: RunningApp) -> None:
    await put(app, "另外的话 и другое, something else 100 xaxbx")
    for text, query, found in WORDS:
        message = await put(app, text)
        [result] = await search(app, query, sessionID=message["sessionID"])
        assert (result["snippet"], marked(result)) == (text, found)
        assert await texts(app, query) == [text]
    assert [await texts(app, query) for query in ("%00", "x%00y")] == [[], []]
    for query in HOSTILE:
        session = (await put(app, "quite plain"))["sessionID"]
        assert await texts(app, query, sessionID=session) == []
        await put(app, f"quite {query} plain", session)
        assert len(await texts(app, query, sessionID=session)) == 1


def test_words_that_nearly_occur_everywhere_hold_nobody_up() -> None:
    words = [*("a" * 46 + last for last in ascii_lowercase[1:20]), "zzz"]
    began = time.thread_time()
    shown, _ = snippet("a" * 3_000_000 + " ".join(words), words)
    assert shown.endswith("zzz")
    assert time.thread_time() - began < 1  # 7 s by a pattern of the words, in which no other thread runs


async def test_what_a_turn_says_thinks_and_does_is_found(app: RunningApp) -> None:
    session = await app.create_session()
    answer = await app.prompt(session["id"], "What is in the file?")
    kinds = {part["id"]: part["type"] for message in await app.messages(session["id"]) for part in message["parts"]}
    [said] = await search(app, "greets")
    assert (said["messageID"], said["role"]) == (answer["info"]["id"], "assistant")
    for query, kind in (("lighthouse", "reasoning"), ("hello world", "tool"), ("greets", "text")):
        [result] = await search(app, query, **{"in": kind})
        assert kinds[result["partID"]] == kind
        assert [await search(app, query, **{"in": other}) for other in {"text", "reasoning", "tool"} - {kind}] == [[], []]
    [tool] = await search(app, "a.txt", **{"in": "tool"})
    assert set(marked(tool)) == {"a.txt"}, "the arguments of a call, too"


async def test_a_streaming_part_is_found_once_it_ends(app: RunningApp) -> None:
    message = await put(app, "A prompt.")
    part = TextPart(session_id=message["sessionID"], message_id=message["id"], id="prt_streaming", text="")
    store, directory = app.services.store, str(app.directory)
    live = LivePart(part, directory)
    store.live.append(live, "a comet passes")
    await store.barrier()
    assert await search(app, "comet") == []
    await store.post_parts(message["sessionID"], directory, putting(live.up_to_date()), parts=[live.part])
    assert await texts(app, "comet") == ["a comet passes"]


async def test_a_search_finds_what_is_stored_now(app: RunningApp) -> None:
    """Parts that are changed and removed; deleted sessions leave nothing in the index; a fork is found too."""
    message = await put(app, "the first word")
    session_id = message["sessionID"]
    [stored] = await app.messages(session_id)
    part = stored["parts"][0]
    path = f"/session/{session_id}/message/{message['id']}/part/{part['id']}"
    await app.call("PATCH", path, {**part, "text": "the second word"})
    for _ in range(2):
        assert (await texts(app, "first"), await texts(app, "second")) == ([], ["the second word"])
    await app.call("PATCH", path, {**part, "text": "the second word", "ignored": True})
    assert await texts(app, "second") == []
    await app.call("PATCH", path, {**part, "text": "the third word", "time": {"start": 2**63 - 1}})
    assert await texts(app, "third") == ["the third word"]
    await app.call("DELETE", path)
    assert await texts(app, "word") == []
    other = await put(app, "of the fourth message", session_id)
    await app.call("DELETE", f"/session/{session_id}/message/{other['id']}")
    assert await texts(app, "fourth") == []
    copied = await put(app, "copied words")
    fork = await app.post(f"/session/{copied['sessionID']}/fork", {})
    found = await search(app, "copied")
    assert [result["sessionID"] for result in found] == [fork["id"], copied["sessionID"]]
    assert {result["time"] for result in found} == {copied["time"]["created"]}
    child = await put(app, "a pearl in the child", parentID=session_id)
    kept = await put(app, "a pearl that is kept")
    for session in (session_id, copied["sessionID"], fork["id"]):
        await app.call("DELETE", f"/session/{session}")
    assert await texts(app, "pearl") == ["a pearl that is kept"]
    assert len(await app.services.store.query(lambda connection: connection.execute(tables.PART_TEXT.select()).all())) == 1
    counts = [len(await search(app, "pearl", sessionID=each["sessionID"])) for each in (child, kept)]
    assert counts == [0, 1]


async def test_filters(app: RunningApp) -> None:
    ours, theirs = "Does the file greet the world?", "The world is elsewhere."
    await app.prompt((await app.create_session(title="Asked"))["id"], ours)
    elsewhere = app.directory / "below"
    elsewhere.mkdir()
    other = await app.post("/session", {}, params={"directory": str(elsewhere)})
    later = (await put(app, theirs, other["id"]))["time"]["created"]
    [tool] = set(await texts(app, "world")) - {ours, theirs, ANSWER}
    for filtered, found in (
        ({}, [theirs, ANSWER, tool, ours]),
        ({"sessionID": other["id"]}, [theirs]),
        ({"directory": str(elsewhere)}, [theirs]),
        ({"directory": str(app.directory)}, [ANSWER, tool, ours]),
        ({"role": "user"}, [theirs, ours]),
        ({"role": "assistant", "in": "text"}, [ANSWER]),
        ({"since": later}, [theirs]),
        ({"until": later - 1}, [ANSWER, tool, ours]),
        ({"until": 0}, []),
    ):
        assert await texts(app, "world", **filtered) == found, filtered


async def test_pages_follow_each_other(app: RunningApp) -> None:
    ids = [(await put(app, f"number {number}"))["id"] for number in range(9)][::-1]
    pages, cursor = [], {}
    while True:
        page = await app.get("/find/message", params={"query": "number", "limit": 4, **cursor})
        pages.append([result["messageID"] for result in page["results"]])
        if "next" not in page:
            break
        await put(app, "number of one who comes between")
        cursor = {"cursor": page["next"]}
    assert pages == [ids[:4], ids[4:8], ids[8:]]


async def test_a_member_finds_only_what_is_theirs(
    app: RunningApp, anna: RunningApp, bert: RunningApp, vera: RunningApp, root: RunningApp
) -> None:
    await put(root, "root's secret")
    session = (await put(anna, "anna's secret"))["sessionID"]
    assert await texts(anna, "secret") == ["anna's secret"]
    for filtered in ({}, {"directory": str(app.directory)}, {"sessionID": session}):
        assert await texts(bert, "secret", **filtered) == []
    assert await texts(vera, "secret") == ["anna's secret", "root's secret"]
    await put(anna, "another secret")
    first = await anna.get("/find/message?query=secret&limit=1")
    assert not first["next"].isdigit()
    following = {"query": "secret", "cursor": first["next"]}
    assert [result["snippet"] for result in (await anna.get("/find/message", params=following))["results"]] == ["anna's secret"]
    await bert.get("/find/message", params=following, expect=400)
