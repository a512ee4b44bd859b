"""Commands of `opensession` in a pipe, as processes."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running_server import clean_environment, this_checkout

SECONDS = 180


@dataclass
class Shell:
    """Where commands run, with a data directory of their own."""

    directory: Path
    home: Path
    data: Path
    environment: dict[str, str] = field(default_factory=dict)

    def started(self, *arguments: str, settings: dict[str, str] | None = None, **streams: Any) -> subprocess.Popen[str]:
        told = {"OPENSESSION_DATA_DIR": str(self.data), **self.environment, **(settings or {})}
        environment = clean_environment(self.home, **this_checkout()[1], **told)
        command = [sys.executable, "-m", "app.cli", *arguments]
        return subprocess.Popen(command, cwd=self.directory, env=environment, text=True, **streams)

    def done(self, *arguments: str, piped: str | None = None, code: int = 0, **settings: str) -> subprocess.CompletedProcess[str]:
        streams = {"stdin": subprocess.DEVNULL if piped is None else subprocess.PIPE}
        streams |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.started(*arguments, settings=settings, **streams) as process:
            out, err = process.communicate(piped, timeout=SECONDS)
        assert process.returncode == code and "Traceback" not in err, (process.returncode, out, err)
        return subprocess.CompletedProcess(arguments, code, out, err)

    def run(self, *arguments: str, piped: str | None = None) -> str:
        """The answer to a prompt."""
        return self.done("run", *arguments, piped=piped).stdout
