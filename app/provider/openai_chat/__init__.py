"""OpenAI's Chat Completions API, which most other providers and local servers implement."""
