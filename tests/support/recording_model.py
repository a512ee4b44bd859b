"""A language model on loopback that keeps what reaches it: addresses, headers and bodies. It answers `ok` to everything."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from loopback import QuietHandler, on_loopback

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}


@dataclass
class RecordingModel:
    """`usage`: what each answer is said to have taken; `received`: the head and the body of every request, as text. `quotes`: it
    refuses every request, and says in its answer what it was sent."""

    url: str
    quotes: bool = False
    usage: dict[str, Any] = field(default_factory=lambda: dict(USAGE))
    received: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def provider(self, **options: Any) -> dict[str, Any]:
        """An entry of `opencode.json` for it, whose model `m` costs 1000 dollars a million tokens."""
        models = {"m": {"name": "M", "cost": {"input": 1000, "output": 1000}}}
        return {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": self.url, **options}, "models": models}

    def saw(self, text: str) -> bool:
        return any(text in request for request in self.received)


@contextmanager
def recording_model() -> Iterator[RecordingModel]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.body().decode()
            model.received.append(f"{self.path}\n{self.headers}\n{body}")
            model.bodies.append(json.loads(body))
            if model.quotes:
                self.quote()
            else:
                self.answer()

        def answer(self) -> None:
            choice = {"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}
            chunk = {"object": "chat.completion.chunk", "choices": [choice], "usage": model.usage}
            self.reply(b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(chunk).encode(), "text/event-stream")

        def quote(self) -> None:
            sent = f"{self.path} {dict(self.headers)}"
            said = json.dumps({"error": {"message": f"Incorrect: {sent}"}}).encode()
            self.reply(said, status=401, x_you_sent=sent)

    with on_loopback(Handler) as port:
        model = RecordingModel(f"http://127.0.0.1:{port}/v1")
        yield model
