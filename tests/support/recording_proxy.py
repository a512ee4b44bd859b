"""A proxy before a server that notes each request and how it was answered."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from loopback import QuietHandler, on_loopback

OF_THE_CONNECTION = ("connection", "transfer-encoding", "keep-alive")


@dataclass(frozen=True)
class Exchange:
    method: str
    path: str
    status: int


@dataclass
class RecordingProxy:
    """`exchanges`: in the order in which they were answered."""

    port: int
    exchanges: list[Exchange] = field(default_factory=list)

    def refused(self) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.status >= 400]

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def recording_proxy(server_port: int) -> Iterator[RecordingProxy]:
    class Handler(QuietHandler):
        def forward(self) -> None:
            body = self.body()
            server = http.client.HTTPConnection("127.0.0.1", server_port)
            with suppress(OSError, http.client.HTTPException):  # the client or the server has gone: an event stream ends so
                server.request(self.command, self.path, body or None, dict(self.headers))
                self.answer(server.getresponse())
            server.close()

        def answer(self, response: http.client.HTTPResponse) -> None:
            proxy.exchanges.append(Exchange(self.command, self.path, response.status))
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in OF_THE_CONNECTION:
                    self.send_header(name, value)
            self.end_headers()
            while chunk := response.read1():
                self.wfile.write(chunk)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = forward

    with on_loopback(Handler) as port:
        proxy = RecordingProxy(port)
        yield proxy
