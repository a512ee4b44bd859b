"""A server on loopback that sends as much as a test wants, in any of the forms that model providers and MCP servers use."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PIECE = 256 * 1024

Chunks = Iterator[bytes]


def sse(event: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(event).encode()


def repeated(piece: bytes, total: int) -> Chunks:
    """`piece` again and again, some `total` bytes of it, in pieces that a socket takes well."""
    block = piece * max(PIECE // len(piece), 1)
    for _ in range(total // len(block) + 1):
        yield block


def bomb(total: int) -> bytes:
    """Small, and `total` bytes of an event when it is unpacked."""
    return gzip.compress(b"data: " + b" " * total)


class Flood:
    """`send` makes what each request is answered with, `status` and `headers` go before."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = 200
        self.headers = {"content-type": "text/event-stream"}
        self.send: Callable[[dict[str, Any]], Chunks] = lambda request: iter(())
        self.asked = 0
        self.sent = 0
        """Bytes that were taken of all bodies, by the client or on the way to it."""
        self.encodings: list[str | None] = []

    def sends(self, chunks: Callable[[], Chunks], status: int = 200, **headers: str) -> None:
        self.send = lambda request: chunks()
        self.status = status
        self.headers = {"content-type": "text/event-stream"} | {name.replace("_", "-"): value for name, value in headers.items()}


class _Handler(BaseHTTPRequestHandler):
    flood: Flood

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"null")
        self.flood.encodings.append(self.headers.get("accept-encoding"))
        self._answer(request)

    def do_GET(self) -> None:
        self._answer({})

    def _answer(self, request: dict[str, Any]) -> None:
        self.flood.asked += 1
        self.send_response(self.flood.status)
        for name, value in self.flood.headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for chunk in self.flood.send(request):
                self.wfile.write(chunk)
                self.flood.sent += len(chunk)
        except OSError:
            pass  # the client has had enough

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


@contextmanager
def flooding() -> Iterator[Flood]:
    handler = type("Handler", (_Handler,), {})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    handler.flood = flood = Flood(f"http://127.0.0.1:{http.server_port}")  # type: ignore[attr-defined]
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield flood
    finally:
        http.shutdown()
        http.server_close()
