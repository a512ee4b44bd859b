"""OpenCode's own program, as npm installs it for tests/clients: a server, a terminal client, `run`, `export` and `import`."""

from pathlib import Path

from running_server import skip_or_fail

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
    models = directory / ".cache" / "opencode" / "models.json"
    models.parent.mkdir(parents=True, exist_ok=True)
    models.write_text("{}")
    return directory
