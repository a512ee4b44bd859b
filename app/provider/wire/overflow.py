"""Whether a provider refused a request because the conversation is longer than its model takes.

No two providers say it alike and few have a code for it, so their sentences are known here; the corpus beside this module's test
holds what real servers answer, and what only looks like it.
"""

import re

_TOO_LARGE = 413
_RATE_LIMITED = 429
_MOST_READ = 8_000
"""Characters of a body: what a provider has to say stands at its start, and some send the request back behind it."""

_WINDOW = r"(?:context|prompt)[ _](?:length|window|size|limit)"
_BEYOND = r"(?:exceed\w*|longer than|greater than|fit into|too large for|maximum|max)"
_TOO_LONG = re.compile(
    "|".join(
        (
            # codes and types
            r"context_?(?:length|window|size)_?exceeded",
            r"exceed_context_size",
            r"max_prompt_tokens_exceeded",
            # the window by name, and that it is passed
            rf"{_BEYOND}\b[^.`]{{0,60}}\b{_WINDOW}",
            rf"{_WINDOW}\b[^.]{{0,40}}\b(?:exceed\w*|overflow\w*|is only|of only)",
            # the prompt, and that it is too long
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
    """413 is a request of too many bytes or tokens, for which a shorter conversation is the remedy too. A rate limit asks for
    patience, whatever else it says of tokens."""
    if status == _TOO_LARGE:
        return True
    said = f"{message}\n{(body or '')[:_MOST_READ]}"
    return status != _RATE_LIMITED and _TOO_LONG.search(said) is not None and _TOO_OFTEN.search(said) is None
