"""Messages of all sessions, found by their words."""

from typing import Annotated, Literal

from fastapi import Query

from app.api.deps import AppServices, PageCursors, Who, location_of
from app.api.json_route import router
from app.api.roles import READS
from app.schema.base import SessionID
from app.schema.errors import BadRequest
from app.schema.search import FoundParts
from app.session.search import MAX_WORDS, find_parts, words_of
from app.storage.part_texts import TextFilter

routes = router("/find", 400, 403, tags=["find"])
routers = (routes,)

Milliseconds = Annotated[float | None, Query(allow_inf_nan=False)]


@routes.get("/message", operation_id="find.messages", dependencies=READS)
async def find_messages(
    app: AppServices,
    who: Who,
    query: Annotated[str, Query(max_length=1000, description="Words that must all occur in one part, whole or within others")],
    directory: Annotated[str | None, Query(description="Only sessions of exactly this directory; else of any")] = None,
    session_id: Annotated[SessionID | None, Query(alias="sessionID")] = None,
    role: Literal["user", "assistant"] | None = None,
    kind: Annotated[Literal["text", "reasoning", "tool"] | None, Query(alias="in")] = None,
    since: Annotated[Milliseconds, Query(description="Only parts that began at or after this time (ms)")] = None,
    until: Annotated[Milliseconds, Query(description="Only parts that began at or before this time (ms)")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(description="`next` of the page before")] = None,
) -> FoundParts:
    """Newest first. Case and accents are ignored."""
    words, cursors = _words(query), PageCursors(app, who, "cursor", "next")
    wanted = TextFilter(
        words=(),
        limit=limit,
        before=None if cursor is None else cursors.read(cursor),
        session_id=session_id,
        directory=None if directory is None else (await location_of(app, who, directory)).directory,
        owner=who.visible_owner,
        role=role,
        kind=kind,
        since=since,
        until=until,
    )
    results, before = await find_parts(app.store, words, wanted)
    return FoundParts(results=results, next=None if before is None else cursors.write(before))


def _words(query: str) -> list[str]:
    """Raises BadRequest."""
    words = words_of(query)
    if not words:
        raise BadRequest("query has no word to look for", ["query"], query)
    if len(words) > MAX_WORDS:
        raise BadRequest(f"query may have at most {MAX_WORDS} words", ["query"], query)
    return words
