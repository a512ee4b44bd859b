"""Commands of `opensession` in a pipe, as processes."""

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forked import Forked
from running_server import clean_environment, this_checkout

SECONDS = 180


@dataclass
class Shell:
    """Where commands run, with a data directory of their own."""

    directory: Path
    home: Path
    data: Path
    environment: dict[str, str] = field(default_factory=dict)

    def started(self, *command: str, settings: Mapping[str, str] | None = None, **streams: Any) -> subprocess.Popen[str]:
        environment = self._environment(settings or {})
        return subprocess.Popen(command, cwd=self.directory, env=environment, text=True, **streams)

    def done(self, *arguments: str, piped: str = "", code: int = 0, **settings: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as streams:
            said, out, err = (Path(streams, name) for name in ("in", "out", "err"))
            said.write_text(piped)
            process = Forked(arguments, self.directory, self._environment(settings), [said, out, err])
            done = subprocess.CompletedProcess(arguments, process.wait(SECONDS), out.read_text(), err.read_text())
        assert done.returncode == code and "Traceback" not in done.stderr, done
        return done

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        told = {**this_checkout()[1], "OPENSESSION_DATA_DIR": str(self.data), **self.environment, **settings}
        return clean_environment(self.home, **told)

    def run(self, *arguments: str, piped: str = "") -> str:
        """The answer to a prompt."""
        return self.done("run", *arguments, piped=piped).stdout
