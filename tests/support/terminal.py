"""A program on a terminal of its own (tmux): keys go in, the screen is read."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

WAIT_SECONDS = 120
POLL_SECONDS = 0.05
COLUMNS, LINES = 150, 45


class Terminal:
    def __init__(self, tmux: list[str]) -> None:
        self._tmux = tmux

    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-t", "0").stdout

    def type(self, text: str) -> None:
        self._run("send-keys", "-t", "0", "-l", text)

    def press(self, *keys: str) -> None:
        """Keys by their tmux names: Enter, Escape, C-x."""
        self._run("send-keys", "-t", "0", *keys)

    def wait_for(self, *texts: str, without: str | None = None) -> str:
        """The first screen that shows all of `texts`, and not `without`."""
        wanted = " and ".join(map(repr, texts)) + (f" without {without!r}" if without else "")
        return self.wait_until(
            lambda screen: all(text in screen for text in texts) and (without is None or without not in screen), wanted
        )

    def wait_until(self, holds: Callable[[str], bool], wanted: str) -> str:
        deadline = time.monotonic() + WAIT_SECONDS
        while not holds(screen := self.screen()):
            if time.monotonic() > deadline:
                pytest.fail(f"The terminal did not come to show {wanted}:\n{screen}")
            time.sleep(POLL_SECONDS)
        return screen

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._tmux, *command], check=True, capture_output=True, encoding="utf-8", timeout=WAIT_SECONDS)


@contextmanager
def terminal(command: list[str], directory: Path, environment: Mapping[str, str], *, lines: int = LINES) -> Iterator[Terminal]:
    """`command` runs in `directory` until the block ends."""
    # A socket's path may have about a hundred characters: too few for pytest's directories.
    with tempfile.TemporaryDirectory(prefix="tmux") as sockets:
        tmux = ["tmux", "-u", "-f", "/dev/null", "-S", f"{sockets}/s"]
        size = ["-x", str(COLUMNS), "-y", str(lines)]
        start = [*tmux, "new-session", "-d", *size, "-c", str(directory), "--", *command]
        subprocess.run(start, env=dict(environment), check=True, capture_output=True, timeout=WAIT_SECONDS)
        try:
            yield Terminal(tmux)
        finally:
            subprocess.run([*tmux, "kill-server"], capture_output=True, timeout=WAIT_SECONDS)
