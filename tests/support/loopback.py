"""An HTTP server on loopback, in a thread: what model providers, collectors and receivers of the tests are made of."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def reply(self, body: bytes, content_type: str = "application/json", status: int = 200, **headers: str) -> None:
        """A whole answer. A header's `_` stands for `-`."""
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@contextmanager
def on_loopback(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serves until the block ends; the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
