"""A client with an editor, at a session: it is asked for what the agent reads there."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from running_app import RunningApp, running_app
from turns import call, say, tools
from user_logins import user


@asynccontextmanager
async def waiting(app: RunningApp, session_id: str) -> AsyncIterator["asyncio.Task[dict[str, str]]"]:
    """For the next file, from here on."""
    async with app.client.stream("GET", f"/session/{session_id}/editor") as response:
        pieces = response.aiter_bytes()
        assert await anext(pieces) == b"\n"

        async def rest() -> dict[str, str]:
            return dict(json.loads(b"".join([piece async for piece in pieces])))

        task = asyncio.create_task(rest())
        yield task
        task.cancel()


async def test_the_agent_reads_what_the_client_answers(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[call("read", filePath="a.txt")], [say()]]) as app:
        session_id = (await app.create_session())["id"]
        async with waiting(app, session_id) as file:
            turn = asyncio.create_task(app.prompt(session_id, "go"))
            asked = await file
            assert asked["path"] == str(app.directory / "a.txt")
            answer = {"id": asked["id"], "text": "shown\n"}
            assert await app.post(f"/session/{session_id}/editor", answer) is True
            await turn
            assert await app.post(f"/session/{session_id}/editor", answer) is False
        (read,) = tools(await app.messages(session_id))
    assert "00001| shown" in read["state"]["output"]


async def test_who_may_not_prompt_in_a_session_lends_it_nothing(app: RunningApp) -> None:
    async with user(app, "ann") as ann, user(app, "ben") as ben, user(app, "eve", "viewer") as eve:
        session_id = (await ann.create_session())["id"]
        for who, status in ((ben, 404), (eve, 403)):
            await who.get(f"/session/{session_id}/editor", expect=status)
            await who.post(f"/session/{session_id}/editor", {"id": "x", "text": "y"}, expect=status)
        assert await ann.post(f"/session/{session_id}/editor", {"id": "x", "text": "y"}) is False
    await app.get("/session/ses_none/editor", expect=401)


async def test_a_text_has_a_bound_and_an_unknown_session_no_editor(app: RunningApp) -> None:
    session_id = (await app.create_session())["id"]
    await app.post(f"/session/{session_id}/editor", {"id": "x", "text": "x" * (10 * 1024 * 1024 + 1)}, expect=400)
    await app.post("/session/ses_none/editor", {"id": "x"}, expect=404)
    await app.get("/session/ses_none/editor", expect=404)
