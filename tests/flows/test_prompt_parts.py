"""What the parts of a prompt become: files, directories, images, mentions of agents."""

import base64
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app, text_part
from turns import call, requests, say, talking, tools

from app.provider.base import FileBlock, TextBlock

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


async def kept(app: RunningApp, *given: dict[str, Any], session: str | None = None, expect: int = 200) -> list[dict[str, Any]]:
    """The parts that a prompt is stored as; the model is not asked."""
    session = session or (await app.create_session())["id"]
    body = {"parts": list(given), "noReply": True}
    answer = await app.post(f"/session/{session}/message", body, expect=expect)
    if expect != 200:
        return []
    assert (await app.messages(session))[-1]["parts"] == answer["parts"]
    found: list[dict[str, Any]] = answer["parts"]
    return found


def file_part(path: Path, mime: str = "text/plain", query: str = "") -> dict[str, Any]:
    return {"type": "file", "mime": mime, "url": f"{path.as_uri()}{query}", "filename": path.name}


async def test_a_text_file_is_read_for_the_model(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        part = file_part(app.directory / "a.txt")
        called, shown, file = await kept(app, part)
    assert called["synthetic"] and called["text"].endswith(f'{{"filePath":"{app.directory}/a.txt"}}')
    assert shown["synthetic"] and "00001| hello" in shown["text"] and "00002| world" in shown["text"]
    assert {key: file[key] for key in ("type", "mime", "url", "filename")} == part


async def test_some_lines_of_a_file_are_read(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        (app.directory / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 9)))
        called, shown, _ = await kept(app, file_part(app.directory / "long.txt", query="?start=2&end=3"))
    assert called["text"].endswith('"offset":1,"limit":2}')
    assert [line for line in shown["text"].splitlines() if "| line" in line] == ["00002| line 2", "00003| line 3"]


async def test_a_path_with_odd_letters_is_found(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        path = app.directory / "gr üße #1%.txt"
        path.write_text("found\n")
        _, shown, _ = await kept(app, file_part(path))
    assert "found" in shown["text"]


async def test_a_directory_is_listed(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        called, shown, file = await kept(app, file_part(app.directory, "text/plain"))
    assert called["text"].endswith(f'{{"path":"{app.directory}"}}')
    assert "a.txt" in shown["text"] and file["mime"] == "application/x-directory"


async def test_an_image_is_embedded_and_sent(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        path = app.directory / "dot.png"
        path.write_bytes(PNG)
        session = (await app.create_session())["id"]
        called, file = await kept(app, file_part(path, "image/png"), session=session)
        await app.prompt(session, "What is it?")
        sent = requests(app)[0].messages[0].content
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert called["synthetic"] and (file["url"], file["filename"]) == (url, "dot.png")
    assert sent[1] == FileBlock("image/png", url, "dot.png")


async def test_an_image_that_is_called_text_is_embedded(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        path = app.directory / "dot.png"
        path.write_bytes(PNG)
        *_, file = await kept(app, file_part(path, "text/plain"))
    assert file["mime"] == "image/png" and file["url"].startswith("data:image/png;base64,") and file["filename"] == "dot.png"


async def test_a_file_that_cannot_be_read_is_reported_and_the_prompt_goes_on(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        path = app.directory / "a.bin"
        path.write_bytes(b"\0\1\2" * 100)
        async with app.events() as events:
            called, told = await kept(app, file_part(path))
            error = await events.until("session.error")
    assert called["synthetic"] and "a.bin" in told["text"] and "binary" in told["text"]
    assert error.properties["error"]["name"] == "UnknownError"


@pytest.mark.parametrize("mime", ["text/plain", "image/png"])
async def test_a_missing_file_refuses_the_prompt(tmp_path: Path, mime: str) -> None:
    async with talking(tmp_path) as (app, session):
        await kept(app, text_part("x"), file_part(app.directory / "missing", mime), session=session, expect=400)
        assert await app.messages(session) == []


async def test_a_data_url_of_text_is_read_from_itself(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        url = f"data:text/plain;base64,{base64.b64encode(b'kept here').decode()}"
        part = {"type": "file", "mime": "text/plain", "url": url, "filename": "note.txt"}
        called, shown, file = await kept(app, part)
    assert called["text"].endswith('{"filePath":"note.txt"}') and shown["text"] == "kept here" and file["url"] == url


@pytest.mark.parametrize("url", ["data:image/png;base64,AAAA", "https://example.com/a.png"])
async def test_other_urls_are_kept_as_they_are(tmp_path: Path, url: str) -> None:
    async with running_app(tmp_path) as app:
        (file,) = await kept(app, {"type": "file", "mime": "image/png", "url": url})
    assert file["url"] == url


async def test_parts_stay_in_the_order_that_they_were_given(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        parts = await kept(app, text_part("one"), file_part(app.directory / "a.txt"), text_part("two"))
    assert [part.get("text", "")[:3] for part in parts if not part.get("synthetic")] == ["one", "", "two"]
    assert [part["type"] for part in parts] == ["text", "text", "text", "file", "text"]


async def test_a_file_that_was_attached_may_be_overwritten(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        path = app.directory / "a.txt"
        app.provider.add([call("write", filePath=str(path), content="new\n")], [say()])
        session = (await app.create_session())["id"]
        await app.post(f"/session/{session}/message", {"parts": [file_part(path), text_part("Replace it")]})
        assert tools(await app.messages(session))[0]["state"]["status"] == "completed"
        assert path.read_text() == "new\n"


async def test_naming_an_agent_asks_the_model_to_give_it_the_task_and_needs_no_permission(tmp_path: Path) -> None:
    config = {"permission": {"task": {"explore": "deny"}}}
    task = call("task", description="Look", prompt="Look", subagent_type="explore")
    async with talking(tmp_path, config=config, turns=[[task], [say("Seen.")], [say()]]) as (app, session):
        mention = {"type": "agent", "name": "explore"}
        await app.post(f"/session/{session}/message", {"parts": [text_part("Look around"), mention]})
        user, step, _ = await app.messages(session)
        first = requests(app)[0].messages[0].content
    assert [part["type"] for part in user["parts"]] == ["text", "agent", "text"]
    hint = user["parts"][2]
    assert hint["synthetic"] and "explore" in hint["text"] and "rules say otherwise" in hint["text"]
    assert first == (TextBlock("Look around"), TextBlock(hint["text"]))
    assert tools(step)[0]["tool"] == "task"
