"""What language servers say of a file after an edit, and what one that is slow, silent, dead or hostile costs."""

import json
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import turns
from running_app import RunningApp, running_app
from sandboxed import needs_sandbox
from turns import call, configured, priced, say, until
from user_logins import user

from app.workspace.lsp import client, servers

FAKE = Path(__file__).parents[1] / "support" / "fake_language_server.py"


def fake(mode: str = "plain", *words: str, **entry: Any) -> dict[str, Any]:
    return {"command": [sys.executable, str(FAKE), mode, *words], "extensions": [".fake"], **entry}


@asynccontextmanager
async def serving(base: Path, *calls: Any, server: dict[str, Any], **options: Any) -> AsyncIterator[RunningApp]:
    workspace = configured(base, {"lsp": {"fake": {**server, "command": [*server["command"], str(base)]}}})
    async with running_app(base, workspace=workspace, turns=[*([step] for step in calls), [say()]], **options) as app:
        yield app


async def played(app: RunningApp, directory: Path | None = None) -> list[dict[str, Any]]:
    """The states of a session's calls, which the model makes one after the other."""
    session = await app.post("/session", {}, params={"directory": str(directory)} if directory else None)
    await app.prompt(session["id"], "Go")
    return await turns.states(app, session["id"])


def write(text: str, path: str = "a.fake") -> dict[str, Any]:
    return turns.write(path, text)


def edit(new: str, old: str = "", path: str = "a.fake") -> dict[str, Any]:
    return call("edit", filePath=path, oldString=old, newString=new)


def took(state: dict[str, Any]) -> float:
    return float(state["time"]["end"] - state["time"]["start"]) / 1000


@pytest.mark.parametrize("mode", ["plain", "unversioned"])
async def test_errors_are_told_and_gone_when_they_are_mended(tmp_path: Path, mode: str) -> None:
    async with serving(tmp_path, write("one\n wrong\n"), edit("right", "wrong"), server=fake(mode)) as app:
        written, mended = await played(app)
        path = app.directory / "a.fake"
        listed = await app.get("/lsp")
    assert written["output"] == (
        "Wrote file successfully.\n\nLSP errors detected in this file, please fix:\n"
        f'<diagnostics file="{path}">\nERROR [2:1] this is wrong: wrong\n</diagnostics>'
    )
    (error,) = written["metadata"]["diagnostics"][str(path)]
    assert error["severity"] == 1 and error["range"]["start"] == {"line": 1, "character": 0}
    assert mended["output"] == "Edit applied successfully." and mended["metadata"]["diagnostics"] == {}
    assert listed == [{"id": "fake", "name": "fake", "root": "", "status": "connected"}]


async def test_errors_are_told_outside_git_too_and_twenty_at_most(tmp_path: Path) -> None:
    shutil.rmtree(configured(tmp_path, {}) / ".git")
    async with serving(tmp_path, write("one\n wrong\n"), write("wrong\n" * 50), server=fake()) as app, app.events() as events:
        assert await app.get("/lsp") == [] and not fakes(app), "none is started before the first file of its kind"
        (written, many) = await played(app)
        await events.until("lsp.updated")
        told = await events.until("lsp.client.diagnostics")
        assert told.properties == {"serverID": "fake", "path": str(app.directory / "a.fake")}
        assert len(fakes(app)) == 1
        await app.post("/instance/dispose")
        await until(lambda: not fakes(app))
    assert "ERROR [2:1] this is wrong: wrong" in written["output"]
    assert many["output"].count("ERROR") == 20 and "\n... and 30 more\n</diagnostics>" in many["output"]


@pytest.mark.parametrize("mode", ["silent", "mute", "slow-start 9", "slow 9"])
async def test_one_that_does_not_answer_costs_its_seconds_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    assert servers.ANSWER_SECONDS == 3
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 1.5)
    async with serving(tmp_path, *(edit(f"wrong {number}") for number in range(3)), server=fake(*mode.split())) as app:
        first, *others = await played(app)
    assert 1.2 < took(first) < 4 and first["output"] == "Edit applied successfully."
    assert all(took(state) < 1.4 and state["output"] == first["output"] for state in others)


@pytest.mark.parametrize("mode", ["dead", "crash", "garbage", "huge", "hostile", "flood"])
async def test_one_that_is_dead_or_hostile_costs_little_and_breaks_nothing(tmp_path: Path, mode: str) -> None:
    before = psutil.Process().memory_info().rss
    async with serving(tmp_path, *(edit(f"wrong {number}") for number in range(3)), server=fake(mode)) as app:
        found = await played(app)
        session = await app.create_session()
        began = time.monotonic()
        assert (await app.get("/session/" + session["id"]))["id"] == session["id"]
        assert time.monotonic() - began < 1
    assert [state["status"] for state in found] == ["completed"] * 3
    assert sum(map(took, found)) < 9
    assert psutil.Process().memory_info().rss - before < 150 * 1024 * 1024
    if mode == "hostile":
        assert "wrong 2" in found[-1]["output"]


async def test_one_that_does_not_read_is_ended_before_much_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_UNREAD_BYTES", 1_000_000)
    async with serving(tmp_path, *(edit(str(number) * 240_000) for number in range(7)), server=fake("deaf")) as app:
        found = await played(app)
    assert [state["status"] for state in found] == ["completed"] * 7
    assert "does not read what it is sent" in caplog.text


async def test_one_that_crashes_is_started_again_three_times_at_most(tmp_path: Path) -> None:
    log = tmp_path / "workspace" / "log"
    async with serving(tmp_path, write("a"), server=fake(env={"FAKE_LOG": str(log)})) as app:
        await played(app)
        for started in range(1, 5):
            await until(lambda count=started: log.read_text().count("initialized") == count)
            await until_listed(app, "connected")
            (process,) = fakes(app)
            process.kill()
            await until(lambda killed=process: killed not in fakes(app))
        await until(lambda: not fakes(app))
        await until_listed(app, "error")
        assert log.read_text().count("initialized") == 4


async def test_errors_of_other_files_of_the_project_are_told_after_a_write_of_any_file(tmp_path: Path) -> None:
    async with serving(tmp_path, write("x"), edit("wrong", "x"), server=fake("others")) as app:
        written, edited = await played(app)
    assert written["output"].count("LSP errors detected in other files:\n<diagnostics file=") == 5
    assert "passwd" not in json.dumps(written) and len(written["metadata"]["diagnostics"]) == 5
    assert "other files" not in edited["output"] and "ERROR [1:1] this is wrong" in edited["output"]
    async with serving(tmp_path / "known", write("wrong"), write("text", "b.txt"), server=fake()) as app:
        _, other = await played(app)
        path = app.directory / "a.fake"
    assert f'LSP errors detected in other files:\n<diagnostics file="{path}">\nERROR [1:1]' in other["output"]
    assert other["metadata"]["diagnostics"][str(path)][0]["code"] == 7


async def test_a_server_that_publishes_nothing_is_asked_and_one_that_answers_late_catches_up(tmp_path: Path) -> None:
    async with serving(tmp_path, write("wrong"), edit("right", "wrong"), write("wrong", "b.fake"), server=fake("asked")) as app:
        written, mended, other = await played(app)
    assert "ERROR [1:1]" in written["output"] and mended["output"] == "Edit applied successfully."
    assert "in this file" in other["output"] and "other files" not in other["output"]
    async with serving(tmp_path / "late", write("wrong"), server=fake("asked-late")) as app, app.events() as events:
        (late,) = await played(app)
        await events.until("lsp.client.diagnostics")
        app.provider.add([write("wrong", "b.fake")], [say()])
        (told,) = await played(app)
    assert late["output"] == "Wrote file successfully." and took(late) < 4
    assert told["output"].count("LSP errors detected") == 2 and took(told) < 1


async def test_a_patch_and_several_edits_tell_errors_too(tmp_path: Path) -> None:
    edits = [{"oldString": "one", "newString": "wrong"}]
    async with serving(tmp_path, write("one"), call("multiedit", filePath="a.fake", edits=edits), server=fake()) as app:
        _, edited = await played(app)
    assert edited["output"].startswith("Applied 1 edits successfully.\n\nLSP errors detected in this file, please fix:\n")
    patch = "*** Begin Patch\n*** Add File: b.fake\n+wrong\n*** Add File: c.fake\n+right\n*** End Patch"
    workspace = configured(tmp_path / "patch", {"lsp": {"fake": fake()}, **priced(id="gpt-5")})
    async with running_app(tmp_path / "patch", workspace=workspace) as app:
        (state,) = await turns.states_after(app, [call("apply_patch", patchText=patch)], [say()])
    assert "\n\nLSP errors detected in b.fake, please fix:\n<diagnostics file=" in state["output"]
    assert "c.fake, please" not in state["output"] and len(state["metadata"]["diagnostics"]) == 1


@pytest.mark.parametrize("choice", [False, {"fake": {"disabled": True}}])
async def test_what_is_switched_off_is_not_started(tmp_path: Path, choice: Any) -> None:
    workspace = configured(tmp_path, {"lsp": choice})
    (workspace / ".venv" / "bin").mkdir(parents=True)
    marker = workspace / "started"
    program = workspace / ".venv" / "bin" / "pyright-langserver"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    async with running_app(tmp_path, workspace=workspace) as app:
        await turns.states_after(app, [write("x", "a.py")], [say()])
        if choice is not False:
            await until(marker.exists)
    assert marker.exists() is (choice is not False)


@needs_sandbox
@pytest.mark.parametrize(("place", "is_open"), [("outside", False), ("workspace/inside", True)])
async def test_a_servers_program_reaches_the_project_alone(tmp_path: Path, place: str, is_open: bool) -> None:
    target = tmp_path / place
    async with serving(tmp_path, write("x"), server=fake("escape", str(target)), sandbox="require") as app:
        (state,) = await played(app)
    assert "ERROR [1:1]" in state["output"] and ("written" in state["output"]) is is_open, state["output"]
    assert target.exists() is is_open


async def test_users_are_told_of_nothing_in_the_roots_of_others(tmp_path: Path) -> None:
    """Where there is no sandbox, too, a server may speak of what is not the user's."""
    workspace = configured(tmp_path, {"lsp": {"fake": fake("others")}})
    async with running_app(tmp_path, workspace=workspace, turns=[[write("x")], [say()]] * 2, sandbox="off") as app:
        ada_root, bob_root = app.directory / "ada", app.directory / "bob"
        for root in (ada_root, bob_root):
            root.mkdir()
            shutil.copy(app.directory / "opencode.json", root)
        async with user(app, "ada", roots=[ada_root]) as ada, user(app, "bob", roots=[bob_root]) as bob:
            of_ada, of_bob = [await played(each, root) for each, root in ((ada, ada_root), (bob, bob_root))]
            symbols = await ada.get("/find/symbol", params={"query": "x", "directory": str(ada_root)})
    assert str(ada_root / "other2.fake") in json.dumps(of_ada) and str(bob_root) not in json.dumps([of_ada, symbols])
    assert str(bob_root / "other2.fake") in json.dumps(of_bob) and str(ada_root) not in json.dumps(of_bob)


def fakes(app: RunningApp) -> list[psutil.Process]:
    """The servers' processes, as `serving` starts them."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if words[:2] == [sys.executable, str(FAKE)] and words[-1] == str(app.directory.parent):
                found.append(process)
    return found


async def until_listed(app: RunningApp, status: str) -> None:
    async def is_listed() -> bool:
        return [server["status"] for server in await app.get("/lsp")] == [status]

    await until(is_listed, status)


async def test_symbols_are_found_and_a_part_of_one_line_stands_for_the_one_that_begins_there(tmp_path: Path) -> None:
    """A change of other settings leaves the server running."""
    async with serving(tmp_path, write("one\ntwo\nthree\nfour\n"), server=fake()) as app:
        assert await app.get("/find/symbol", params={"query": "in"}) == []
        await played(app)
        (symbol,) = await app.get("/find/symbol", params={"query": "in"})
        session, uri, read = (await app.create_session())["id"], (app.directory / "a.fake").as_uri(), {}
        for line in (1, 2):
            part = {"type": "file", "mime": "text/plain", "url": f"{uri}?start={line}&end={line}", "filename": "a.fake"}
            await app.post(f"/session/{session}/message", {"noReply": True, "parts": [part]})
            read[line] = str((await app.messages(session))[-1]["parts"])
        before = fakes(app)
        await app.call("PATCH", "/config", {"username": "somebody"})
        assert (await app.get("/config"))["username"] == "somebody"
        assert [one["status"] for one in await app.get("/lsp")] == ["connected"] and fakes(app) == before
        await app.call("PATCH", "/config", {"lsp": {"fake": {**fake("unversioned"), "command": [sys.executable, "-c", "0"]}}})
        await app.get("/config")
        await until(lambda: not fakes(app))
    assert symbol["name"] == "inside" and symbol["kind"] == 12
    assert symbol["location"]["uri"] == uri and symbol["location"]["range"]["end"]["line"] == 2
    assert "two" in read[2] and "three" in read[2] and "four" not in read[2]
    assert "one" in read[1] and "two" not in read[1]


async def test_the_tool_asks_where_its_flag_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = call("lsp", operation="hover", filePath="a.fake", line=1, character=1)
    nowhere = call("lsp", operation="hover", filePath="a.txt", line=1, character=1)
    async with serving(tmp_path, write("x"), asked, server=fake()) as app:
        assert "lsp" not in await app.get("/experimental/tool/ids")
        assert (await played(app))[1]["title"] != "hover a.fake:1:1"
    for flag in ("OPENCODE_EXPERIMENTAL_LSP_TOOL", "OPENCODE_EXPERIMENTAL"):
        monkeypatch.setenv(flag, "1")
        async with serving(tmp_path / flag, write("x"), asked, nowhere, server=fake()) as app:
            _, answered, refused = await played(app)
        monkeypatch.delenv(flag)
        assert answered["title"] == "hover a.fake:1:1" and "a hover" in answered["output"], answered
        assert answered["metadata"]["result"] == [{"contents": "a hover"}]
        assert refused["error"].endswith("No LSP server available for this file type.")


@pytest.mark.parametrize("flag", ["0", "1"])
async def test_nothing_is_installed_whatever_the_flag_of_downloads_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    workspace = configured(tmp_path, {})
    programs, marker = tmp_path / "programs", workspace / "ran"
    programs.mkdir()
    for name in ("npm", "npx", "bun", "node", "go", "gem", "dotnet", "cargo", "pip", "curl", "unzip"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} >> {marker}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("OPENCODE_DISABLE_LSP_DOWNLOAD", flag)
    (workspace / "package.json").write_text('{"devDependencies": {"prettier": "3", "typescript": "5", "oxfmt": "1"}}')
    for name in ("biome.json", "Gemfile", "go.mod", "package-lock.json"):
        (workspace / name).write_text("{}")
    writes = [write("x", f"a.{kind}") for kind in ("py", "ts", "vue", "go", "rb", "cs", "json", "php", "lua", "zig")]
    async with running_app(tmp_path, workspace=workspace) as app:
        found = await turns.states_after(app, writes, [say()])
        assert [state["status"] for state in found] == ["completed"] * len(writes)
        assert await app.get("/lsp") == []
    assert not marker.exists()


@pytest.mark.skipif(not (Path(sys.executable).parent / "ruff").exists(), reason="ruff is not installed")
async def test_ruff_itself_tells_errors_and_none_when_they_are_mended(tmp_path: Path) -> None:
    workspace = configured(tmp_path, {"lsp": {"ruff": {"command": [str(Path(sys.executable).parent / "ruff"), "server"]}}})
    async with running_app(tmp_path, workspace=workspace) as app:
        written, mended = await turns.states_after(app, [write("x = (\n", "m.py")], [edit("1", "(", "m.py")], [say()])
    assert "ERROR [" in written["output"] and mended["output"] == "Edit applied successfully.", (written, mended)
