"""The `OPENCODE_*` flags, read once from the environment."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Flags:
    """Each field is `OPENCODE_<FIELD>`; `OPENCODE_DISABLE_CLAUDE_CODE` and `OPENCODE_EXPERIMENTAL` turn on all of their families.
    OpenCode's other flags concern features that this server does not have (see docs/compatibility.md)."""

    server_password: str | None = field(default=None, repr=False)
    server_username: str = "opencode"

    config: str | None = None
    config_dir: str | None = None
    config_content: str | None = field(default=None, repr=False)
    permission: str | None = None
    disable_project_config: bool = False

    disable_autocompact: bool = False
    disable_prune: bool = False
    disable_share: bool = False
    auto_share: bool = False
    client: str = "cli"
    disable_claude_code_prompt: bool = False
    disable_claude_code_skills: bool = False
    disable_filetime_check: bool = False
    experimental_lsp_tool: bool = False
    experimental_lsp_ty: bool = False
    experimental_oxfmt: bool = False
    experimental_output_token_max: int | None = None
    experimental_bash_default_timeout_ms: int | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Flags":
        """An empty variable is none. A number that is not a positive whole one counts as not given, as in OpenCode."""
        values: dict[str, Any] = {}
        for name, declared in cls.__dataclass_fields__.items():
            text = environ.get(f"OPENCODE_{name.upper()}")
            value = _READERS[declared.type](text) if text else None
            values |= {} if value is None else {name: value}
        for family, switches in _FAMILIES.items():
            if _is_on(environ.get(f"OPENCODE_{family}", "")):
                values |= dict.fromkeys(switches, True)
        return cls(**values)


def _is_on(text: str) -> bool:
    return text.lower() in ("1", "true")


def _positive(text: str) -> int | None:
    number = text.strip()
    return int(number) or None if number.isascii() and number.isdigit() else None


_READERS: Mapping[Any, Callable[[str], Any]] = {str: str, str | None: str, bool: _is_on, int | None: _positive}
_FAMILIES = {
    "DISABLE_CLAUDE_CODE": ("disable_claude_code_prompt", "disable_claude_code_skills"),
    "EXPERIMENTAL": ("experimental_lsp_tool", "experimental_oxfmt"),
}
