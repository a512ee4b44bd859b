"""Finding messages by their words."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from app.schema.search import FoundPart
from app.session.searched_text import searched_text
from app.session.snippet import snippet
from app.session.store import Store
from app.storage import part_texts
from app.storage.part_texts import TextFilter
from app.storage.text_codes import encode
from app.util.folding import fold_accents

MAX_WORDS = 20


def words_of(query: str) -> list[str]:
    """Folded, each once."""
    return list(dict.fromkeys(fold_accents(query).split()))


class MessageSearch:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, words: Sequence[str], wanted: TextFilter) -> tuple[list[FoundPart], int | None]:
        """Newest first, with the sequence that the next page comes `before`; None on the last one."""
        asked = replace(wanted, words=tuple(encode(word) for word in words), limit=wanted.limit + 1)
        rows = await self._store.query(part_texts.find_texts, asked)
        page = rows[: wanted.limit]
        results = await asyncio.to_thread(lambda: [_found(row, words) for row in page])
        return results, page[-1].seq if len(rows) > wanted.limit else None


def _found(row: Any, words: Sequence[str]) -> FoundPart:
    searched = searched_text(row.body)
    text, ranges = snippet(searched.text if searched else "", words)
    return FoundPart(
        session_id=row.session_id,
        message_id=row.message_id,
        part_id=row.id,
        role=row.role,
        title=_title(row.session),
        time=row.time,
        snippet=text,
        ranges=ranges,
    )


def _title(body: str) -> str:
    """Empty for a damaged session."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    title = found.get("title") if isinstance(found, dict) else None
    return title if isinstance(title, str) else ""
