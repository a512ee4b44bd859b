"""What a turn sends begins with what the turn before it sent, byte by byte: providers cache by that."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from turns import bash, call, configured, priced, requests, say, summarize, talking
from web_page import web_page

from app import server
from app.providers.anthropic_messages import anthropic_body
from app.providers.base import ModelRequest
from app.providers.openai_chat import chat_body
from app.providers.openai_responses import responses_body
from app.workspace.instructions import InstructionPages

CONVERSATION = [
    [{"reasoning": "Hm."}, say("I look."), bash("echo one", "c1"), call("read", "c2", filePath="a.txt")],
    [say("Found it.")],
    [bash("echo two", "c3")],
    [say("Done.")],
    [say("Bye.")],
]


async def conversation(tmp_path: Path) -> list[ModelRequest]:
    directory = configured(tmp_path, {**priced(), "instructions": ["rules.md"]})
    (directory / "AGENTS.md").write_text("Be kind.")
    (directory / "rules.md").write_text("Be quick.")
    async with talking(tmp_path, workspace=directory, turns=CONVERSATION) as (app, session):
        for prompt in ("Look", "Again", "Thanks"):
            await app.prompt(session, prompt)
        return requests(app)


def unmarked(value: Any) -> Any:
    """Without the marks that say how far to cache: they move on with the conversation."""
    if isinstance(value, dict):
        return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [unmarked(inner) for inner in value] if isinstance(value, list) else value


def parts(body: dict[str, Any]) -> tuple[str, list[str]]:
    """All that stands before the messages, and the messages, as they are sent."""
    key = "input" if "input" in body else "messages"
    return json.dumps({**body, key: None}), [json.dumps(message) for message in body[key]]


async def test_each_request_begins_with_the_one_before_it(tmp_path: Path) -> None:
    asked = await conversation(tmp_path)
    assert len(asked) == len(CONVERSATION)
    for build in (chat_body, responses_body, anthropic_body):
        sent = [parts(unmarked(build(request))) for request in asked]
        for (head, before), (next_head, after) in pairwise(sent):
            assert next_head == head
            assert after[: len(before)] == before and len(after) > len(before)
    systems = {request.system for request in asked}
    [(stable, rest)] = systems
    assert "Be kind." not in stable and str(tmp_path) not in stable, "the first text is the same in every project"
    assert "Be kind." in rest and "Be quick." in rest


async def test_after_a_compaction_the_instructions_are_sent_again(tmp_path: Path) -> None:
    directory = configured(tmp_path, priced())
    (directory / "AGENTS.md").write_text("Be kind.")
    async with talking(tmp_path, workspace=directory, turns=[[say("Hi.")], [say("A summary.")], [say("Yes.")]]) as (app, session):
        await app.prompt(session, "Hello", system="Rhyme.")
        await summarize(app, session)
        await app.prompt(session, "Still kind?", system="Rhyme.")
        before, summary, after = requests(app)
        assert after.system == before.system and "Be kind." in after.system[1] and "Rhyme." in after.system[1]
        assert "Be kind." not in str(summary.system)


async def test_changed_instructions_hold_from_the_next_step_on(tmp_path: Path) -> None:
    directory = configured(tmp_path, priced())
    turns = [[bash("echo Be brief. > AGENTS.md")], [say("Yes.")], [say("Hi.")]]
    async with talking(tmp_path, workspace=directory, turns=turns) as (app, session):
        await app.prompt(session, "Write it down")
        (directory / "AGENTS.md").write_text("Be long.")
        await app.prompt(session, "And now?")
        texts = [request.system[1] for request in requests(app)]
        assert ["Be brief." in text for text in texts] == [False, True, False]
        assert "Be long." in texts[2]


FIRST_WAIT = 1.0


async def test_a_page_that_hangs_is_waited_for_once_and_one_that_answers_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "InstructionPages", lambda: InstructionPages(first_wait=FIRST_WAIT))
    async with web_page("Never use tabs.") as page, web_page(hangs=True) as silent:
        workspace = configured(tmp_path, {**priced(), "instructions": [page.url, silent.url]})
        async with talking(tmp_path, workspace=workspace, title="Mine") as (app, session):
            seconds = []
            for _ in range(3):
                app.provider.add([bash("echo hi")], [bash("echo ho")], [say()])
                began = time.monotonic()
                await app.prompt(session, "Go on")
                seconds.append(time.monotonic() - began)
            assert all(f"Instructions from: {page.url}\nNever use tabs." in "".join(asked.system) for asked in requests(app))
        assert len(page.requests) == len(silent.requests) == 1
    assert seconds[0] > FIRST_WAIT / 2 and max(seconds) < 20 * FIRST_WAIT
