"""Plugins of a user, as files in the global configuration directory."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

from git_files import put_file


class PluginFiles:
    """`put` writes a plugin; what it notes with `note(...)`, which every file has, is read back with `noted`."""

    def __init__(self, home: Path) -> None:
        self.config_dir = home / ".config" / "opencode"
        self._notes = home / "notes.jsonl"

    def put(self, name: str, source: str, folder: str = "plugin") -> Path:
        return self.put_at(self.config_dir / folder / f"{name}.py", source)

    def put_at(self, path: Path, source: str) -> Path:
        return put_file(path, _NOTE.format(notes=str(self._notes)) + dedent(source))

    def configure(self, config: dict[str, Any]) -> None:
        put_file(self.config_dir / "opencode.json", json.dumps(config))

    def noted(self, what: str) -> list[Any]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [values for name, *values in map(json.loads, lines) if name == what]


_NOTE = """
import json as _json

def note(*values):
    with open({notes!r}, "a") as file:
        file.write(_json.dumps(values) + "\\n")
"""
