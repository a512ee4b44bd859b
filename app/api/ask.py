"""What waits for a person: permissions and questions."""

from typing import Annotated

from fastapi import Path
from fastapi.responses import Response

from app.api.deps import TRUE, Directory, SessionPath, documented, json_bytes, place_of
from app.api.json_route import ServerRequest, router
from app.schema.errors import NotFound
from app.schema.permission import PermissionRequest, ReplyInput, RespondInput
from app.schema.question import AnswerInput, QuestionRequest

routes = router()

RequestPath = Annotated[str, Path(alias="requestID", pattern="^per")]
PermissionPath = Annotated[str, Path(alias="permissionID", pattern="^per")]
QuestionPath = Annotated[str, Path(alias="requestID", pattern="^que")]


def _answered(found: bool, request_id: str) -> Response:
    if not found:
        raise NotFound(f"No request {request_id} is waiting: it was answered already, or its turn is over")
    return json_bytes(TRUE)


@routes.get(
    "/permission",
    operation_id="permission.list",
    response_model=list[PermissionRequest],
    tags=["permission"],
    responses=documented(400, 403),
)
async def permissions(request: ServerRequest, where: Directory) -> Response:
    return json_bytes(await request.services.permissions.pending_json((await place_of(request, where)).directory))


@routes.post(
    "/permission/{requestID}/reply",
    operation_id="permission.reply",
    response_model=bool,
    tags=["permission"],
    responses=documented(400, 404),
)
async def reply(request: ServerRequest, request_id: RequestPath, body: ReplyInput) -> Response:
    return _answered(await request.services.permissions.reply(request_id, body.reply, body.message), request_id)


@routes.post(
    "/session/{sessionID}/permissions/{permissionID}",
    operation_id="permission.respond",
    response_model=bool,
    tags=["permission"],
    deprecated=True,
    responses=documented(400, 404),
)
async def respond(request: ServerRequest, session_id: SessionPath, permission_id: PermissionPath, body: RespondInput) -> Response:
    return _answered(await request.services.permissions.reply(permission_id, body.response), permission_id)


@routes.get(
    "/question",
    operation_id="question.list",
    response_model=list[QuestionRequest],
    tags=["question"],
    responses=documented(400, 403),
)
async def questions(request: ServerRequest, where: Directory) -> Response:
    return json_bytes(await request.services.questions.pending_json((await place_of(request, where)).directory))


@routes.post(
    "/question/{requestID}/reply",
    operation_id="question.reply",
    response_model=bool,
    tags=["question"],
    responses=documented(400, 404),
)
async def answer(request: ServerRequest, request_id: QuestionPath, body: AnswerInput) -> Response:
    return _answered(await request.services.questions.reply(request_id, body.answers), request_id)


@routes.post(
    "/question/{requestID}/reject",
    operation_id="question.reject",
    response_model=bool,
    tags=["question"],
    responses=documented(400, 404),
)
async def reject(request: ServerRequest, request_id: QuestionPath) -> Response:
    return _answered(await request.services.questions.reject(request_id), request_id)
