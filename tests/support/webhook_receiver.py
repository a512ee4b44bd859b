"""A real receiver of webhooks, in a thread: it verifies each request with the specification's library, and answers as told."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from loopback import QuietHandler, on_loopback
from standardwebhooks import Webhook, WebhookVerificationError

PATIENCE = 90.0
LOCATION = "http://127.0.0.1:1/elsewhere"


@dataclass(frozen=True)
class Received:
    id: str
    type: str
    data: dict[str, Any]
    body: dict[str, Any]
    path: str
    headers: dict[str, str]


@dataclass
class Receiver:
    """`secret` is what requests are verified with, once it is known. `status` of each answer, `seconds` before it."""

    url: str = ""
    secret: str = ""
    status: Callable[[Received], int] = lambda received: 204
    seconds: float = 0.0
    received: list[Received] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """The status to answer with."""
        content = json.loads(body)
        entry = Received(headers["webhook-id"], content["type"], content["data"], content, path, headers)
        if self.secret:
            try:
                assert Webhook(self.secret).verify(body, headers) == content
            except (WebhookVerificationError, AssertionError) as error:
                self.unverified.append(str(error))
                return 401
        time.sleep(self.seconds)
        status = self.status(entry)
        with self._news:
            self.received.append(entry)
            self._news.notify_all()
        return status

    def wait(self, holds: Callable[[Sequence[Received]], bool], seconds: float = PATIENCE) -> list[Received]:
        """Blocks until it holds of what was received."""
        with self._news:
            assert self._news.wait_for(lambda: holds(self.received), seconds), [each.type for each in self.received]
            return list(self.received)

    def of_type(self, kind: str) -> list[Received]:
        return [each for each in self.received if each.type == kind]


@contextmanager
def webhook_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.take(self.path, headers, self.body())
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", LOCATION)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with on_loopback(Handler) as port:
        receiver.url = f"http://127.0.0.1:{port}/hook"
        yield receiver
