"""Permission requests and questions that wait for the user, and files that wait for an editor."""

from typing import Annotated

from fastapi import Path
from fastapi.responses import Response

from app.api.deps import AppServices, Here, SessionIdPath, Who, json_bytes
from app.api.documented import documented
from app.api.json_route import router
from app.api.long_answers import waiting_with_client
from app.api.roles import ANSWERS, READS
from app.schema.file import EditorFile, EditorFileText
from app.schema.permission import PermissionRequest, ReplyInput, RespondInput
from app.schema.question import AnswerInput, QuestionRequest

permissions = router("", 400, tags=["permission"])
questions = router("/question", 400, tags=["question"])
editors = router("/session/{sessionID}/editor", 400, 404, tags=["session"])

RequestPath = Annotated[str, Path(alias="requestID", pattern="^per")]
PermissionPath = Annotated[str, Path(alias="permissionID", pattern="^per")]
QuestionPath = Annotated[str, Path(alias="requestID", pattern="^que")]
_LISTED, _ANSWERED = documented(403), documented(404)


@permissions.get(
    "/permission",
    operation_id="permission.list",
    response_model=list[PermissionRequest],
    responses=_LISTED,
    dependencies=READS,
)
async def list_permissions(app: AppServices, who: Who, here: Here) -> Response:
    return json_bytes(await app.permissions.pending_json(here.directory, who.visible_owner))


@permissions.post("/permission/{requestID}/reply", responses=_ANSWERED, dependencies=ANSWERS)
async def reply(app: AppServices, request_id: RequestPath, body: ReplyInput) -> bool:
    await app.permissions.reply(request_id, body.reply, body.message)
    return True


@permissions.post("/session/{sessionID}/permissions/{permissionID}", deprecated=True, responses=_ANSWERED, dependencies=ANSWERS)
async def respond(app: AppServices, session_id: SessionIdPath, permission_id: PermissionPath, body: RespondInput) -> bool:
    await app.permissions.reply(permission_id, body.response)
    return True


@questions.get("", operation_id="question.list", response_model=list[QuestionRequest], responses=_LISTED, dependencies=READS)
async def list_questions(app: AppServices, who: Who, here: Here) -> Response:
    return json_bytes(await app.questions.pending_json(here.directory, who.visible_owner))


@questions.post("/{requestID}/reply", operation_id="question.reply", responses=_ANSWERED, dependencies=ANSWERS)
async def answer(app: AppServices, request_id: QuestionPath, body: AnswerInput) -> bool:
    await app.questions.reply(request_id, body.answers)
    return True


@questions.post("/{requestID}/reject", responses=_ANSWERED, dependencies=ANSWERS)
async def reject(app: AppServices, request_id: QuestionPath) -> bool:
    await app.questions.reject(request_id)
    return True


@editors.get("", response_model=EditorFile, dependencies=ANSWERS)
async def editor_file(app: AppServices, session_id: SessionIdPath) -> Response:
    """The next file that the agent reads in the session, waited for: for clients with an editor, whose unsaved text is read then
    instead of what is stored. A server that stops ends the wait with an error."""
    await app.store.session(session_id)

    async def next_file() -> bytes:
        return (await app.editor_files.next(session_id)).wire_json()

    return waiting_with_client(next_file)


@editors.post("", dependencies=ANSWERS)
async def editor_text(app: AppServices, session_id: SessionIdPath, body: EditorFileText) -> bool:
    """What the editor shows of it. `false`: nobody waits for that any more."""
    await app.store.session(session_id)
    return app.editor_files.answer(session_id, body.id, body.text)
