"""The tools that no other flow is about, each called in a whole turn."""

import os
from pathlib import Path
from typing import Any

from git_files import put_file
from running_app import RunningApp, running_app
from turns import call, configured, priced, say, states_after
from web_page import web_page


async def state_after(app: RunningApp, tool: str, **args: Any) -> dict[str, Any]:
    [state] = await states_after(app, [call(tool, **args)], [say()])
    return state


async def completed(app: RunningApp, tool: str, **args: Any) -> dict[str, Any]:
    state = await state_after(app, tool, **args)
    assert state["status"] == "completed", state
    return state


async def test_files_are_found_and_one_that_was_read_is_changed(app: RunningApp) -> None:
    grep = await completed(app, "grep", pattern="wor.d")
    assert "Found 1 match" in grep["output"] and "world" in grep["output"] and grep["metadata"]["matches"] == 1
    glob = await completed(app, "glob", pattern="*.txt")
    file = app.directory / "a.txt"
    assert glob["output"] == str(file) and glob["metadata"]["count"] == 1
    listed = await completed(app, "list")
    assert "a.txt" in listed["output"] and listed["output"].startswith(f"{app.directory}/")
    edits = [{"oldString": "hello", "newString": "bye"}, {"oldString": "world", "newString": "moon"}]
    steps = [call("read", filePath=str(file))], [call("multiedit", filePath=str(file), edits=edits)]
    assert [state["status"] for state in await states_after(app, *steps, [say()])] == ["completed"] * 2
    assert file.read_text() == "bye\nmoon\n"


async def test_a_file_whose_name_is_not_utf8_is_read_and_changed_by_a_link(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        odd = app.directory / os.fsdecode(b"caf\xe9.txt")
        odd.write_text("hello\n")
        (app.directory / "link").symlink_to(odd.name)
        edit = [call("edit", filePath="link", oldString="hello", newString="bye")]
        read, edited = await states_after(app, [call("read", filePath="link")], edit, [say()])
        assert (read["status"], read["title"], edited["status"]) == ("completed", "caf\ufffd.txt", "completed")
        assert edited["metadata"]["filediff"]["file"] == f"{app.directory}/caf\ufffd.txt" and odd.read_text() == "bye\n"
        (app.directory / "folder").symlink_to(os.fsdecode(b"\xe9"))
        (app.directory / "folder").resolve().mkdir()
        assert (await completed(app, "glob", pattern="*", path="folder"))["title"] == "\ufffd"


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
    """By its name: `ask` would hold the turn up."""
    workspace = configured(tmp_path, {"permission": {"skill": {"*": "ask", "brew": "allow"}}})
    text = "---\nname: brew\ndescription: How tea is made\n---\nBoil the water first.\n"
    file = put_file(workspace / ".opencode" / "skill" / "brew" / "SKILL.md", text)
    async with running_app(tmp_path, workspace=workspace) as app:
        state, unknown = await states_after(app, [call("skill", name="brew"), call("skill", name="tea")], [say()])
        described = next(tool.description for tool in app.provider.requests[0].tools if tool.id == "skill")
    assert "How tea is made" in described
    assert state["output"].endswith("\n\nBoil the water first.") and state["title"] == "Loaded skill: brew"
    assert "description:" not in state["output"] and str(file.parent) in state["output"]
    assert state["metadata"].items() >= {"name": "brew", "dir": str(file.parent)}.items()
    assert unknown["status"] == "error" and "brew" in unknown["error"]


async def test_webfetch_refuses_this_machine_unless_it_is_allowed(tmp_path: Path) -> None:
    async with web_page("<h1>A page</h1>", content_type="text/html") as page:
        async with running_app(tmp_path / "strict") as app:
            refused = await state_after(app, "webfetch", url=page.url, format="text")
        async with running_app(tmp_path / "open", allow_private_addresses=True) as app:
            fetched = await completed(app, "webfetch", url=page.url, format="text")
    assert refused["status"] == "error"
    assert "A page" in fetched["output"] and fetched["title"].startswith(page.url)
