"""A wire between a client and a server that a test can cut: every connection through it ends, new ones are let through. Or hold:
connections stay open and nothing comes through, until it is let go."""

import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Literal, TypeVar


class Cable:
    """`base` is the address to use in place of the server's."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._flows = threading.Event()
        self._flows.set()
        self._lost: list[threading.Event] = []
        self.port = int(self._listening.getsockname()[1])
        self.base = f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        self._flows.clear()

    def let_go(self) -> None:
        self._flows.set()

    def lose(self) -> None:
        """Nothing comes through the connections that there are any more, and they stay open."""
        self.hold()
        self._lost.append(self._flows)
        self._flows = threading.Event()
        self._flows.set()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for flows in (self._flows, *self._lost):
            flows.set()
        self.cut()

    def serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                near.close()
                continue
            self._ends += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, target, self._flows), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                flows.wait()
                self.pass_on(data, target)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def pass_on(self, data: bytes, target: socket.socket) -> None:
        target.sendall(data)


class CommitCable(Cable):
    """Breaks the connection of a database's next COMMIT: `breaks` says whether that arrives. With `for_good` nothing
    is let through from then on."""

    breaks: Literal["before", "behind"] | None = None
    for_good = False

    def pass_on(self, data: bytes, target: socket.socket) -> None:
        breaks = self.breaks if b"COMMIT" in data else None
        if breaks is not None:
            self.hold()  # no answer comes back
        if breaks != "before":
            super().pass_on(data, target)
        if breaks is not None:
            self._break(target)

    def _break(self, far: socket.socket) -> None:
        self.breaks = None
        if self.for_good:
            self._listening.shutdown(socket.SHUT_RDWR)
            self.cut()
        else:
            at = self._ends.index(far)
            for end in self._ends[at - 1 : at + 1]:
                end.shutdown(socket.SHUT_RDWR)
        self.let_go()


class StandstillCable(Cable):
    """To the server a client seems to stand still: nothing more comes, and no answer is taken."""

    _left: int | None = None

    def hold_behind(self, count: int) -> None:
        """When so many bytes more have been let through."""
        if count:
            self._left = count
        else:
            self.hold()

    def pass_on(self, data: bytes, target: socket.socket) -> None:
        if self._left is not None and self._left <= len(data):
            first, self._left = self._left, None
            self.hold()
            super().pass_on(data[:first], target)
            self._flows.wait()
            data = data[first:]
        elif self._left is not None:
            self._left -= len(data)
        super().pass_on(data, target)


Kind = TypeVar("Kind", bound=Cable)


@contextmanager
def laid(made: Kind) -> Iterator[Kind]:
    threading.Thread(target=made.serve, daemon=True).start()
    try:
        yield made
    finally:
        made.close()


def cable(port: int) -> AbstractContextManager[Cable]:
    return laid(Cable(port))
