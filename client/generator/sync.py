"""The sync client, as what is left of the async one without `async` and `await`."""

import re

HEAD = "# Generated from _async/{name} by `make openapi`.\n"

REPLACED = {
    "_async": "_sync",
    "AsyncIterator": "Iterator",
    "AsyncClient": "Client",
    "StopAsyncIteration": "StopIteration",
    "AsyncEventStream": "EventStream",
    "AsyncOpensession": "Opensession",
    "AsyncPromptRun": "PromptRun",
    "aclose": "close",
    "aenter": "enter",
    "aiter_sse": "iter_sse",
    "anext": "next",
    "aread": "read",
    "asyncio": "time",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}
_NAMES = re.compile(r"\b(" + "|".join(REPLACED) + r")\b")
_KEYWORDS = re.compile(r"\b(async|await) ")


def sync_module(name: str, source: str) -> str:
    return HEAD.format(name=name) + _NAMES.sub(lambda found: REPLACED[found[1]], _KEYWORDS.sub("", source))
