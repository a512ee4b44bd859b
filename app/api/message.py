"""Messages and parts: prompt, read, correct, remove; and requests that wait for the user: permission requests and questions."""

from typing import Annotated, NamedTuple

from fastapi import Depends, Path, Query
from fastapi.responses import Response

from app.api.deps import (
    CURSOR_PATTERN,
    NEXT_CURSOR,
    AppServices,
    Directory,
    Here,
    MessageIdPath,
    PageCursors,
    PartIdPath,
    QueuedIdPath,
    SessionIdPath,
    StoredPlace,
    UserAgent,
    Who,
    instance_of_session,
    json_bytes,
    page_size,
)
from app.api.errors import documented
from app.api.event import LoginHolds, behind_its_events, keeping_alive, waiting_with_client
from app.api.json_route import router
from app.api.roles import PROMPTS, READS, WRITES, WRITES_WHILE_STOPPING
from app.schema.message import MessageWithParts, PromptInput, QueuedPrompt
from app.schema.part import EditorFile, EditorFileText, Part
from app.schema.permission import AnswerInput, PermissionRequest, QuestionRequest, ReplyInput, RespondInput
from app.server import Server
from app.sessions.rows import PromptedSession
from app.sessions.service import check_part_is_at
from app.sessions.usage import check_part_size
from app.turn.intake.prompt_queue import QueuedPromptWait
from app.turn.intake.prompts import AcceptedPrompt
from app.workspace.instance import Instance

routes = router("/session/{sessionID}", 400, 404, tags=["message"])


@routes.get("/message", operation_id="session.messages", response_model=list[MessageWithParts], dependencies=READS)
async def messages(
    app: AppServices,
    who: Who,
    session_id: SessionIdPath,
    limit: Annotated[float | None, Query(ge=0, description="Only the newest so many; 0: all")] = None,
    before: Annotated[
        str | None, Query(pattern=CURSOR_PATTERN, description="A cursor from X-Next-Cursor: the page before it")
    ] = None,
) -> Response:
    count = page_size(limit or None, before)
    cursors = PageCursors(app, who, "before", NEXT_CURSOR)
    page = await app.store.page_json(session_id, count, None if before is None else cursors.read(before))
    return json_bytes(page.body, headers=cursors.header(page.cursor))


_PROMPT_ERRORS = documented(409, 413, 429, 507)


class PromptTarget(NamedTuple):
    prompted: PromptedSession
    instance: Instance


async def _find_target(app: AppServices, who: Who, session_id: SessionIdPath, directory: Directory) -> PromptTarget:
    """Raises NotFound, DirectoryForbidden."""
    prompted = await app.store.session_to_prompt(session_id)
    return PromptTarget(prompted, await instance_of_session(app, who, prompted.session, directory))


TargetOfPrompt = Annotated[PromptTarget, Depends(_find_target)]


@routes.post(
    "/message", operation_id="session.prompt", response_model=MessageWithParts, responses=_PROMPT_ERRORS, dependencies=PROMPTS
)
async def prompt(app: AppServices, target: TargetOfPrompt, body: PromptInput, user_agent: UserAgent = "") -> Response:
    """An invalid prompt gets an error status at once. Otherwise the body is one JSON document, which is
    complete when the turn has ended (with `noReply` at once)."""
    accepted = await _accept(app, target, body)
    if isinstance(accepted, QueuedPromptWait):
        return keeping_alive(behind_its_events(user_agent, app.queue.answer(accepted)))
    if body.no_reply:
        return json_bytes(accepted.message.wire_json())
    return keeping_alive(behind_its_events(user_agent, app.prompts.answer(target.prompted.session.id, accepted)))


@routes.post(
    "/prompt_async", operation_id="session.prompt_async", status_code=204, responses=_PROMPT_ERRORS, dependencies=PROMPTS
)
async def prompt_async(app: AppServices, target: TargetOfPrompt, body: PromptInput) -> Response:
    accepted = await _accept(app, target, body)
    if isinstance(accepted, AcceptedPrompt) and not body.no_reply:
        app.prompts.answer_later(target.prompted.session.id, accepted)
    return Response(status_code=204, media_type="application/json")


async def _accept(app: Server, target: PromptTarget, prompt: PromptInput) -> AcceptedPrompt | QueuedPromptWait:
    if prompt.when_busy == "queue":
        return await app.queue.accept(target.instance, target.prompted, prompt)
    return await app.prompts.accept(target.instance, target.prompted, prompt)


@routes.get("/queue", operation_id="session.queue", dependencies=READS)
async def queue(app: AppServices, session_id: SessionIdPath) -> list[QueuedPrompt]:
    """The prompts that wait for a turn of their own, in the order of their turns."""
    return await app.queue.list(session_id)


@routes.delete("/queue/{queuedID}", operation_id="session.dequeue", dependencies=WRITES)
async def dequeue(app: AppServices, session_id: SessionIdPath, queued_id: QueuedIdPath) -> bool:
    await app.queue.remove(session_id, queued_id)
    return True


@routes.get("/message/{messageID}", operation_id="session.message", response_model=MessageWithParts, dependencies=READS)
async def message(app: AppServices, session_id: SessionIdPath, message_id: MessageIdPath) -> Response:
    return json_bytes(await app.store.message_json(session_id, message_id))


@routes.delete("/message/{messageID}", operation_id="session.deleteMessage", responses=documented(409), dependencies=WRITES)
async def delete_message(app: AppServices, here: StoredPlace, session_id: SessionIdPath, message_id: MessageIdPath) -> bool:
    await app.sessions.remove_message(here, session_id, message_id)
    return True


@routes.patch("/message/{messageID}/part/{partID}", operation_id="part.update", responses=documented(409), dependencies=WRITES)
async def update_part(
    app: AppServices,
    here: StoredPlace,
    session_id: SessionIdPath,
    message_id: MessageIdPath,
    part_id: PartIdPath,
    body: Part,
) -> Part:
    check_part_is_at(body, session_id, message_id, part_id)
    check_part_size(body, app.settings.max_part_bytes)
    return await app.sessions.put_part(here, body)


@routes.delete("/message/{messageID}/part/{partID}", operation_id="part.delete", responses=documented(409), dependencies=WRITES)
async def delete_part(
    app: AppServices, here: StoredPlace, session_id: SessionIdPath, message_id: MessageIdPath, part_id: PartIdPath
) -> bool:
    await app.sessions.remove_part(here, session_id, message_id, part_id)
    return True


# Permission requests and questions that wait for the user.


permissions = router("", 400, tags=["permission"])
questions = router("/question", 400, tags=["question"])
editors = router("/session/{sessionID}/editor", 400, 404, tags=["session"])

RequestPath = Annotated[str, Path(alias="requestID", pattern="^per")]
PermissionPath = Annotated[str, Path(alias="permissionID", pattern="^per")]
QuestionPath = Annotated[str, Path(alias="requestID", pattern="^que")]
_LIST_ERRORS, _REPLY_ERRORS = documented(403), documented(404)


@permissions.get("/permission", operation_id="permission.list", responses=_LIST_ERRORS, dependencies=READS)
async def list_permissions(app: AppServices, who: Who, here: Here) -> list[PermissionRequest]:
    return await app.permissions.pending.all(here.directory, who.visible_owner)


@permissions.post("/permission/{requestID}/reply", responses=_REPLY_ERRORS, dependencies=WRITES_WHILE_STOPPING)
async def reply(app: AppServices, request_id: RequestPath, body: ReplyInput) -> bool:
    await app.permissions.reply(request_id, body.reply, body.message)
    return True


@permissions.post(
    "/session/{sessionID}/permissions/{permissionID}",
    deprecated=True,
    responses=_REPLY_ERRORS,
    dependencies=WRITES_WHILE_STOPPING,
)
async def respond(app: AppServices, session_id: SessionIdPath, permission_id: PermissionPath, body: RespondInput) -> bool:
    await app.permissions.reply(permission_id, body.response)
    return True


@questions.get("", operation_id="question.list", responses=_LIST_ERRORS, dependencies=READS)
async def list_questions(app: AppServices, who: Who, here: Here) -> list[QuestionRequest]:
    return await app.questions.pending.all(here.directory, who.visible_owner)


@questions.post("/{requestID}/reply", operation_id="question.reply", responses=_REPLY_ERRORS, dependencies=WRITES_WHILE_STOPPING)
async def answer(app: AppServices, request_id: QuestionPath, body: AnswerInput) -> bool:
    await app.questions.reply(request_id, body.answers)
    return True


@questions.post("/{requestID}/reject", responses=_REPLY_ERRORS, dependencies=WRITES_WHILE_STOPPING)
async def reject(app: AppServices, request_id: QuestionPath) -> bool:
    await app.questions.reject(request_id)
    return True


@editors.get("", response_model=EditorFile, dependencies=WRITES_WHILE_STOPPING)
async def editor_file(app: AppServices, session_id: SessionIdPath, login_holds: LoginHolds) -> Response:
    """Long-polls for the next file that the agent reads in the session. A client with an editor answers with its unsaved text,
    which is read instead of the stored text. If the server stops, the body is an error."""
    await app.store.session(session_id)

    async def next_file() -> bytes:
        return (await app.editor_files.next(session_id)).wire_json()

    return waiting_with_client(next_file, login_holds)


@editors.post("", dependencies=WRITES_WHILE_STOPPING)
async def editor_text(app: AppServices, session_id: SessionIdPath, body: EditorFileText) -> bool:
    """The text that the editor shows of the file. `false`: the tool no longer waits for this text."""
    await app.store.session(session_id)
    return app.editor_files.answer(session_id, body.id, body.text)
