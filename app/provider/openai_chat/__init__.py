"""OpenAI's Chat Completions, which most other providers and local servers speak too."""
