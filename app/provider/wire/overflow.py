"""Detects whether a provider rejected a request because the conversation exceeds the model's context window.

Providers use different sentences and few have an error code, so this module has patterns. `overflow_corpus.json` beside the test
holds answers of real servers, and answers that only look similar.
"""

import re

_TOO_LARGE = 413
_RATE_LIMITED = 429
_MOST_READ = 8_000
"""Characters of a body that are searched: the error is at its start, and some providers append the request."""

_WINDOW = r"(?:context|prompt)[ _](?:length|window|size|limit)"
_BEYOND = r"(?:exceed\w*|longer than|greater than|fit into|too large for|maximum|max)"
_TOO_LONG = re.compile(
    "|".join(
        (
            # codes and types
            r"context_?(?:length|window|size)_?exceeded",
            r"exceed_context_size",
            r"max_prompt_tokens_exceeded",
            # the window is exceeded
            rf"{_BEYOND}\b[^.`]{{0,60}}\b{_WINDOW}",
            rf"{_WINDOW}\b[^.]{{0,40}}\b(?:exceed\w*|overflow\w*|is only|of only)",
            # the prompt is too long
            r"(?:prompt|input|request|conversation)(?: \([^)]*\))? (?:is |was )?too (?:long|large)",
            r"content': string too long",
            r"input tokens? (?:count )?(?:\(\d+\) )?exceeds? the (?:maximum|configured limit)",
            r"token count of \d+ exceeds the limit",
            r"exceeded model token limit",
            r"(?:prompt|input length \d+) exceeds (?:the )?max(?:imum)? length",
            r"range of input length should be",
            r"longer than the maximum model length",
            r"`inputs` tokens \+ `max_new_tokens` must be",
            r"tokens in the prompt cannot exceed",
            r"reduce the length of the (?:messages|input|prompt)",
            r"max_tokens must be at least 1, got -\d",
            r"payload size exceeds the limit",
        )
    ),
    re.IGNORECASE,
)
_TOO_OFTEN = re.compile(r"rate.?limit|throttl|quota|per[ _]min|per[ _]day", re.IGNORECASE)


def is_context_overflow(message: str, status: int | None, body: str | None) -> bool:
    """Status 413 counts: a shorter conversation helps against too many bytes too. A rate limit never counts, even if it mentions
    tokens."""
    if status == _TOO_LARGE:
        return True
    text = f"{message}\n{(body or '')[:_MOST_READ]}"
    return status != _RATE_LIMITED and _TOO_LONG.search(text) is not None and _TOO_OFTEN.search(text) is None
