"""The `OPENCODE_*` flags, read once from the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

_PREFIX = "OPENCODE_"


@dataclass(frozen=True)
class Flags:
    """Each field is `OPENCODE_<FIELD>`; `OPENCODE_EXPERIMENTAL` and `OPENCODE_DISABLE_CLAUDE_CODE` turn on their families."""

    server_password: str | None = field(default=None, repr=False)
    server_username: str = "opencode"

    config: str | None = None
    config_dir: str | None = None
    config_content: str | None = field(default=None, repr=False)
    permission: str | None = None
    disable_project_config: bool = False

    disable_autocompact: bool = False
    disable_prune: bool = False
    disable_models_fetch: bool = False
    models_url: str | None = None
    disable_default_plugins: bool = False
    disable_lsp_download: bool = False
    disable_autoupdate: bool = False
    disable_share: bool = False
    auto_share: bool = False
    client: str = "cli"
    fake_vcs: str | None = None
    disable_claude_code: bool = False
    disable_claude_code_prompt: bool = False
    disable_claude_code_skills: bool = False
    disable_filetime_check: bool = False
    enable_exa: bool = False
    enable_experimental_models: bool = False

    experimental: bool = False
    experimental_plan_mode: bool = False
    experimental_lsp_tool: bool = False
    experimental_lsp_ty: bool = False
    experimental_oxfmt: bool = False
    experimental_icon_discovery: bool = False
    experimental_filewatcher: bool = False
    experimental_disable_filewatcher: bool = False
    experimental_output_token_max: int | None = None
    experimental_bash_default_timeout_ms: int | None = None
    test_home: str | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Flags":
        env = _Reader(environ)
        experimental = env.on("EXPERIMENTAL")
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
            disable_models_fetch=env.on("DISABLE_MODELS_FETCH"),
            models_url=env.text("MODELS_URL"),
            disable_default_plugins=env.on("DISABLE_DEFAULT_PLUGINS"),
            disable_lsp_download=env.on("DISABLE_LSP_DOWNLOAD"),
            disable_autoupdate=env.on("DISABLE_AUTOUPDATE"),
            disable_share=env.on("DISABLE_SHARE"),
            auto_share=env.on("AUTO_SHARE"),
            client=env.text("CLIENT") or cls.client,
            fake_vcs=env.text("FAKE_VCS"),
            disable_claude_code=without_claude,
            disable_claude_code_prompt=without_claude or env.on("DISABLE_CLAUDE_CODE_PROMPT"),
            disable_claude_code_skills=without_claude or env.on("DISABLE_CLAUDE_CODE_SKILLS"),
            disable_filetime_check=env.on("DISABLE_FILETIME_CHECK"),
            enable_exa=experimental or env.on("ENABLE_EXA") or env.on("EXPERIMENTAL_EXA"),
            enable_experimental_models=env.on("ENABLE_EXPERIMENTAL_MODELS"),
            experimental=experimental,
            experimental_plan_mode=experimental or env.on("EXPERIMENTAL_PLAN_MODE"),
            experimental_lsp_tool=experimental or env.on("EXPERIMENTAL_LSP_TOOL"),
            experimental_lsp_ty=env.on("EXPERIMENTAL_LSP_TY"),
            experimental_oxfmt=experimental or env.on("EXPERIMENTAL_OXFMT"),
            experimental_icon_discovery=experimental or env.on("EXPERIMENTAL_ICON_DISCOVERY"),
            experimental_filewatcher=env.on("EXPERIMENTAL_FILEWATCHER"),
            experimental_disable_filewatcher=env.on("EXPERIMENTAL_DISABLE_FILEWATCHER"),
            experimental_output_token_max=env.positive("EXPERIMENTAL_OUTPUT_TOKEN_MAX"),
            experimental_bash_default_timeout_ms=env.positive("EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS"),
            test_home=env.text("TEST_HOME"),
        )


class _Reader:
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
