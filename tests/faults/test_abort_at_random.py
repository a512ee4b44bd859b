"""Aborts at random moments of turns of every kind: each leaves the session idle within two seconds, its record finished, without
processes, its open request answered, and ready for the next prompt."""

import asyncio
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from figures import Figure
from long_form import LONG, SLACK
from processes import running_in
from running_app import RunningApp, running_app
from sse_reader import EventReader, Received
from turns import assert_finished, bash, call, configured, say, statuses, task, texts, until

from app.providers.base import ModelRequest, TextBlock, ToolTurn
from app.providers.scripted import ScriptedTurn, parse_turn

ABORTS = 400 if LONG else 20
AT_ONCE = 5
WITHIN = 2.0 * SLACK
GIT = shutil.which("git")
OPTIONS = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
STUBBORN = "trap '' TERM; echo started; sleep 5 & while :; do sleep 0.05; done"
KINDS: dict[str, list[dict[str, Any]]] = {
    "stream": [{"reasoning": "Hm.", "chunks": 3, "delay": 0.005}, say("word " * 40, chunks=40, delay=0.005)],
    "bash": [say("I run it."), bash(f"echo $RANDOM >> log.txt; {STUBBORN}")],
    "subagent": [task("bash")],
    "subagent asks": [task("ask")],
    "retry": [{"status": 429, "headers": {"retry-after": "30"}, "message": "slow down"}],
    "ask": [bash("touch x", "c1"), bash("touch y", "c2")],
    "question": [call("question", questions=[{"question": "Which?", "header": "Which", "options": OPTIONS}])],
    "escape": [bash("setsid sh -c 'trap \"\" TERM; sleep 50' & env -i sleep 51 & wait")],
    "before the first byte": [{"wait": asyncio.Event()}, say("Never.")],
}
COMPACTION = "compaction"


def answer(request: ModelRequest) -> ScriptedTurn:
    """Does what the newest prompt names; after a tool, or for any other word, a short text."""
    last = request.messages[-1]
    if isinstance(last, ToolTurn):
        return parse_turn([say("So it is.")])
    words = [block.text for block in last.content if isinstance(block, TextBlock)]
    if "sum" in words[-1].lower().split() or len(words[-1]) > 200:  # the server's own request for a summary
        return parse_turn([say("word " * 40, chunks=40, delay=0.005)])
    return parse_turn(KINDS.get(words[-1], [say("Fine.")]))


async def open_request(app: RunningApp, session: str, kind: str) -> dict[str, Any] | None:
    """The answer; a summary has none."""
    if kind != COMPACTION:
        return await app.prompt(session, kind)
    model = {"providerID": "scripted", "modelID": "rules"}
    response = await app.client.post(f"/session/{session}/summarize", json=model)
    assert response.status_code in (200, 409), response.text
    return None


async def abort_at_random(app: RunningApp, rng: random.Random, slowest: list[float]) -> str:
    """Prompts a new session and aborts it a moment later, at times with more aborts and prompts around. Returns the session."""
    session = (await app.create_session())["id"]
    kind, moment, crowd = rng.choice([*KINDS, COMPACTION]), rng.random() ** 2 * 0.25, rng.random() < 0.3
    if kind == COMPACTION:
        await app.prompt(session, "Fine?")
    prompts = [asyncio.create_task(open_request(app, session, kind)) for _ in range(2 if crowd else 1)]
    await asyncio.sleep(moment)
    began = time.monotonic()
    others = [asyncio.create_task(app.post(f"/session/{session}/abort")) for _ in range(2 if crowd else 0)]
    await app.post(f"/session/{session}/abort")
    took = time.monotonic() - began
    assert took < WITHIN, f"the abort of {kind} after {moment:.3f} s took {took:.1f} s"
    slowest.append(took)
    await asyncio.gather(*others)
    while True:  # a prompt may have arrived after the abort: it runs, and is aborted too
        done, left = await asyncio.wait(prompts, timeout=0.05)
        for prompt in done:
            assert (prompted := prompt.result()) is None or prompted["info"]["role"] == "assistant"
        if not left:
            return session
        await app.post(f"/session/{session}/abort")


def session_of(event: Received) -> str | None:
    about = event.properties.get("info") or event.properties.get("part") or {}
    return event.properties.get("sessionID") or about.get("sessionID") or about.get("id")


async def check(app: RunningApp, events: EventReader, sessions: list[str]) -> None:
    assert await statuses(app) == {}
    heard = {session_of(event): event.type for event in events.seen}
    assert {heard[session] for session in sessions} == {"session.idle"}
    assert await app.get("/permission") == [] and await app.get("/question") == []
    for session in sessions:
        for child in [session, *[made["id"] for made in await app.get(f"/session/{session}/children")]]:
            messages = await app.messages(child)
            assert_finished(messages)
            assert not messages or messages[-1]["info"]["role"] == "assistant"
            assert app.services.store.live.of(child) == {}
    await until(lambda: not running_in(app.directory), "the end of all processes")


async def test_aborts_at_random_moments(tmp_path: Path, figure: Figure) -> None:
    rng, slowest = random.Random(20), list[float]()
    config = {"permission": {"bash": {"*": "allow", "touch *": "ask"}}}
    async with running_app(tmp_path, workspace=configured(tmp_path, config), otherwise=answer) as app:
        async with app.events() as events:
            for _ in range(ABORTS // AT_ONCE):
                sessions = await asyncio.gather(*(abort_at_random(app, rng, slowest) for _ in range(AT_ONCE)))
                await app.create_session(title="a mark")
                await events.until(lambda event: event.properties.get("info", {}).get("title") == "a mark", count=2)
                await check(app, events, sessions)
                events.seen.clear()
                assert texts(await app.prompt(sessions[0], "And now?")) == ["Fine."]
        assert not (app.directory / "x").exists()
    figure(
        f"{ABORTS} aborts of {len(KINDS) + 1} kinds of turns: idle after {max(slowest):.2f} s at the most, 0 processes left, "
        "every record finished, every request answered, every next prompt answered"
    )


@pytest.mark.parametrize("hangs", ["diff-tree", "ls-files"])
async def test_an_abort_does_not_wait_for_a_git_that_hangs(
    tmp_path: Path, figure: Figure, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    """Neither for the session's diff nor for the snapshot of what the step leaves."""
    flag, wrapper = tmp_path / "bin" / "hang", tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *{hangs}*) while [ -e {flag} ]; do sleep 0.05; done;; esac\nexec {GIT} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    turns = [[bash("echo one > one.txt")], [bash(f"touch {flag}; echo two > two.txt; echo shown; {STUBBORN}")]]
    async with running_app(tmp_path, turns=turns, otherwise=answer, roots=str(tmp_path)) as app:
        session = (await app.create_session(permission=[{"permission": "*", "pattern": "*", "action": "allow"}]))["id"]
        prompting = asyncio.create_task(app.prompt(session, "Go"))
        await until(flag.exists)
        began = time.monotonic()
        await app.post(f"/session/{session}/abort")
        took = time.monotonic() - began
        assert took < WITHIN and (await prompting)["info"]["error"]["name"] == "MessageAbortedError"
        assert_finished(await app.messages(session))
        flag.unlink()
        await until(lambda: not running_in(app.directory), "the end of all processes")
        assert texts(await app.prompt(session, "And now?")) == ["Fine."]
    figure(f"git {hangs} hangs: idle after {took:.2f} s")
