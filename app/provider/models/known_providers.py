"""The providers that need nothing but an API key: their names, variables, adapter and address.

Ids, variables and `npm` are those of OpenCode and models.dev, so that existing configs and keys work. `prices` is the provider's
id in genai-prices. Providers that need a cloud login (Bedrock, Vertex, Azure, Copilot) are reached through `opencode.json`.
"""

from dataclasses import dataclass, field
from typing import Any

OPENAI_COMPATIBLE = "@ai-sdk/openai-compatible"
OPENAI = "@ai-sdk/openai"
ANTHROPIC = "@ai-sdk/anthropic"
GOOGLE = "@ai-sdk/google"
OPENROUTER = "@openrouter/ai-sdk-provider"
SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """`only`: a regular expression for the model ids that are listed; None for all."""

    id: str
    name: str
    env: tuple[str, ...]
    npm: str
    url: str
    prices: str
    only: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


_INTERLEAVED_THINKING = {"headers": {"anthropic-beta": "interleaved-thinking-2025-05-14"}}

_PROVIDERS = (
    KnownProvider(
        "anthropic",
        "Anthropic",
        ("ANTHROPIC_API_KEY",),
        ANTHROPIC,
        "https://api.anthropic.com/v1",
        "anthropic",
        options=_INTERLEAVED_THINKING,
    ),
    KnownProvider("openai", "OpenAI", ("OPENAI_API_KEY",), OPENAI, "https://api.openai.com/v1", "openai"),
    KnownProvider(
        "google",
        "Google",
        ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"),
        GOOGLE,
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "google",
        only="^(gemini|gemma)",
    ),
    KnownProvider("openrouter", "OpenRouter", ("OPENROUTER_API_KEY",), OPENROUTER, "https://openrouter.ai/api/v1", "openrouter"),
    KnownProvider("groq", "Groq", ("GROQ_API_KEY",), "@ai-sdk/groq", "https://api.groq.com/openai/v1", "groq"),
    KnownProvider("mistral", "Mistral", ("MISTRAL_API_KEY",), "@ai-sdk/mistral", "https://api.mistral.ai/v1", "mistral"),
    KnownProvider("deepseek", "DeepSeek", ("DEEPSEEK_API_KEY",), OPENAI_COMPATIBLE, "https://api.deepseek.com/v1", "deepseek"),
    KnownProvider("xai", "xAI", ("XAI_API_KEY",), "@ai-sdk/xai", "https://api.x.ai/v1", "x-ai"),
    KnownProvider("cerebras", "Cerebras", ("CEREBRAS_API_KEY",), "@ai-sdk/cerebras", "https://api.cerebras.ai/v1", "cerebras"),
    KnownProvider(
        "moonshotai", "Moonshot AI", ("MOONSHOT_API_KEY",), OPENAI_COMPATIBLE, "https://api.moonshot.ai/v1", "moonshotai"
    ),
    KnownProvider("zai", "Z.AI", ("ZHIPU_API_KEY",), OPENAI_COMPATIBLE, "https://api.z.ai/api/paas/v4", "zai"),
    KnownProvider(
        "zhipuai", "Zhipu AI", ("ZHIPU_API_KEY",), OPENAI_COMPATIBLE, "https://open.bigmodel.cn/api/paas/v4", "zhipuai"
    ),
    KnownProvider("minimax", "MiniMax", ("MINIMAX_API_KEY",), OPENAI_COMPATIBLE, "https://api.minimax.io/v1", "minimax"),
    KnownProvider(
        "togetherai", "Together AI", ("TOGETHER_API_KEY",), "@ai-sdk/togetherai", "https://api.together.xyz/v1", "together"
    ),
    KnownProvider(
        "fireworks-ai",
        "Fireworks AI",
        ("FIREWORKS_API_KEY",),
        OPENAI_COMPATIBLE,
        "https://api.fireworks.ai/inference/v1",
        "fireworks",
    ),
    KnownProvider(
        "perplexity", "Perplexity", ("PERPLEXITY_API_KEY",), "@ai-sdk/perplexity", "https://api.perplexity.ai", "perplexity"
    ),
    KnownProvider("cohere", "Cohere", ("COHERE_API_KEY",), "@ai-sdk/cohere", "https://api.cohere.ai/compatibility/v1", "cohere"),
    KnownProvider("novita-ai", "Novita AI", ("NOVITA_API_KEY",), OPENAI_COMPATIBLE, "https://api.novita.ai/openai", "novita"),
    KnownProvider("baseten", "Baseten", ("BASETEN_API_KEY",), OPENAI_COMPATIBLE, "https://inference.baseten.co/v1", "baseten"),
    KnownProvider(
        "ovhcloud",
        "OVHcloud AI Endpoints",
        ("OVHCLOUD_API_KEY",),
        OPENAI_COMPATIBLE,
        "https://oai.endpoints.kepler.ai.cloud.ovh.net/v1",
        "ovhcloud",
    ),
)

KNOWN_PROVIDERS: dict[str, KnownProvider] = {provider.id: provider for provider in _PROVIDERS}
