"""A server on loopback that sends as much as a test wants, in any of the forms that model providers and MCP servers use."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from loopback import QuietHandler, on_loopback

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


@contextmanager
def flooding() -> Iterator[Flood]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            request = json.loads(self.body() or b"null")
            flood.encodings.append(self.headers.get("accept-encoding"))
            self.answer(request)

        def do_GET(self) -> None:
            self.answer({})

        def answer(self, request: dict[str, Any]) -> None:
            flood.asked += 1
            self.send_response(flood.status)
            for name, value in flood.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # the client has had enough
                for chunk in flood.send(request):
                    self.wfile.write(chunk)
                    flood.sent += len(chunk)

    with on_loopback(Handler) as port:
        flood = Flood(f"http://127.0.0.1:{port}")
        yield flood
