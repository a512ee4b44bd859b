"""What a search looks at: the text of a part, as people and models wrote it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.storage.bodies import parsed
from app.util.folding import fold

Kind = Literal["text", "reasoning", "tool"]

MAX_CHARACTERS = 100_000
"""Of one part. What comes after them is not found."""


@dataclass(frozen=True, slots=True)
class SearchedText:
    """`time`: when it began, in milliseconds; None where the part does not say."""

    kind: Kind
    text: str
    time: int | None


def searched_text(body: str) -> SearchedText | None:
    """Of a part that is stored in full. None where there is nothing to find: in files, in what the server wrote itself, in a
    tool call that has not ended."""
    part = parsed(body) or {}
    read = _READERS.get(part.get("type", ""))
    found = read(part) if read else None
    return found if found and found.text.strip() else None


def text_row(part: Mapping[str, Any], created: int) -> dict[str, Any] | None:
    """A row of the index for a row of a part; `created` is its time where it has none of its own."""
    found = searched_text(part["body"])
    if found is None:
        return None
    ids = {"of_session": part["session_id"], "of_message": part["message_id"], "of_part": part["id"]}
    return {**ids, "kind": found.kind, "time": found.time or created, "text": encode(found.text)}


def created_time(message_body: str) -> int:
    """When a message was made, in milliseconds; 0 where it is damaged."""
    span = (parsed(message_body) or {}).get("time")
    created = span.get("created") if isinstance(span, dict) else None
    return int(created) if isinstance(created, int | float) else 0


def _text(part: Mapping[str, Any]) -> SearchedText | None:
    if part.get("synthetic") or part.get("ignored"):
        return None
    return _found("text", [part.get("text")], part)


def _subtask(part: Mapping[str, Any]) -> SearchedText:
    return _found("text", [part.get("description"), part.get("prompt")], part)


def _reasoning(part: Mapping[str, Any]) -> SearchedText:
    return _found("reasoning", [part.get("text")], part)


def _tool(part: Mapping[str, Any]) -> SearchedText | None:
    state = part.get("state")
    if not isinstance(state, dict) or state.get("status") not in ("completed", "error"):
        return None
    return _found("tool", [state.get("title"), *_strings(state.get("input")), state.get("output"), state.get("error")], state)


_READERS = {"text": _text, "subtask": _subtask, "reasoning": _reasoning, "tool": _tool}


def _found(kind: Kind, texts: list[Any], timed: Mapping[str, Any]) -> SearchedText:
    span = timed.get("time")
    start = span.get("start") if isinstance(span, dict) else None
    text = "\n".join(text for text in texts if isinstance(text, str) and text)
    return SearchedText(kind, text[:MAX_CHARACTERS], int(start) if isinstance(start, int | float) else None)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


_FIRST, _LAST = 0x3040, 0x9FFF
"""Kana and the ideographs in common use."""
_HEADS, _TAILS = "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ"
"""A code begins with one of the first and goes on with three of the others, so none is found across two others."""


class _Codes(dict[int, str | int]):
    def __missing__(self, point: int) -> str | int:
        self[point] = code = _code(point - _FIRST) if _FIRST <= point <= _LAST else point
        return code


def _code(number: int) -> str:
    number, last = divmod(number, 20)
    number, third = divmod(number, 20)
    head, second = divmod(number, 20)
    return _HEADS[head] + _TAILS[second] + _TAILS[third] + _TAILS[last]


_CODES = _Codes()


def encode(text: str) -> str:
    """What the search index holds of a text, and of a word that is looked for.

    Both indexes, SQLite's trigrams and PostgreSQL's pg_trgm, know sequences of three characters; in Chinese and Japanese words of
    one and two are usual, and pg_trgm knows letters beyond ASCII only where the database's locale does. So each of these
    characters becomes four ASCII letters, in capitals, which folded text does not have: a word is found in a text if and only if
    its code is."""
    folded = fold(text)
    return folded if folded.isascii() else folded.translate(_CODES)
