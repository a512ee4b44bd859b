"""A wire between a client and a server that a test can cut: every connection through it ends, new ones are let through. Or hold:
connections stay open and nothing comes through, until it is let go."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Cable:
    """`base` is the address to use in place of the server's."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._flows = threading.Event()
        self._flows.set()
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

    def close(self) -> None:
        self._listening.close()
        self.let_go()
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
                threading.Thread(target=_pump, args=(source, target, self._flows), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            flows.wait()
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def cable(port: int) -> Iterator[Cable]:
    laid = Cable(port)
    threading.Thread(target=laid.serve, daemon=True).start()
    try:
        yield laid
    finally:
        laid.close()
