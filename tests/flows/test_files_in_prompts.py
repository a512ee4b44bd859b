"""What the parts of a prompt become: files, directories, images, data URLs and agents."""

import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app, text_part
from turns import requests, say, talking, task, tools, types

from app.providers.base import TextBlock

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path) as running:
        (running.directory / "lines.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
        yield running


def file(path: Path, mime: str = "text/plain", query: str = "", **fields: Any) -> dict[str, Any]:
    return {"type": "file", "mime": mime, "filename": path.name, "url": path.as_uri() + query, **fields}


async def send(app: RunningApp, session: str, *parts: dict[str, Any], expect: int = 200, **fields: Any) -> Any:
    """The stored prompt."""
    body = {"parts": list(parts), "noReply": True, **fields}
    return await app.post(f"/session/{session}/message", body, expect=expect)


def called(part: dict[str, Any]) -> dict[str, Any]:
    """The arguments in the text that says that a tool was called."""
    assert part["synthetic"] is True and "time" not in part
    return json.loads(part["text"][part["text"].index("{") :])


async def test_a_text_file_is_read_for_the_model_and_counts_as_read(app: RunningApp, session: str) -> None:
    path = app.directory / "lines.txt"
    message = await send(app, session, text_part("See this"), file(path))
    assert types(message) == ["text", "text", "text", "file"]
    own, call, content, kept = message["parts"]
    assert own["text"] == "See this" and called(call) == {"filePath": str(path)}
    assert content["synthetic"] is True and "line 1\n" in content["text"] and "line 10" in content["text"]
    assert (kept["url"], kept["mime"], kept["filename"]) == (path.as_uri(), "text/plain", "lines.txt")
    assert await app.messages(session) == [message]
    edit = {"filePath": str(path), "oldString": "line 3\n", "newString": "third\n"}
    app.provider.add([{"tool": "edit", "args": edit}], [say()])
    await app.prompt(session, "Edit it")
    sent = str(requests(app)[0].messages)
    assert "line 7" in sent and "FileBlock" not in sent and "third\n" in path.read_text()


RANGES: dict[str, tuple[dict[str, int], int, int]] = {
    "?start=2&end=3": ({"offset": 1, "limit": 2}, 2, 3),
    "?start=9": ({"offset": 8}, 9, 10),
    "?start=0&end=4": ({"offset": 0, "limit": 4}, 1, 4),
    "?start=5&end=5": ({"offset": 4, "limit": 1}, 5, 5),
    "?start=9&end=2": ({"offset": 8, "limit": 1}, 9, 9),
    **dict.fromkeys(("?start=2&end=x", f"?start=2&end={'9' * 5000}"), ({"offset": 1}, 2, 10)),
    **dict.fromkeys(("?end=3", "?start=x&end=3", "?start=-2", "?start=²", f"?start={'9' * 20}&end=3"), ({}, 1, 10)),
}


async def test_a_range_of_lines_is_read(app: RunningApp, session: str) -> None:
    path = app.directory / "lines.txt"
    for query, (arguments, first, last) in RANGES.items():
        call, content, kept = (await send(app, session, file(path, query=query)))["parts"]
        assert called(call) == {"filePath": str(path), **arguments}, query
        shown = [n for n in range(1, 11) if f"line {n}\n" in content["text"].replace("</file>", "\n</file>")]
        assert shown == list(range(first, last + 1)) and kept["url"] == path.as_uri() + query


async def test_a_file_of_an_odd_name_or_outside_the_checkout_may_be_attached(
    app: RunningApp, session: str, tmp_path: Path
) -> None:
    for path in (app.directory / "mit Leerzeichen é#1.txt", tmp_path / "outside.txt"):
        path.write_text("found\n")
        assert "found" in (await send(app, session, file(path)))["parts"][1]["text"]
    assert await app.get("/permission") == []


async def test_a_file_that_cannot_be_read_is_reported_and_the_prompt_goes_on(app: RunningApp, session: str) -> None:
    path = app.directory / "binary.txt"
    path.write_bytes(b"\0\1\2" * 100)
    async with app.events() as events:
        message = await send(app, session, text_part("See"), file(path))
        error = await events.until("session.error")
    assert types(message) == ["text", "text", "text"]
    assert "binary.txt" in message["parts"][2]["text"] and message["parts"][2]["synthetic"] is True
    assert error.properties["error"]["name"] == "UnknownError"


async def test_a_directory_is_listed(app: RunningApp, session: str) -> None:
    (app.directory / "sub").mkdir()
    (app.directory / "sub" / "inside.txt").touch()
    call, listing, kept = (await send(app, session, file(app.directory / "sub")))["parts"]
    assert called(call) == {"path": str(app.directory / "sub")}
    assert "inside.txt" in listing["text"] and kept["mime"] == "application/x-directory"


async def test_an_image_or_pdf_is_embedded_also_where_it_claims_to_be_text(app: RunningApp, session: str) -> None:
    source = {"type": "file", "path": "some", "text": {"value": "@some", "start": 0, "end": 5}}
    data = base64.b64encode(PIXEL).decode()
    for name, mime in (("some.png", "image/png"), ("some.bin", "application/pdf")):
        path = app.directory / name
        path.write_bytes(PIXEL)
        call, kept = (await send(app, session, file(path, mime, source=source)))["parts"]
        assert called(call) == {"filePath": str(path)} and kept["url"] == f"data:{mime};base64,{data}"
        assert (kept["mime"], kept["filename"], kept["source"]) == (mime, name, source)
    kept = (await send(app, session, file(app.directory / "some.png")))["parts"][-1]
    assert (kept["type"], kept["mime"], kept["filename"]) == ("file", "image/png", "some.png")
    assert kept["url"] == f"data:image/png;base64,{data}"
    await app.prompt(session, "See")
    assert data in str(requests(app)[-1].messages)


BROKEN = "data:text/plain;base64,a"
TEXTS = {
    "data:text/plain;base64," + base64.b64encode("héllo\n".encode()).decode(): "héllo\n",
    "data:text/plain;charset=utf-8;base64," + base64.urlsafe_b64encode(b"\xfb\xff>").decode(): "\ufffd\ufffd>",
    "data:text/plain;charset=utf-8;base64," + base64.urlsafe_b64encode("ÿ?>".encode()).decode(): "ÿ?>",
    "data:text/plain;base64,YQ": "a",
    "data:text/plain,a%20b%C3%BC%0A": "a bü\n",
    **dict.fromkeys(("data:text/plain;base64,", "data:,"), ""),
}


async def test_the_text_of_a_data_url_is_given_to_the_model_and_other_urls_are_kept_as_they_are(
    app: RunningApp, session: str
) -> None:
    for url, text in TEXTS.items():
        part = {"type": "file", "mime": "text/plain", "filename": "note.txt", "url": url}
        call, content, kept = (await send(app, session, part))["parts"]
        assert called(call) == {"filePath": "note.txt"} and kept["url"] == url
        assert (content["text"], content["synthetic"]) == (text, True)
    for url in ("data:image/png;base64,AAAA", "https://example.com/a.png"):
        part = {"type": "file", "mime": "image/png", "filename": "a.png", "url": url}
        (kept,) = (await send(app, session, part))["parts"]
        assert (kept["url"], kept["mime"], kept["filename"]) == (url, "image/png", "a.png")


@pytest.mark.parametrize("rule", [{"explore": "deny"}, "deny"], ids=["that denies it", "that denies every task"])
async def test_naming_an_agent_asks_the_model_to_give_it_the_task_whatever_the_rule(tmp_path: Path, rule: Any) -> None:
    config = {"permission": {"task": rule}}
    turns = [[task(agent="explore")], [say("Seen.")], [say()]]
    async with talking(tmp_path, config=config, turns=turns) as (app, session):
        parts = [text_part("Look around"), {"type": "agent", "name": "explore"}]
        await app.post(f"/session/{session}/message", {"parts": parts})
        user, step, _ = await app.messages(session)
        sent = requests(app)[0].messages[0].content
    assert types(user) == ["text", "agent", "text"]
    hint = user["parts"][2]
    assert hint["synthetic"] and "explore" in hint["text"] and "rules say otherwise" in hint["text"]
    assert sent == (TextBlock("Look around"), TextBlock(hint["text"]))
    assert [(tool["tool"], tool["state"]["status"]) for tool in tools(step)] == [("task", "completed")]


async def test_parts_keep_the_clients_order_and_ids(app: RunningApp, session: str) -> None:
    parts = [file(app.directory / "lines.txt", id="prt_file"), {"type": "text", "text": "last", "id": "prt_text"}]
    message = await send(app, session, *parts)
    assert [part["id"] for part in message["parts"]][2:] == ["prt_file", "prt_text"]
    assert (await app.messages(session))[0]["parts"] == message["parts"]


async def test_what_cannot_be_attached_is_refused_and_nothing_is_stored(app: RunningApp, session: str) -> None:
    """What is missing, too large, no regular file, of an unknown type, or at a URL that cannot be read."""
    huge, pipe = app.directory / "huge.png", app.directory / "pipe"
    with huge.open("wb") as opened:
        opened.truncate(600 * 1024 * 1024)
    os.mkfifo(pipe)
    missing = [file(path) for path in (app.directory / "gone.txt", app.directory / ("x" * 300), Path("/proc/self/none"))]
    odd = [{"type": "file", "mime": "text/plain", "url": url} for url in ("file://[broken", "file:///a%00b", BROKEN)]
    image = {"type": "file", "mime": "image/png", "url": "file:///dev/null"}
    bytes_of = [file(path, "application/octet-stream") for path in (pipe, huge, Path("/dev/zero"))]
    async with app.events() as events:
        for part in (*missing, *odd, {"type": "picture", "url": "x"}, image, file(pipe, "image/png"), *bytes_of):
            refused = await send(app, session, text_part("See"), part, expect=400)
            assert part not in missing or refused["name"] == "BadRequest"
        assert "20 MiB" in json.dumps(await send(app, session, file(huge, "image/png"), expect=400))
        os.truncate(huge, 20 * 1024 * 1024)
        assert "64 MiB" in json.dumps(await send(app, session, *3 * [file(huge, "image/png")], expect=413))
        assert events.types == ["server.connected"]
    assert await app.messages(session) == []
    assert types(await send(app, session, file(pipe))) == ["text", "text"], "a FIFO does not hold the prompt up"
