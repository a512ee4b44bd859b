"""The shells of this machine."""

import os
from app.schema.terminal import PtyShell
from app.tool.process import UNSUITABLE_SHELLS
from collections.abc import Iterator
from pathlib import Path
from pathlib import PurePath


_LIST = Path("/etc/shells")
_COMMON = ("/bin/bash", "/bin/zsh", "/bin/sh")


def installed_shells() -> list[PtyShell]:
    return [
        PtyShell(path=path, name=(name := PurePath(path).name), acceptable=name not in UNSUITABLE_SHELLS)
        for path in dict.fromkeys(_listed())
        if os.access(path, os.X_OK)
    ]


def is_shell(program: str) -> bool:
    return PurePath(program).name.endswith("sh")


def _listed() -> Iterator[str]:
    try:
        lines = _LIST.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        yield from _COMMON
        return
    yield from (line for line in map(str.strip, lines) if line.startswith("/"))
