"""OpenCode's own program, as npm installs it for tests/clients: a server, a terminal client, `run`, `export` and `import`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from git_files import put_file
from model_server import ModelServer
from running_server import RunningServer, clean_environment, needed, skip_or_fail, this_checkout
from terminal import Terminal, terminal

OLDER, NEWER = "1.1.34", "1.18.33"
_PACKAGES = {OLDER: "opencode-linux-x64", NEWER: "opencode-linux-x64-newer"}
VERSIONS = tuple(_PACKAGES)

OFFLINE = {
    f"OPENCODE_DISABLE_{what}": "1"
    for what in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "TERMINAL_TITLE")
}


def installed(node_modules: Path, version: str = NEWER) -> Path:
    """Without it the test is skipped, on CI it fails."""
    program = node_modules / "node_modules" / _PACKAGES[version] / "bin" / "opencode"
    if not program.exists():
        skip_or_fail("OpenCode's program is not there: npm installs it for Linux on x86-64 only")
    return program


def offline_home(directory: Path) -> Path:
    """A home directory where it finds a list of models, and so fetches none. It empties its cache when it starts for the first
    time."""
    put_file(directory / ".cache" / "opencode" / "models.json", "{}")
    return directory


@contextmanager
def attached(program: Path, server: RunningServer, home: Path) -> Iterator[Terminal]:
    """A terminal client of a server, at its prompt."""
    needed("tmux")
    environment = clean_environment(offline_home(home), TERM="xterm-256color", LC_ALL="C.UTF-8", **OFFLINE)
    with terminal([str(program), "attach", server.base], server.workspace, environment) as opened:
        opened.wait_for("Ask anything")
        yield opened


def asking(model: ModelServer, **config: Any) -> dict[str, str]:
    """What has this checkout's server ask a model, beside what it needs."""
    content = json.dumps({**model.config(), **config})
    return {**this_checkout()[1], "OPENCODE_CONFIG_CONTENT": content, "SHELL": "/bin/sh"}
