"""The XDG directories. OPENCODE_TEST_HOME replaces the home directory in tests."""

import os
from pathlib import Path


def home() -> Path:
    return Path(os.environ.get("OPENCODE_TEST_HOME") or os.path.expanduser("~"))  # noqa: PTH111  a fifth of `Path.home`


def _xdg(variable: str, fallback: str) -> Path:
    return Path(os.environ.get(variable) or home() / fallback)


def data_home() -> Path:
    return _xdg("XDG_DATA_HOME", ".local/share")


def config_home() -> Path:
    return _xdg("XDG_CONFIG_HOME", ".config")


def state_home() -> Path:
    return _xdg("XDG_STATE_HOME", ".local/state")


def opencode_config_dir() -> Path:
    """`~/.config/opencode`: OpenCode's global configuration."""
    return config_home() / "opencode"
