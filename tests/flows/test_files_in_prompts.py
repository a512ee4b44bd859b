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
    assert part["synthetic"] is True
    assert "time" not in part
    text = part["text"]
    arguments: dict[str, Any] = json.loads(text[text.index("{") :])
    return arguments


# Text files.


async def test_a_text_file_is_read_for_the_model(app: RunningApp, session: str) -> None:
    path = app.directory / "lines.txt"
    message = await send(app, session, {"type": "text", "text": "See this"}, file(path))
    assert types(message) == ["text", "text", "text", "file"]
    own, call, content, kept = message["parts"]
    assert own["text"] == "See this"
    assert called(call) == {"filePath": str(path)}
    assert content["synthetic"] is True
    assert "line 1\n" in content["text"]
    assert "line 10" in content["text"]
    assert (kept["url"], kept["mime"], kept["filename"]) == (path.as_uri(), "text/plain", "lines.txt")
    assert await app.messages(session) == [message]


@pytest.mark.parametrize(
    ("query", "arguments", "first", "last"),
    [
        ("?start=2&end=3", {"offset": 1, "limit": 2}, 2, 3),
        ("?start=4&end=4", {"offset": 3, "limit": 1}, 4, 4),
        ("?start=9", {"offset": 8}, 9, 10),
        ("?start=0&end=2", {"offset": 0, "limit": 2}, 1, 2),
        ("?end=3", {}, 1, 10),
        ("?start=x&end=3", {}, 1, 10),
    ],
)
async def test_a_range_of_lines_is_read(
    app: RunningApp, session: str, query: str, arguments: dict[str, int], first: int, last: int
) -> None:
    path = app.directory / "lines.txt"
    call, content, kept = (await send(app, session, file(path, query=query)))["parts"]
    assert called(call) == {"filePath": str(path), **arguments}
    shown = [n for n in range(1, 11) if f"line {n}\n" in content["text"].replace("</file>", "\n</file>")]
    assert shown == list(range(first, last + 1))
    assert kept["url"] == path.as_uri() + query


async def test_the_model_is_sent_the_content_and_not_the_file_part(app: RunningApp, session: str) -> None:
    app.provider.add([say("Seen.")])
    await app.post(f"/session/{session}/message", {"parts": [file(app.directory / "lines.txt")]})
    sent = str(requests(app)[-1].messages)
    assert "line 7" in sent
    assert "FileBlock" not in sent


async def test_a_file_that_was_attached_counts_as_read(app: RunningApp, session: str) -> None:
    """So that it may be edited at once."""
    edit = {"filePath": str(app.directory / "lines.txt"), "oldString": "line 3\n", "newString": "third\n"}
    app.provider.add([{"tool": "edit", "args": edit}], [say()])
    await app.post(f"/session/{session}/message", {"parts": [file(app.directory / "lines.txt")]})
    assert "third\n" in (app.directory / "lines.txt").read_text()


async def test_names_are_percent_decoded(app: RunningApp, session: str) -> None:
    path = app.directory / "mit Leerzeichen é#1.txt"
    path.write_text("found\n")
    message = await send(app, session, file(path))
    assert "found" in message["parts"][1]["text"]


async def test_a_file_outside_the_checkout_may_be_attached(app: RunningApp, session: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("from outside\n")
    assert "from outside" in (await send(app, session, file(outside)))["parts"][1]["text"]
    assert await app.get("/permission") == []


async def test_a_file_that_cannot_be_read_is_reported_and_the_prompt_goes_on(app: RunningApp, session: str) -> None:
    path = app.directory / "binary.txt"
    path.write_bytes(b"\0\1\2" * 100)
    async with app.events() as events:
        message = await send(app, session, {"type": "text", "text": "See"}, file(path))
        error = await events.until("session.error")
    assert types(message) == ["text", "text", "text"]
    assert "binary.txt" in message["parts"][2]["text"]
    assert message["parts"][2]["synthetic"] is True
    assert error.properties["error"]["name"] == "UnknownError"


async def test_an_image_that_claims_to_be_text_is_attached_as_what_it_is(app: RunningApp, session: str) -> None:
    path = app.directory / "pixel.png"
    path.write_bytes(PIXEL)
    message = await send(app, session, file(path))
    kept = message["parts"][-1]
    assert kept["type"] == "file"
    assert kept["mime"] == "image/png"
    assert kept["url"] == "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    assert kept["filename"] == "pixel.png"


# Directories, images, data URLs.


async def test_a_directory_is_listed(app: RunningApp, session: str) -> None:
    (app.directory / "sub").mkdir()
    (app.directory / "sub" / "inside.txt").touch()
    call, listing, kept = (await send(app, session, file(app.directory / "sub")))["parts"]
    assert called(call) == {"path": str(app.directory / "sub")}
    assert "inside.txt" in listing["text"]
    assert kept["mime"] == "application/x-directory"


@pytest.mark.parametrize("mime", ["image/png", "application/pdf"])
async def test_an_image_or_pdf_is_embedded(app: RunningApp, session: str, mime: str) -> None:
    path = app.directory / "some.bin"
    path.write_bytes(PIXEL)
    source = {"type": "file", "path": "some.bin", "text": {"value": "@some.bin", "start": 0, "end": 9}}
    call, kept = (await send(app, session, file(path, mime, source=source)))["parts"]
    assert called(call) == {"filePath": str(path)}
    assert kept["url"] == f"data:{mime};base64," + base64.b64encode(PIXEL).decode()
    assert (kept["mime"], kept["filename"], kept["source"]) == (mime, "some.bin", source)


async def test_the_model_is_sent_the_image(app: RunningApp, session: str) -> None:
    path = app.directory / "pixel.png"
    path.write_bytes(PIXEL)
    await app.post(f"/session/{session}/message", {"parts": [file(path, "image/png")]})
    assert base64.b64encode(PIXEL).decode() in str(requests(app)[-1].messages)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("data:text/plain;base64," + base64.b64encode("héllo\n".encode()).decode(), "héllo\n"),
        ("data:text/plain;charset=utf-8;base64," + base64.urlsafe_b64encode(b"\xfb\xff>").decode(), "\ufffd\ufffd>"),
        ("data:text/plain,a%20b%0A", "a b\n"),
        ("data:text/plain;base64,", ""),
    ],
    ids=["base64", "base64url", "percent", "empty"],
)
async def test_the_text_of_a_data_url_is_given_to_the_model(app: RunningApp, session: str, url: str, text: str) -> None:
    part = {"type": "file", "mime": "text/plain", "filename": "note.txt", "url": url}
    call, content, kept = (await send(app, session, part))["parts"]
    assert called(call) == {"filePath": "note.txt"}
    assert (content["text"], content["synthetic"]) == (text, True)
    assert kept["url"] == url


@pytest.mark.parametrize("url", ["data:image/png;base64,AAAA", "https://example.com/a.png"])
async def test_other_urls_are_kept_as_they_are(app: RunningApp, session: str, url: str) -> None:
    part = {"type": "file", "mime": "image/png", "filename": "a.png", "url": url}
    (kept,) = (await send(app, session, part))["parts"]
    assert (kept["url"], kept["mime"], kept["filename"]) == (url, "image/png", "a.png")


# Agents.


async def test_naming_an_agent_asks_the_model_to_give_it_the_task_and_needs_no_permission(tmp_path: Path) -> None:
    config = {"permission": {"task": {"explore": "deny"}}}
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


# Order and refusals.


async def test_parts_keep_the_clients_order_and_ids(app: RunningApp, session: str) -> None:
    parts = [
        file(app.directory / "lines.txt", id="prt_file"),
        {"type": "text", "text": "last", "id": "prt_text"},
    ]
    message = await send(app, session, *parts)
    assert [part["id"] for part in message["parts"]][2:] == ["prt_file", "prt_text"]
    assert (await app.messages(session))[0]["parts"] == message["parts"]


async def test_a_missing_file_is_reported_and_nothing_is_stored(app: RunningApp, session: str) -> None:
    async with app.events() as events:
        for path in (app.directory / "gone.txt", app.directory / ("x" * 300), Path("/proc/self/none")):
            refused = await send(app, session, {"type": "text", "text": "See"}, file(path), expect=400)
            assert refused["name"] == "BadRequest"
        assert events.types == ["server.connected"]
    assert await app.messages(session) == []


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "mime": "text/plain", "url": "file://[broken"},
        {"type": "file", "mime": "text/plain", "url": "file:///a%00b"},
        {"type": "picture", "url": "x"},
        {"type": "file", "mime": "image/png", "url": "file:///dev/null"},
    ],
    ids=["unreadable URL", "NUL", "unknown type", "no regular file"],
)
async def test_what_cannot_be_attached_is_400(app: RunningApp, session: str, part: dict[str, Any]) -> None:
    await send(app, session, part, expect=400)
    assert await app.messages(session) == []


async def test_a_file_too_large_to_embed_is_400(app: RunningApp, session: str) -> None:
    path = app.directory / "huge.png"
    with path.open("wb") as huge:
        huge.truncate(21 * 1024 * 1024)
    refused = await send(app, session, file(path, "image/png"), expect=400)
    assert "20 MiB" in json.dumps(refused)


async def test_a_fifo_does_not_hold_the_prompt_up(app: RunningApp, session: str) -> None:
    os.mkfifo(app.directory / "pipe")
    await send(app, session, file(app.directory / "pipe", "image/png"), expect=400)
    message = await send(app, session, file(app.directory / "pipe"))
    assert types(message) == ["text", "text"]
