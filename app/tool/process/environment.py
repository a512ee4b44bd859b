"""The shell and the environment of commands that the model runs, without secrets."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath

from app.util.environment import is_servers_own

UNSUITABLE_SHELLS = frozenset({"fish", "nu"})
_SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET")
_PROVIDER_PREFIXES = (
    "AI_GATEWAY_",
    "ALIBABA_",
    "ANTHROPIC_",
    "AZURE_OPENAI_",
    "BASETEN_",
    "CEREBRAS_",
    "COHERE_",
    "DASHSCOPE_",
    "DEEPINFRA_",
    "DEEPSEEK_",
    "FIREWORKS_",
    "GEMINI_",
    "GOOGLE_GENERATIVE_AI_",
    "GROQ_",
    "MISTRAL_",
    "MOONSHOT_",
    "NVIDIA_",
    "OPENAI_",
    "OPENCODE_",
    "OPENROUTER_",
    "PERPLEXITY_",
    "TOGETHER_",
    "VOYAGE_",
    "XAI_",
    "ZAI_",
    "ZHIPU_",
)


def choose_shell(environment: Mapping[str, str], which: Callable[[str], str | None] = shutil.which) -> str:
    """`$SHELL` if its syntax is that of bash; else bash; else /bin/sh."""
    preferred = environment.get("SHELL", "")
    if preferred and PurePath(preferred).name not in UNSUITABLE_SHELLS:
        return preferred
    return which("bash") or "/bin/sh"


def secret_names(names: Iterable[str], provider_names: Iterable[str] = ()) -> frozenset[str]:
    """The variables that commands must not see.

    These are `provider_names` (the variables of the connected providers); variables that start with a known provider's name and
    end in _KEY, _TOKEN or _SECRET; the server's own, such as its password. Tokens of other programs (GITHUB_TOKEN, AWS_…) stay
    visible, because commands need them.
    """
    listed = frozenset(provider_names)
    return frozenset(name for name in names if name in listed or _is_secret(name))


def _is_secret(name: str) -> bool:
    belongs_to_provider = name.startswith(_PROVIDER_PREFIXES) and name.endswith(_SECRET_SUFFIXES)
    return belongs_to_provider or is_servers_own(name)


def without_variables(environment: Mapping[str, str], hidden: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in hidden}
