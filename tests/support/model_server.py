"""A language model behind OpenAI's chat format on loopback: it says what a test tells it to, and waits where the test says so."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from loopback import QuietHandler, on_loopback

HELD_SECONDS = 60

_call_numbers = count()


@dataclass(frozen=True)
class Refusal:
    """The request is answered with an HTTP error, whatever else the turn says."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reasoning:
    text: str


@dataclass(frozen=True)
class Chunk:
    """The fields of a delta, as they are sent, and how it finishes."""

    delta: dict[str, Any]
    finish: str | None = None


@dataclass(frozen=True)
class Tokens:
    """What the answer is said to have cost. `reasoning`: of its 20 tokens."""

    prompt: int
    reasoning: int = 0


@dataclass(frozen=True)
class Pause:
    seconds: float


class Cut:
    """The connection ends here."""


Step = str | tuple[str, dict[str, Any]] | threading.Event | Reasoning | Refusal | Chunk | Tokens | Pause | Cut
"""A piece of text, a tool call (name, arguments), what to wait for, a piece of reasoning, an error, or something odd."""


class ModelServer:
    """The model `main` plays the turns in order and then for ever `otherwise`; `title` always answers with `title`."""

    TITLE = "A scripted title"

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self._turns: deque[list[Step]] = deque()
        self.otherwise: list[Step] = ["ok"]
        self.title: list[Step] = [self.TITLE]
        self.requests: list[dict[str, Any]] = []
        self.title_requests: list[dict[str, Any]] = []
        """What the models `main` and `title` were asked."""
        self.traceparents: list[str | None] = []
        """Of the requests, in their headers."""
        self.think_seconds = 0.0
        """Before it begins an answer."""

    def play(self, *turns: list[Step]) -> None:
        self._turns = deque(turns)

    def config(self) -> dict[str, Any]:
        """The part of an opencode.json that makes this the default model."""
        models = {name: {"name": name.title(), "tool_call": True} for name in ("main", "title")}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Fake", "options": {"baseURL": self.url, "apiKey": "k"}}
        return {"model": "fake/main", "small_model": "fake/title", "provider": {"fake": {**provider, "models": models}}}

    def note(self, request: dict[str, Any], traceparent: str | None) -> None:
        self.traceparents.append(traceparent)
        (self.title_requests if request["model"] == "title" else self.requests).append(request)

    def answer(self, request: dict[str, Any]) -> list[Step]:
        """What the model says to the body of a request."""
        if request["model"] == "title":
            return self.title
        return self._turns.popleft() if self._turns else self.otherwise


def chunks(turn: list[Step]) -> Iterator[dict[str, Any] | None]:
    """The events of an answer, None for its proper end; a wait is over when its event is set."""
    calls, prompt, reasoning = 0, 100, 0
    for step in turn:
        match step:
            case str():
                yield choice({"content": step})
            case threading.Event():
                step.wait(HELD_SECONDS)
            case Chunk(delta, finish):
                yield choice(delta, finish)
            case Tokens(prompt, reasoning):
                pass
            case Pause(seconds):
                time.sleep(seconds)
            case Cut():
                return
            case Reasoning(text):
                yield choice({"reasoning_content": text})
            case (name, arguments):
                call = {"index": calls, "id": f"call_{next(_call_numbers)}", "type": "function"}
                yield choice({"tool_calls": [{**call, "function": {"name": name, "arguments": json.dumps(arguments)}}]})
                calls += 1
    yield choice({}, "tool_calls" if calls else "stop")
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning}} if reasoning else {}
    usage = {"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20, **details}
    yield {"choices": [], "usage": usage}
    yield None


def scripted(turn: list[dict[str, Any]]) -> list[Step]:
    """A turn that a program in another language posted to /script."""
    return [
        (step["tool"], step["args"]) if "tool" in step else Reasoning(step["reasoning"]) if "reasoning" in step else step["text"]
        for step in turn
    ]


def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


Model = TypeVar("Model", bound=ModelServer)


@contextmanager
def model_server(make: Callable[[int], Model] = ModelServer) -> Iterator[Model]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.body())
            if self.path == "/script":
                model.play(*map(scripted, body["turns"]))
                self.send_response(204)
                self.end_headers()
                return
            model.note(body, self.headers.get("traceparent"))
            turn = model.answer(body)
            time.sleep(model.think_seconds)
            refusals = [step for step in turn if isinstance(step, Refusal)]
            begun = refusals[0] if refusals else Refusal(200, {"content-type": "text/event-stream"})
            self.send_response(begun.status)
            for name, value in begun.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # the turn was aborted
                for chunk in () if refusals else chunks(turn):
                    self.wfile.write(b"data: %b\n\n" % (json.dumps(chunk).encode() if chunk else b"[DONE]"))

    with on_loopback(Handler) as port:
        model = make(port)
        yield model
