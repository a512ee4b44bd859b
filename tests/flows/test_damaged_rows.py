"""One damaged row hides no other, and work goes on."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from running_app import RunningApp, running_app
from turns import bash, say, texts, tools

from app.providers.base import ModelRequest
from app.providers.scripted import ScriptedTurn, parse_turn

NO_JSON = ["{broken", "", "[]", "{}", b"\xff\x00"]
OF_NO_USE = ['{"type":"unheard-of"}', '{"role":"user","time":7}']
DAMAGES = [*NO_JSON, *OF_NO_USE]


def execute(app: RunningApp, statement: str, *values: Any) -> None:
    with sqlite3.connect(app.data_dir / "opensession.db") as database:
        assert database.execute(statement, values).rowcount == 1
    database.close()


def answer(request: ModelRequest) -> ScriptedTurn:
    """It runs something when it is told to go."""
    is_new = "Go" in str(request.messages[-1:])
    return parse_turn([say("I run it."), bash("echo ran")] if is_new else [say("So it is.")])


SERVED_WITH = {"otherwise": answer}


async def talked(app: RunningApp) -> tuple[str, list[dict[str, Any]]]:
    session = (await app.create_session(title="T"))["id"]
    await app.prompt(session, "Go")
    return session, await app.messages(session)


async def test_a_damaged_part_is_left_out(app: RunningApp) -> None:
    for damage in DAMAGES:
        session, messages = await talked(app)
        (tool,) = tools(messages)
        execute(app, "UPDATE part SET body = ? WHERE id = ?", damage, tool["id"])
        found = await app.messages(session)
        if damage in NO_JSON:  # other JSON is passed on as it is
            assert tools(found) == []
            assert [texts(message) for message in found] == [["Go"], ["I run it."], ["So it is."]]
        assert texts(await app.prompt(session, "And now?")) == ["So it is."]
        forked = await app.post(f"/session/{session}/fork")
        assert len(await app.messages(forked["id"])) == 5


async def test_a_damaged_message_is_left_out(app: RunningApp) -> None:
    for damage in DAMAGES:
        session, messages = await talked(app)
        execute(app, "UPDATE message SET body = ? WHERE id = ?", damage, messages[1]["info"]["id"])
        found = await app.messages(session)
        assert (found[0], found[-1]) == (messages[0], messages[-1]) and (damage not in NO_JSON or len(found) == 2)
        assert texts(await app.prompt(session, "And now?")) == ["So it is."]


async def test_a_damaged_session_is_missing_in_the_list_alone(app: RunningApp) -> None:
    good = (await app.create_session())["id"]
    for damage in DAMAGES:
        bad = (await app.create_session())["id"]
        execute(app, "UPDATE session SET body = ? WHERE id = ?", damage, bad)
        assert [session["id"] for session in await app.get("/session") if "id" in session] == [good]
        refused = await app.prompt(bad, "Hi", expect=500)
        assert refused["name"] == "StorageError" and "doctor" in str(refused)
    assert texts(await app.prompt(good, "Hi")) == ["So it is."]


async def test_a_server_starts_on_damaged_rows(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[say("One.")]]) as app:
        session, messages = await talked(app)
        other = (await app.create_session())["id"]
        execute(app, "UPDATE session SET body = '[' WHERE id = ?", other)
        execute(app, "UPDATE message SET body = '{broken', open = 1 WHERE id = ?", messages[-1]["info"]["id"])
        execute(app, "UPDATE project SET body = 'x'")
    async with running_app(tmp_path, turns=[[say("Two.")]]) as app:
        assert [listed["id"] for listed in await app.get("/session")] == [session]
        assert [texts(message) for message in await app.messages(session)] == [["Go"]]
        assert texts(await app.prompt(session, "Again")) == ["Two."]
        assert json.dumps(await app.get("/project"))
