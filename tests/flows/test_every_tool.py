"""The tools that no other flow is about, each called in a whole turn."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running_app import RunningApp, running_app
from turns import call, configured, priced, say, tools


async def state_after(app: RunningApp, tool: str, **args: Any) -> dict[str, Any]:
    """The stored state of one call, after its turn."""
    app.provider.add([call(tool, **args)], [say()])
    session = await app.create_session()
    await app.prompt(session["id"], "Go")
    (part,) = tools(await app.messages(session["id"]))
    assert part["tool"] == tool
    state: dict[str, Any] = part["state"]
    return state


async def completed(app: RunningApp, tool: str, **args: Any) -> dict[str, Any]:
    state = await state_after(app, tool, **args)
    assert state["status"] == "completed", state
    return state


async def test_grep_glob_and_list_find_files(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        grep = await completed(app, "grep", pattern="wor.d")
        glob = await completed(app, "glob", pattern="*.txt")
        listed = await completed(app, "list")
    assert "Found 1 match" in grep["output"] and "world" in grep["output"] and grep["metadata"]["matches"] == 1
    assert glob["output"] == str(app.directory / "a.txt") and glob["metadata"]["count"] == 1
    assert "a.txt" in listed["output"] and listed["output"].startswith(f"{app.directory}/")


async def test_multiedit_changes_a_file_that_was_read(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        file = str(app.directory / "a.txt")
        edits = [{"oldString": "hello", "newString": "bye"}, {"oldString": "world", "newString": "moon"}]
        app.provider.add([call("read", filePath=file)], [call("multiedit", filePath=file, edits=edits)], [say()])
        session = await app.create_session()
        await app.prompt(session["id"], "Edit")
        statuses = [part["state"]["status"] for part in tools(await app.messages(session["id"]))]
        assert (statuses, Path(file).read_text()) == (["completed", "completed"], "bye\nmoon\n")


async def test_apply_patch_is_for_the_models_that_know_it(tmp_path: Path) -> None:
    workspace = configured(tmp_path, priced(id="gpt-5"))
    text = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+bye\n world\n*** Add File: new.txt\n+made\n*** End Patch"
    async with running_app(tmp_path, workspace=workspace) as app:
        state = await completed(app, "apply_patch", patchText=text)
        offered = {tool.id for tool in app.provider.requests[0].tools}
    assert (workspace / "a.txt").read_text() == "bye\nworld\n" and (workspace / "new.txt").read_text() == "made\n"
    assert {file["type"] for file in state["metadata"]["files"]} == {"update", "add"}
    assert "apply_patch" in offered and not offered & {"edit", "write", "multiedit"}


async def test_a_skill_is_offered_and_loaded(tmp_path: Path) -> None:
    workspace = configured(tmp_path, {})
    skill = workspace / ".opencode" / "skill" / "brew" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: brew\ndescription: How tea is made\n---\nBoil the water first.\n")
    async with running_app(tmp_path, workspace=workspace) as app:
        state = await completed(app, "skill", name="brew")
        described = next(tool.description for tool in app.provider.requests[0].tools if tool.id == "skill")
    assert "How tea is made" in described
    assert "Boil the water first." in state["output"] and state["title"] == "Loaded skill: brew"


async def test_webfetch_refuses_this_machine_unless_it_is_allowed(tmp_path: Path) -> None:
    with a_page() as url:
        async with running_app(tmp_path / "strict") as app:
            refused = await state_after(app, "webfetch", url=url, format="text")
        async with running_app(tmp_path / "open", allow_private_addresses=True) as app:
            fetched = await completed(app, "webfetch", url=url, format="text")
    assert refused["status"] == "error"
    assert "A page" in fetched["output"] and fetched["title"].startswith(url)


@contextmanager
def a_page() -> Iterator[str]:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<h1>A page</h1>")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
