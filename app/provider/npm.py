"""The packages that OpenCode's configuration and models.dev name an adapter by."""

OPENAI_COMPATIBLE = "@ai-sdk/openai-compatible"
OPENAI = "@ai-sdk/openai"
ANTHROPIC = "@ai-sdk/anthropic"
GOOGLE = "@ai-sdk/google"
OPENROUTER = "@openrouter/ai-sdk-provider"
SCRIPTED = "scripted"
