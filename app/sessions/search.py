"""Finding messages by their words."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

from app.record.tables import parsed
from app.record.text_search import JOINED, TextFilter, find_texts, fold
from app.schema.session import FoundPart
from app.sessions.rows import encode, searched_text
from app.sessions.store import Store

MAX_WORDS = 20

_JOINED, _CLUSTER = re.compile(JOINED), re.compile(f".{JOINED}*", re.DOTALL)


def words_of(query: str) -> list[str]:
    """The query's words, folded, each once."""
    return list(dict.fromkeys(fold(query).split()))


async def find_parts(store: Store, words: Sequence[str], wanted: TextFilter) -> tuple[list[FoundPart], int | None]:
    """Newest first, with the cursor (`before`) of the next page; None on the last page."""
    asked = replace(wanted, words=tuple(encode(word) for word in words), limit=wanted.limit + 1)
    found = await store.query(lambda connection: [(_found_part(row, words), row.seq) for row in find_texts(connection, asked)])
    page = found[: wanted.limit]
    return [part for part, _ in page], page[-1][1] if len(found) > wanted.limit else None


def _found_part(row: Any, words: Sequence[str]) -> FoundPart:
    searched = searched_text(row.body)
    text, ranges = snippet(searched.text if searched else "", words)
    return FoundPart(
        session_id=row.session_id,
        message_id=row.message_id,
        part_id=row.id,
        role=row.role,
        title=str((parsed(row.session) or {}).get("title", "")),
        time=row.time,
        snippet=text,
        ranges=ranges,
    )


BEFORE, LENGTH = 60, 240
"""Characters of a snippet: before the first word, and in all."""
MAX_OCCURRENCES = 500
"""The number of occurrences among which the best place is looked for."""


Occurrence = tuple[int, int, str]
"""[start, end) in the text, and the folded word."""
_GAP = re.compile(r"[ \n]")


def _folded(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The folded text, and the span of the text that each of its characters comes from; no spans if they have the same
    positions."""
    folded = fold(text)
    if len(folded) == len(text) and not _JOINED.search(text):
        return folded, []
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    for cluster in _CLUSTER.finditer(text):
        piece = fold(cluster[0])
        pieces.append(piece)
        spans += [cluster.span()] * len(piece)
    return "".join(pieces), spans


def _occurrences(text: str, words: Sequence[str]) -> Iterator[Occurrence]:
    """In their order; of several that begin at one place the longest. They are found by `find`, in the time of reading the text:
    a pattern compares all words at each place, and lets no other thread run meanwhile."""
    folded, spans = _folded(text)
    begun = -1
    for start, word in merge(*(_places(folded, word) for word in sorted(words, key=len, reverse=True)), key=itemgetter(0)):
        if start != begun:
            begun, end = start, start + len(word)
            yield (spans[start][0], spans[end - 1][1], word) if spans else (start, end, word)


def _places(text: str, word: str) -> Iterator[tuple[int, str]]:
    at = text.find(word)
    while at >= 0:
        yield at, word
        at = text.find(word, at + 1)


def snippet(text: str, words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """`words` are folded. The ranges count UTF-16 code units from the snippet's start."""
    found = list(islice(_occurrences(text, words), MAX_OCCURRENCES))
    start = _start(text, _best(found) if found else 0)
    piece = text[start : start + LENGTH]
    spans = _merged(found, start, start + len(piece))
    return piece, [(_units(piece[:at]), _units(piece[:until])) for at, until in spans]


def _best(found: Sequence[Occurrence]) -> int:
    """The earliest place where the most words are near each other."""

    def words_from(index: int) -> int:
        start = found[index][0]
        near = (word for at, end, word in found[index : index + LENGTH] if end <= start + LENGTH - BEFORE)
        return len(set(near))

    return found[max(range(len(found)), key=lambda index: (words_from(index), -index))][0]


def _start(text: str, first: int) -> int:
    """The snippet's start: the beginning of a word before `first`, if there is one."""
    if first <= BEFORE:
        return 0
    start = first - BEFORE
    gap = _GAP.search(text, start - 1, first)
    return gap.end() if gap else start


def _merged(found: Sequence[Occurrence], start: int, end: int) -> list[tuple[int, int]]:
    """The ranges from `start` on, in order and without overlaps; without those that the `end` cuts off."""
    spans: list[tuple[int, int]] = []
    for at, until, _ in found:
        if at < start or until > end:
            continue
        if spans and at - start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], until - start))
        else:
            spans.append((at - start, until - start))
    return spans


def _units(text: str) -> int:
    """UTF-16 code units."""
    return len(text) + sum(character > "\uffff" for character in text)
