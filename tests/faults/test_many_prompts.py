"""Many prompts at once: all are answered, the model is asked one thing at a time, and what is sent twice is one message."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from long_form import LONG
from over_sockets import clients
from running_app import running_app

from app.provider.base import Finish, ModelRequest, StreamEvent, StreamStart, TextDelta, TextEnd, TextStart, Usage
from app.provider.scripted import ScriptedProvider

ROUNDS = 10 if LONG else 1


class Counting(ScriptedProvider):
    """Answers slowly, and counts how many answers it gives at once."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.at_once = self.most_at_once = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield StreamStart()
            yield TextStart("1")
            await asyncio.sleep(0.01)
            yield TextDelta("1", "Here.")
            yield TextEnd("1")
            yield Finish("stop", Usage(input=1, output=1))
        finally:
            self.at_once -= 1


def body(text: str, **fields: Any) -> dict[str, Any]:
    return {"parts": [{"type": "text", "text": text}], **fields}


async def test_fifty_prompts_at_once_over_two_connections(tmp_path: Path, figure: Any) -> None:
    provider = Counting()
    answered = 0
    async with running_app(tmp_path, provider=provider) as app, clients(app, 2) as both:
        for _ in range(ROUNDS):
            session = await app.create_session(title="T")
            sent = [both[n % 2].post(f"/session/{session['id']}/message", json=body(f"prompt {n}")) for n in range(50)]
            answers = await asyncio.gather(*sent)
            answered += sum(answer.status_code == 200 and answer.json()["info"]["role"] == "assistant" for answer in answers)
            messages = await app.messages(session["id"])
            users = [message["info"]["id"] for message in messages if message["info"]["role"] == "user"]
            assert len(users) == len(set(users)) == 50
            assert all(message["info"]["time"].get("completed") for message in messages if message["info"]["role"] == "assistant")
            assert not app.services.live.is_running(session["id"])
    figure(f"{answered} of {50 * ROUNDS} prompts answered by {provider.calls} calls, at most {provider.most_at_once} at once")
    assert answered == 50 * ROUNDS and provider.most_at_once == 1


async def test_the_same_message_twenty_times(tmp_path: Path, figure: Any) -> None:
    provider = Counting()
    async with running_app(tmp_path, provider=provider) as app, clients(app, 2) as both:
        for number in range(ROUNDS):
            session = await app.create_session(title="T")
            same = body("Hi", messageID=f"msg_mine{number}")
            sent = [both[n % 2].post(f"/session/{session['id']}/message", json=same) for n in range(20)]
            answers = await asyncio.gather(*sent)
            assert len({answer.content.strip() for answer in answers}) == 1 and answers[0].status_code == 200
            messages = await app.messages(session["id"])
            assert [message["info"]["role"] for message in messages] == ["user", "assistant"]
            assert len(messages[0]["parts"]) == 1
    figure(f"20 times the same messageID, {ROUNDS} rounds: {provider.calls} model calls, one message and one answer each")
    assert provider.calls == ROUNDS
