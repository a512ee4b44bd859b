"""A hundred aborts at random moments of turns of every kind: each leaves the session idle, settled and without processes."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

from processes import running_in
from running_app import RunningApp, running_app
from sse_reader import EventReader, Received
from turns import assert_settled, bash, configured, say, statuses, task, texts, until

from app.provider.base import ModelRequest, TextBlock, ToolTurn, UserTurn
from app.provider.scripted import Turn, parse_turn

ABORTS = 100
AT_ONCE = 5
STUBBORN = "trap '' TERM; echo started; sleep 5 & while :; do sleep 0.05; done"
KINDS: dict[str, list[dict[str, Any]]] = {
    "stream": [{"reasoning": "Hm.", "chunks": 3, "delay": 0.005}, say("word " * 40, chunks=40, delay=0.005)],
    "bash": [say("I run it."), bash(f"echo $RANDOM >> log.txt; {STUBBORN}")],
    "subagent": [task("bash")],
    "subagent asks": [task("ask")],
    "retry": [{"status": 429, "headers": {"retry-after": "30"}, "message": "slow down"}],
    "ask": [bash("touch x", "c1"), bash("touch y", "c2")],
}


def answer(request: ModelRequest) -> Turn:
    """Does what the newest prompt names; after a tool, or for any other word, a short text."""
    last = request.messages[-1]
    if isinstance(last, ToolTurn):
        return parse_turn([say("So it is.")])
    assert isinstance(last, UserTurn)
    words = [block.text for block in last.content if isinstance(block, TextBlock)]
    return parse_turn(KINDS.get(words[-1], [say("Fine.")]))


async def abort_at_random(app: RunningApp, rng: random.Random) -> str:
    """Prompts a new session and aborts it a moment later, at times with more aborts and prompts around. Returns the session."""
    session = (await app.create_session())["id"]
    kind, moment, crowd = rng.choice(list(KINDS)), rng.random() ** 2 * 0.25, rng.random() < 0.3
    prompts = [asyncio.create_task(app.prompt(session, kind)) for _ in range(2 if crowd else 1)]
    await asyncio.sleep(moment)
    began = time.monotonic()
    others = [asyncio.create_task(app.post(f"/session/{session}/abort")) for _ in range(2 if crowd else 0)]
    await app.post(f"/session/{session}/abort")
    took = time.monotonic() - began
    assert took < 2, f"the abort of {kind} after {moment:.3f} s took {took:.1f} s"
    await asyncio.gather(*others)
    await still_to_come(app, session, prompts)
    return session


async def still_to_come(app: RunningApp, session: str, prompts: list[asyncio.Task[dict[str, Any]]]) -> None:
    """A prompt may have arrived after the abort: it runs, and is aborted too."""
    while True:
        done, left = await asyncio.wait(prompts, timeout=0.05)
        for prompt in done:
            assert prompt.result()["info"]["role"] == "assistant"
        if not left:
            return
        await app.post(f"/session/{session}/abort")


def session_of(event: Received) -> str | None:
    about = event.properties.get("info") or event.properties.get("part") or {}
    return event.properties.get("sessionID") or about.get("sessionID") or about.get("id")


async def check(app: RunningApp, events: EventReader, sessions: list[str]) -> None:
    assert await statuses(app) == {}
    heard = {session_of(event): event.type for event in events.seen}
    assert {heard[session] for session in sessions} == {"session.idle"}
    assert await app.get("/permission") == []
    for session in sessions:
        for child in [session, *[made["id"] for made in await app.get(f"/session/{session}/children")]]:
            messages = await app.messages(child)
            assert_settled(messages)
            assert not messages or messages[-1]["info"]["role"] == "assistant"
            assert app.services.store.live_parts(child) == {}
    await until(lambda: not running_in(app.directory), "the end of all processes")


async def test_a_hundred_aborts(tmp_path: Path) -> None:
    rng = random.Random(20)
    config = {"permission": {"bash": {"*": "allow", "touch *": "ask"}}}
    async with running_app(tmp_path, workspace=configured(tmp_path, config), otherwise=answer) as app:
        async with app.events() as events:
            await events.until("server.connected")
            for _ in range(ABORTS // AT_ONCE):
                sessions = await asyncio.gather(*(abort_at_random(app, rng) for _ in range(AT_ONCE)))
                await app.create_session(title="a mark")
                await events.until(lambda event: event.properties.get("info", {}).get("title") == "a mark", count=2)
                await check(app, events, sessions)
                events.seen.clear()
                assert texts(await app.prompt(sessions[0], "And now?")) == ["Fine."]
        assert not (app.directory / "x").exists()
