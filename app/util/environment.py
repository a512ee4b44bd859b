"""The environment variables for programs that the server runs for itself (git, rg): only what they need, so no credentials."""

import os
from collections.abc import Mapping

_NEEDED = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "SUDO_UID", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
_PREFIXES = ("XDG_", "LC_")
_SERVERS_OWN = ("OPENSESSION_", "OPENCODE_SERVER_", "OPENCODE_CONFIG_CONTENT")


def minimal(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {name: value for name, value in inherited.items() if name in _NEEDED or name.startswith(_PREFIXES)}


def is_servers_own(name: str) -> bool:
    """Whether a variable is a setting of this server, as its password and its secrets are: nobody else gets it, and it is
    nobody's key. The server reads its settings in capitals and in small letters."""
    return name.upper().startswith(_SERVERS_OWN)
