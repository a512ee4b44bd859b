"""AGENTS.md files below the session's directory: told with the first file that is read near them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from turns import call, configured, priced, requests, say, states, states_after, summarize

from app.schema.part import ToolPart
from app.sessions.rows import part_row

NEAR, DEEP = "Tabs here.", "No globals here."


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    directory = configured(tmp_path, priced())
    deep = directory / "lib" / "deep"
    deep.mkdir(parents=True)
    (directory / "AGENTS.md").write_text("Be kind.")
    (directory / "lib" / "AGENTS.md").write_text(NEAR)
    (deep / "CLAUDE.md").write_text(DEEP)
    for place in (directory / "lib", deep):
        (place / "code.py").write_text("x = 1\n")
    async with running_app(tmp_path, workspace=directory) as running:
        yield running


def read(path: str, call_id: str = "c1") -> dict[str, Any]:
    return call("read", call_id, filePath=path)


async def read_by(app: RunningApp, *steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What comes of calls, each list of them a step."""
    return await states_after(app, *steps, [say("Read.")])


async def test_they_come_with_what_is_read_the_nearest_first(app: RunningApp) -> None:
    [state] = await read_by(app, [read("lib/deep/code.py")])
    deep, near = str(app.directory / "lib/deep/CLAUDE.md"), str(app.directory / "lib/AGENTS.md")
    assert state["metadata"]["loaded"] == [deep, near]
    _, reminder = state["output"].split("</file>\n\n<system-reminder>\n")
    assert reminder == f"Instructions from: {deep}\n{DEEP}\n\nInstructions from: {near}\n{NEAR}\n</system-reminder>"
    assert "Be kind." not in state["output"], "what the system prompt says is not repeated"


async def test_they_are_given_once(app: RunningApp) -> None:
    together = [read("lib/code.py", "c1"), read("lib/code.py", "c2"), read("lib/deep/code.py", "c3")]
    found = await read_by(app, together, [read("lib/code.py", "c4")])
    loaded = [path for state in found for path in state["metadata"].get("loaded", [])]
    assert sorted(loaded) == sorted({str(app.directory / "lib/AGENTS.md"), str(app.directory / "lib/deep/CLAUDE.md")})
    assert "loaded" not in found[3]["metadata"]


async def test_reading_them_themselves_is_enough_and_what_has_none_near_it_is_read_as_ever(app: RunningApp) -> None:
    [state, other] = await read_by(app, [read("lib/AGENTS.md")], [read("a.txt", "c2")])
    assert "system-reminder" not in state["output"] and NEAR in state["output"]
    assert "loaded" not in other["metadata"] and "system-reminder" not in other["output"]


async def test_those_in_the_system_prompt_are_not_given_again(app: RunningApp) -> None:
    await app.call("PATCH", "/config", {"instructions": ["lib/*.md"]})
    [state] = await read_by(app, [read("lib/code.py")])
    assert "system-reminder" not in state["output"]
    assert NEAR in requests(app)[0].system[1]


async def test_after_a_compaction_they_are_given_again(app: RunningApp, session: str) -> None:
    app.provider.add([read("lib/code.py")], [say("Read.")], [say("A summary.")], [read("lib/code.py", "c2")], [say("Again.")])
    await app.prompt(session, "Read")
    await summarize(app, session)
    await app.prompt(session, "Read it again")
    loaded = [state["metadata"].get("loaded") for state in await states(app, session)]
    assert loaded == [[str(app.directory / "lib/AGENTS.md")]] * 2


async def test_when_their_read_was_pruned_they_are_given_again(app: RunningApp, session: str) -> None:
    app.provider.add([read("lib/code.py", "c1")], [say("Read.")], [read("lib/code.py", "c2")], [say("Again.")])
    await app.prompt(session, "Read")
    store = app.services.store
    _, history = await store.session_and_messages(session)
    [part] = [part for message in history for part in message.parts if isinstance(part, ToolPart)]
    part.state.time.compacted = 1
    row = part_row(part)
    await store.write(session, str(app.directory), lambda tx: tx.put_parts(row))
    await app.prompt(session, "Read it again")
    assert "system-reminder" in (await states(app, session))[1]["output"]
