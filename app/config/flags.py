"""The `OPENCODE_*` flags, read once from the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

_PREFIX = "OPENCODE_"


@dataclass(frozen=True)
class Flags:
    """Each field is `OPENCODE_<FIELD>`; `OPENCODE_DISABLE_CLAUDE_CODE` turns on both of its family. Others of OpenCode's flags
    concern what this server does not do (see docs/compatibility.md)."""

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
        env = _FlagReader(environ)
        without_claude = env.on("DISABLE_CLAUDE_CODE")
        return cls(
            server_password=env.text("SERVER_PASSWORD"),
            server_username=env.text("SERVER_USERNAME") or cls.server_username,
            config=env.text("CONFIG"),
            config_dir=env.text("CONFIG_DIR"),
            config_content=env.text("CONFIG_CONTENT"),
            permission=env.text("PERMISSION"),
            disable_project_config=env.on("DISABLE_PROJECT_CONFIG"),
            disable_autocompact=env.on("DISABLE_AUTOCOMPACT"),
            disable_prune=env.on("DISABLE_PRUNE"),
            disable_share=env.on("DISABLE_SHARE"),
            auto_share=env.on("AUTO_SHARE"),
            client=env.text("CLIENT") or cls.client,
            disable_claude_code_prompt=without_claude or env.on("DISABLE_CLAUDE_CODE_PROMPT"),
            disable_claude_code_skills=without_claude or env.on("DISABLE_CLAUDE_CODE_SKILLS"),
            disable_filetime_check=env.on("DISABLE_FILETIME_CHECK"),
            experimental_lsp_tool=env.on("EXPERIMENTAL") or env.on("EXPERIMENTAL_LSP_TOOL"),
            experimental_lsp_ty=env.on("EXPERIMENTAL_LSP_TY"),
            experimental_oxfmt=env.on("EXPERIMENTAL") or env.on("EXPERIMENTAL_OXFMT"),
            experimental_output_token_max=env.positive("EXPERIMENTAL_OUTPUT_TOKEN_MAX"),
            experimental_bash_default_timeout_ms=env.positive("EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS"),
        )


class _FlagReader:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str) -> str | None:
        return self._environ.get(_PREFIX + name) or None

    def on(self, name: str) -> bool:
        return (self.text(name) or "").lower() in ("1", "true")

    def positive(self, name: str) -> int | None:
        """A number that is not a positive whole one counts as not given, as in OpenCode."""
        text = (self.text(name) or "").strip()
        return int(text) or None if text.isascii() and text.isdigit() else None
