"""The clock jumps by ten minutes to either side, between turns and within them, and across the moment at which the time in ids
wraps; the server is restarted meanwhile, and clients name messages by clocks of their own."""

import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from long_form import LONG
from running_app import RunningApp, running_app
from turns import talking, texts

from app.providers.base import ModelRequest, StreamEvent, TextBlock, UserTurn
from app.providers.scripted import Call, Say, ScriptedProvider, ScriptedStep
from app.util import clock, ids

ROUNDS, PROMPTS = (10, 24) if LONG else (2, 12)
JUMP_SECONDS = 600
WRAP_SECONDS = 2**36 / 1000
"""The time part of an id holds 36 bits of milliseconds."""
BEFORE_WRAP = 300

Message = dict[str, Any]


class JumpingClock:
    """Starts shortly before ids wrap, and runs as real time does between the jumps."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        wrap = (time.time() // WRAP_SECONDS + 1) * WRAP_SECONDS
        self._ahead = wrap - BEFORE_WRAP - time.time()
        self.jumps = 0

    def now(self) -> float:
        return time.time() + self._ahead

    def jump(self) -> None:
        self.jumps += 1
        self._ahead += self._random.choice([-JUMP_SECONDS, JUMP_SECONDS])

    def message_id(self) -> str:
        """As a client makes it whose clock is off as well."""
        off = self._random.choice([-JUMP_SECONDS, 0, JUMP_SECONDS])
        tick = int((self.now() + off) * 1000) * 4096 % 2**48
        return f"msg_{tick:012x}{self._random.getrandbits(60):014x}"[:30]


class Echo(ScriptedProvider):
    """Says which prompt it answers. The clock jumps while it does."""

    def __init__(self, jumping: JumpingClock) -> None:
        super().__init__(otherwise=echo)
        self._clock = jumping

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        async for event in super().stream(request):
            self._clock.jump()
            yield event


def echo(request: ModelRequest) -> tuple[ScriptedStep, ...]:
    prompt = conversation(request)[-1]
    if "look" in prompt and isinstance(request.messages[-1], UserTurn):
        return (Call("list", {}),)
    return (Say(f"answer to {prompt}", chunks=2),)


def conversation(request: ModelRequest) -> list[str]:
    """What was said, by both sides."""
    return [block.text for message in request.messages for block in message.content if isinstance(block, TextBlock)]


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets which ids were given, as a restart does. The other tests go on with the ids that they had."""
    return lambda: monkeypatch.setattr(ids, "_last_tick", 0)


async def ask(app: RunningApp, jumping: JumpingClock, session: str, prompt: str, number: int) -> Message:
    jumping.jump()
    named = {"messageID": jumping.message_id()} if number % 3 == 1 else {}
    return await app.prompt(session, prompt, **named)


def prompts_of(messages: list[Message]) -> dict[str, str]:
    return {message["info"]["id"]: texts(message)[0] for message in messages if message["info"]["role"] == "user"}


async def all_texts(app: RunningApp, session: str) -> list[str]:
    return [text for message in await app.messages(session) for text in texts(message)]


def expected(prompts: list[str]) -> list[str]:
    return [text for prompt in prompts for text in (prompt, f"answer to {prompt}")]


async def in_pages(app: RunningApp, session: str, size: int) -> list[Message]:
    found: list[Message] = []
    query: dict[str, Any] = {"limit": size}
    while True:
        response = await app.client.get(f"/session/{session}/message", params=query)
        found = [*response.json(), *found]
        if "x-next-cursor" not in response.headers:
            return found
        query["before"] = response.headers["x-next-cursor"]


async def out_of_order(app: RunningApp, session: str, prompts: list[str]) -> int:
    asked = [conversation(request) for request in app.provider.requests if request.session_id == session]
    unlike = [history for history in asked if history != expected(prompts)[: len(history)]]
    is_paged_otherwise = await in_pages(app, session, 3) != await app.messages(session)
    return (await all_texts(app, session) != expected(prompts)) + is_paged_otherwise + len(unlike)


async def goes_back(app: RunningApp, jumping: JumpingClock, session: str, prompts: list[str]) -> int:
    """Forks and reverts in the middle; how often more or less than what stood before is left."""
    middle = len(prompts) // 2
    at = next(key for key, prompt in prompts_of(await app.messages(session)).items() if prompt == prompts[middle])
    jumping.jump()
    fork = await app.post(f"/session/{session}/fork", {"messageID": at})
    jumping.jump()
    await app.post(f"/session/{session}/revert", {"messageID": at})
    await ask(app, jumping, session, "again", 0)
    is_wrong = await all_texts(app, fork["id"]) != expected(prompts[:middle])
    return is_wrong + (await all_texts(app, session) != expected([*prompts[:middle], "again"]))


async def a_round(base: Path, jumping: JumpingClock, restart: Callable[[], None]) -> tuple[int, int, set[str]]:
    """Wrong replies, wrong orders, and the first digits of the messages' ids."""
    prompts = [f"{'look at' if n % 2 else 'say'} {n}" for n in range(PROMPTS)]
    answers = []
    async with talking(base, provider=Echo(jumping), title="T") as (app, session):
        for n in range(PROMPTS // 2):
            answers.append(await ask(app, jumping, session, prompts[n], n))
    jumping.jump()
    restart()
    async with running_app(base, provider=Echo(jumping)) as app:
        for n in range(PROMPTS // 2, PROMPTS):
            answers.append(await ask(app, jumping, session, prompts[n], n))
        messages = await app.messages(session)
        misplaced = await out_of_order(app, session, prompts) + await goes_back(app, jumping, session, prompts)
    asked = prompts_of(messages)
    wrong = sum(texts(answer)[-1:] != [f"answer to {asked.get(answer['info']['parentID'])}"] for answer in answers)
    return wrong, misplaced, {message["info"]["id"][4] for message in messages}


async def test_the_clock_jumps(tmp_path: Path, figure: Any, new_process: Callable[[], None]) -> None:
    wrong = misplaced = jumps = 0
    digits: set[str] = set()
    for number in range(ROUNDS):
        jumping = JumpingClock(number)
        new_process()
        clock.set_source(jumping.now)
        replies, orders, seen = await a_round(tmp_path / str(number), jumping, new_process)
        wrong, misplaced, jumps, digits = wrong + replies, misplaced + orders, jumps + jumping.jumps, digits | seen
    prompts = ROUNDS * PROMPTS
    figure(f"{prompts} prompts, {jumps} jumps of ±10 min, across the id wrap: {wrong} wrong replies, {misplaced} wrong orders")
    assert wrong == misplaced == 0
    assert {"0", "f"} <= digits, "the ids did not wrap"
