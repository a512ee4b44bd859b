"""The plugin and the tools that docs/plugins.md shows, as they stand there."""

import asyncio
import re
from pathlib import Path

import pytest
from plugin_files import PluginFiles
from running_app import running_app
from turns import bash, call, configured, pending, priced, reply, requests, say, states, states_after, until

from app.tools.plugins.api import HOOK_NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


def documented_code(kind: str) -> str:
    found = re.search(rf"^```python {kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_page_names_every_hook() -> None:
    section = PAGE.split("\n## Plugins\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)) == {*HOOK_NAMES, "tool"}


async def test_the_plugin_does_what_the_page_says(tmp_path: Path, files: PluginFiles, caplog: pytest.LogCaptureFixture) -> None:
    files.put("mine", documented_code("plugin"))
    workspace = configured(tmp_path, {**priced(temperature=True), "agent": {"review": {"mode": "primary"}}})
    (workspace / ".env").write_text("SECRET=1")
    async with running_app(tmp_path, workspace=workspace) as app:
        app.provider.add([call("read", filePath=str(workspace / ".env")), bash("echo $GIT_COMMITTER_NAME")], [say()])
        session = (await app.create_session())["id"]
        await app.prompt(session, "Do it", agent="review")
        read, shell = await states(app, session)
        await until(lambda: f"{session}: " in caplog.text, "the plugin's line in the log")
    assert read["error"] == "Error: The plugin mine stopped this: Do not read .env files"
    assert shell["output"] == "opensession\n"
    assert requests(app)[0].temperature == 0.1


async def test_the_tools_do_what_the_page_says(tmp_path: Path, files: PluginFiles) -> None:
    files.put("issue", documented_code("tool"), folder="tool")
    workspace = configured(tmp_path, {**priced(), "permission": {"issue_close": "ask"}})
    async with running_app(tmp_path, workspace=workspace) as app:
        calls = [call("issue", number=1), call("issue_close", number=1)]
        running = asyncio.create_task(states_after(app, calls, [say()]))
        for patterns in (["*"], ["1"]):  # by the rule for the tool, then by the tool itself
            request = await pending(app)
            assert (request["permission"], request["patterns"]) == ("issue_close", patterns)
            await reply(app, request)
        read, close = await running
    assert (read["title"], read["output"]) == ("Issue 1", "The door squeaks")
    assert close["output"] == "closed: The door squeaks"
