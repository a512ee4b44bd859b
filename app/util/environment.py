"""The environment variables for programs that the server runs for itself (git, rg): only what they need, so no credentials."""

import os
from collections.abc import Mapping

_NEEDED = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "SUDO_UID", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
_PREFIXES = ("XDG_", "LC_")


def minimal(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {name: value for name, value in inherited.items() if name in _NEEDED or name.startswith(_PREFIXES)}
