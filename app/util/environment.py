"""The server's surroundings: the variables that its programs get, the XDG directories, the system's certificates.
OPENCODE_TEST_HOME replaces the home directory in tests."""

import os
import ssl
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

_NEEDED = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "SUDO_UID", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
_PREFIXES = ("XDG_", "LC_")
_SERVERS_OWN = ("OPENSESSION_", "OPENCODE_SERVER_", "OPENCODE_CONFIG_CONTENT")


def minimal(inherited: Mapping[str, str] = os.environ, also: Collection[str] = ()) -> dict[str, str]:
    return {name: value for name, value in inherited.items() if name in _NEEDED or name in also or name.startswith(_PREFIXES)}


def is_servers_own(name: str) -> bool:
    """Whether a variable is a setting of this server, as its password and its secrets are: no program gets it, and it is no
    provider's key. The server reads its settings in capitals and in small letters."""
    return name.upper().startswith(_SERVERS_OWN)


def home() -> Path:
    return Path(os.environ.get("OPENCODE_TEST_HOME") or os.path.expanduser("~"))  # noqa: PTH111  a fifth of `Path.home`


def expand_path(name: str, base: Path = Path()) -> Path:
    """A path as a configuration names it: below the home directory after `~/`, else from `base` on."""
    return home() / name[2:] if name.startswith("~/") else base / name


def _xdg(variable: str, fallback: str) -> Path:
    return Path(os.environ.get(variable) or home() / fallback)


def data_home() -> Path:
    return _xdg("XDG_DATA_HOME", ".local/share")


def state_home() -> Path:
    return _xdg("XDG_STATE_HOME", ".local/state")


def opencode_config_dir() -> Path:
    """`~/.config/opencode`: OpenCode's global configuration."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "opencode"


@cache
def system_tls() -> ssl.SSLContext:
    """Cached: loading the certificates takes tens of milliseconds."""
    import httpx2

    return httpx2.create_ssl_context()
