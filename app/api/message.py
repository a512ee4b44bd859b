"""Messages and parts: prompt, read, correct, remove."""

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from app.api.cursors import CURSOR_PATTERN, NEXT_CURSOR, PageCursors, page_size
from app.api.deps import (
    TRUE,
    Directory,
    MessageIdPath,
    PartIdPath,
    QueuedIdPath,
    SessionIdPath,
    UserAgent,
    documented,
    instance_of_session,
    json_bytes,
    session_location,
    wire,
)
from app.api.json_route import ServerRequest, router
from app.api.keepalive_json import KeepaliveJson
from app.api.opencode_programs import behind_its_events
from app.intake.prompt_queue import Waiting
from app.intake.prompts import AcceptedPrompt
from app.schema.message import MessageWithParts, PromptInput, QueuedPrompt
from app.schema.part import Part
from app.session.rows import json_array
from app.session.service import check_part_is_at, check_part_size

routes = router(prefix="/session/{sessionID}", tags=["message"])


@routes.get("/message", operation_id="session.messages", response_model=list[MessageWithParts], responses=documented(400, 404))
async def messages(
    request: ServerRequest,
    session_id: SessionIdPath,
    limit: Annotated[float | None, Query(ge=0, description="Only the newest so many; 0: all")] = None,
    before: Annotated[
        str | None, Query(pattern=CURSOR_PATTERN, description="A cursor from X-Next-Cursor: the page before it")
    ] = None,
) -> Response:
    count = page_size(limit or None, before)
    cursors = PageCursors(request, "before", NEXT_CURSOR)
    page = await request.services.sessions.store.page_json(session_id, count, None if before is None else cursors.read(before))
    return json_bytes(page.body, headers=cursors.header(page.cursor))


@routes.post(
    "/message", operation_id="session.prompt", response_model=MessageWithParts, responses=documented(400, 404, 409, 413, 429, 507)
)
async def prompt(
    request: ServerRequest, where: Directory, session_id: SessionIdPath, body: PromptInput, user_agent: UserAgent = ""
) -> Response:
    """What is wrong with the prompt is answered at once; the answer itself is one JSON document that may take its time."""
    runs = request.services.runs
    accepted = await _accept(request, where, session_id, body)
    if isinstance(accepted, Waiting):
        return KeepaliveJson(behind_its_events(user_agent, runs.queue.answer(accepted)))
    if body.no_reply:
        return wire(accepted.message)
    return KeepaliveJson(behind_its_events(user_agent, runs.prompts.answer(session_id, accepted)))


@routes.post(
    "/prompt_async", operation_id="session.prompt_async", status_code=204, responses=documented(400, 404, 409, 413, 429, 507)
)
async def prompt_async(request: ServerRequest, where: Directory, session_id: SessionIdPath, body: PromptInput) -> Response:
    accepted = await _accept(request, where, session_id, body)
    if isinstance(accepted, AcceptedPrompt) and not body.no_reply:
        request.services.runs.prompts.answer_later(session_id, accepted)
    return Response(status_code=204, media_type="application/json")


async def _accept(request: ServerRequest, where: Directory, session_id: str, prompt: PromptInput) -> AcceptedPrompt | Waiting:
    prompted = await request.services.sessions.store.session_to_prompt(session_id)
    instance, runs = await instance_of_session(request, prompted.session, where), request.services.runs
    if prompt.when_busy == "queue":
        return await runs.queue.accept(instance, prompted, prompt)
    return await runs.prompts.accept(instance, prompted, prompt)


@routes.get("/queue", operation_id="session.queue", response_model=list[QueuedPrompt], responses=documented(400, 404))
async def queue(request: ServerRequest, session_id: SessionIdPath) -> Response:
    """The prompts that wait for a turn of their own, in the order of their turns."""
    return json_bytes(json_array([queued.wire_json() for queued in await request.services.runs.queue.list(session_id)]))


@routes.delete("/queue/{queuedID}", operation_id="session.dequeue", response_model=bool, responses=documented(400, 404))
async def dequeue(request: ServerRequest, session_id: SessionIdPath, queued_id: QueuedIdPath) -> Response:
    await request.services.runs.queue.remove(session_id, queued_id)
    return json_bytes(TRUE)


@routes.get(
    "/message/{messageID}", operation_id="session.message", response_model=MessageWithParts, responses=documented(400, 404)
)
async def message(request: ServerRequest, session_id: SessionIdPath, message_id: MessageIdPath) -> Response:
    return json_bytes(await request.services.sessions.store.message_json(session_id, message_id))


@routes.delete(
    "/message/{messageID}", operation_id="session.deleteMessage", response_model=bool, responses=documented(400, 404, 409)
)
async def delete_message(
    request: ServerRequest, where: Directory, session_id: SessionIdPath, message_id: MessageIdPath
) -> Response:
    location = await session_location(request, session_id, where)
    await request.services.sessions.service.remove_message(location, session_id, message_id)
    return json_bytes(TRUE)


@routes.patch(
    "/message/{messageID}/part/{partID}", operation_id="part.update", response_model=Part, responses=documented(400, 404, 409)
)
async def update_part(
    request: ServerRequest,
    where: Directory,
    session_id: SessionIdPath,
    message_id: MessageIdPath,
    part_id: PartIdPath,
    body: Part,
) -> Response:
    check_part_is_at(body, session_id, message_id, part_id)
    check_part_size(body, request.services.settings.max_part_bytes)
    return wire(await request.services.sessions.service.put_part(await session_location(request, session_id, where), body))


@routes.delete(
    "/message/{messageID}/part/{partID}", operation_id="part.delete", response_model=bool, responses=documented(400, 404, 409)
)
async def delete_part(
    request: ServerRequest, where: Directory, session_id: SessionIdPath, message_id: MessageIdPath, part_id: PartIdPath
) -> Response:
    location = await session_location(request, session_id, where)
    await request.services.sessions.service.remove_part(location, session_id, message_id, part_id)
    return json_bytes(TRUE)
