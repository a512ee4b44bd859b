"""A model that misbehaves over HTTP: each turn ends with an answer or a stored error, after 25 calls at the most."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from figures import Figure
from long_form import LONG
from model_server import Chunk, Cut, ModelServer, Refusal, Step, Tokens, model_server
from turns import assert_finished, statuses, talking, texts

MAX_CALLS = 25
SILENCE_MS = 300
SOON = {"retry-after-ms": "5"}
CALL = {"index": 0, "id": "c", "type": "function"}
LISTING: Step = ("list", {})


@dataclass(frozen=True)
class Case:
    """What the model says at first, what it says for ever after, and what comes of it: an answer with this text, or an error."""

    otherwise: list[Step]
    first: tuple[list[Step], ...] = ()
    answer: str | None = None
    error: str | None = None


def calling(arguments: str, name: str = "bash") -> Chunk:
    return Chunk({"tool_calls": [{**CALL, "function": {"name": name, "arguments": arguments}}]})


CASES = {
    "endless 429": Case([Refusal(429, SOON)], error="APIError"),
    "endless 500": Case([Refusal(500, SOON)], error="APIError"),
    "400": Case([Refusal(400)], error="APIError"),
    "hangs before the first byte, then not": Case(["Here."], ([threading.Event()],), answer="Here."),
    "hangs in the middle of a text, then not": Case(["Here."], (["Half", threading.Event()],), answer="Here."),
    "cut in the middle of a text": Case(["Half", Cut()], error="UnknownError"),
    "cut in the middle of arguments": Case([calling('{"command": "touch half'), Cut()], error="UnknownError"),
    "garbage arguments": Case([calling('{"command": oops'), Chunk({}, "tool_calls")], error="UnknownError"),
    "arguments that are no object": Case([calling("[1, 2]"), Chunk({}, "tool_calls")], error="UnknownError"),
    "10,000 tiny deltas": Case(["x"] * 10_000, answer="x" * 10_000),
    "a delta of 2 MB": Case(["y" * 2_000_000], answer="y" * 2_000_000),
    "empty answers": Case([Chunk({}, "stop"), Cut()], answer=""),
    "nothing at all": Case([Cut()], error="UnknownError"),
    "no finish": Case(["Text."], ([Chunk({"content": "Text."}), Cut()],) * 2, answer="Text."),
    "an unheard-of finish": Case([Chunk({"content": "Text."}, "because"), Cut()], error="UnknownError"),
    "an unknown tool for ever": Case([("dance", {"wildly": True})], error="UnknownError"),
    "wrong arguments for ever": Case([("read", {"path": 7})], error="UnknownError"),
    "the same call for ever": Case([LISTING], error="UnknownError"),
    "summaries that never shrink": Case(["Much.", Tokens(90_000)], error="UnknownError"),
}
FOR_EVER = {
    "hangs for ever": Case([threading.Event()], error="APIError"),
    "cut off by an error for ever": Case([Refusal(503)], error="APIError"),
}
LONG_PAUSES = [pytest.param(name, marks=pytest.mark.skipif(not LONG, reason="takes minutes: make faults")) for name in FOR_EVER]


def config(model: ModelServer) -> dict[str, Any]:
    made = model.config()
    provider = made["provider"]["fake"]
    provider["options"]["timeout"] = SILENCE_MS
    provider["models"]["main"]["limit"] = {"context": 20_000, "output": 1_000}
    return {**made, "permission": {"*": "allow", "doom_loop": "allow"}}


@pytest.mark.parametrize("name", [*CASES, *LONG_PAUSES])
async def test_a_turn_ends(tmp_path: Path, figure: Figure, name: str) -> None:
    case, patience = (CASES | FOR_EVER)[name], 900.0 if name in FOR_EVER else 60.0
    with model_server() as model:
        model.play(*case.first)
        model.otherwise = case.otherwise
        async with talking(tmp_path, config=config(model), patience=patience) as (app, session):
            began = time.monotonic()
            answer = await app.prompt(session, "Hi")
            took, calls = time.monotonic() - began, len(model.requests)
            assert_finished(await app.messages(session))
            assert await statuses(app) == {}
            assert not (app.directory / "half").exists()
            model.otherwise = ["Now I behave."]
            assert texts(await app.prompt(session, "And now?"))[-1] == "Now I behave."
        for step in (step for turn in (*case.first, case.otherwise) for step in turn if isinstance(step, threading.Event)):
            step.set()
    error = answer["info"].get("error", {}).get("name")
    assert error == case.error, answer["info"]
    assert case.answer in (None, "".join(texts(answer)))
    assert calls <= MAX_CALLS
    figure(f"{name}: {error or 'an answer'} after {calls} calls, {took:.1f} s")
