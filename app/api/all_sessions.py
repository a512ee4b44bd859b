"""The sessions of all directories that a client may work in."""

import asyncio
import os
from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from app.api.access import may_enter
from app.api.cursors import NEXT_CURSOR, page_size
from app.api.deps import AppServices, Who, json_bytes
from app.api.json_route import router
from app.api.roles import READS
from app.api.services import Services
from app.schema.session import GlobalSession
from app.storage.repositories import session_rows
from app.storage.repositories.session_rows import SessionFilter
from app.users.principal import Principal

routes = router("/experimental", 400, tags=["session"])


@routes.get("/session", operation_id="experimental.session.list", response_model=list[GlobalSession], dependencies=READS)
async def list_all_sessions(
    app: AppServices,
    who: Who,
    directory: Annotated[str | None, Query(description="Only sessions of exactly this directory")] = None,
    roots: Annotated[bool, Query(description="Only sessions without a parent")] = False,
    start: Annotated[float | None, Query(description="Only sessions updated at or after this time (ms)")] = None,
    cursor: Annotated[float | None, Query(description="From X-Next-Cursor: only sessions updated before this time (ms)")] = None,
    search: Annotated[str | None, Query(max_length=2000, description="Part of the title, whatever its case")] = None,
    limit: Annotated[float, Query(ge=0, description="How many, newest updated first; more of one millisecond")] = 100,
    archived: Annotated[bool, Query(description="Archived ones too")] = False,
) -> Response:
    wanted = SessionFilter(
        directories=await _directories(app, who, directory),
        roots_only=roots,
        updated_since=start,
        updated_before=cursor,
        search=search,
        archived=archived,
        owner=who.visible_owner,
    )
    page = await app.sessions.page_of_all(wanted, page_size(limit, None) or 100)
    return json_bytes(page.body, headers=None if page.cursor is None else {NEXT_CURSOR: str(page.cursor)})


async def _directories(app: Services, who: Principal, directory: str | None) -> list[str] | None:
    """Those that the client may work in and wants to see; None for all of them."""
    stored = session_rows.directories_of_sessions
    known = await app.store.query(stored, who.visible_owner) if directory is None else [directory]
    real = await asyncio.to_thread(lambda: list(map(os.path.realpath, known)))
    allowed = [each for each, without_links in zip(known, real, strict=True) if may_enter(app, who, without_links)]
    return None if directory is None and len(allowed) == len(known) else allowed
