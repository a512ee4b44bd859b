"""A language model on loopback that keeps what reaches it: addresses, headers and bodies. It answers `ok` to everything."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            model.received.append(f"{self.path}\n{self.headers}\n{body}")
            model.bodies.append(json.loads(body))
            if model.quotes:
                self.quote()
            else:
                self.answer()

        def answer(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            choice = {"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}
            chunk = {"object": "chat.completion.chunk", "choices": [choice], "usage": model.usage}
            self.wfile.write(b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(chunk).encode())

        def quote(self) -> None:
            sent = f"{self.path} {dict(self.headers)}"
            said = json.dumps({"error": {"message": f"Incorrect: {sent}"}}).encode()
            self.send_response(401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.send_header("x-you-sent", sent)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    model = RecordingModel(f"http://127.0.0.1:{http.server_port}/v1")
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield model
    finally:
        http.shutdown()
        http.server_close()
