"""Permission requests and questions that wait for the user."""

from typing import Annotated

from fastapi import Path
from fastapi.responses import Response

from app.api.deps import TRUE, Directory, SessionIdPath, documented, json_bytes, location_of
from app.api.json_route import ServerRequest, router
from app.schema.permission import PermissionRequest, ReplyInput, RespondInput
from app.schema.question import AnswerInput, QuestionRequest

routes = router()

RequestPath = Annotated[str, Path(alias="requestID", pattern="^per")]
PermissionPath = Annotated[str, Path(alias="permissionID", pattern="^per")]
QuestionPath = Annotated[str, Path(alias="requestID", pattern="^que")]


@routes.get(
    "/permission",
    operation_id="permission.list",
    response_model=list[PermissionRequest],
    tags=["permission"],
    responses=documented(400, 403),
)
async def permissions(request: ServerRequest, where: Directory) -> Response:
    directory = (await location_of(request, where)).directory
    return json_bytes(await request.services.pending.permissions.pending_json(directory, request.principal.visible_owner))


@routes.post(
    "/permission/{requestID}/reply",
    operation_id="permission.reply",
    response_model=bool,
    tags=["permission"],
    responses=documented(400, 404),
)
async def reply(request: ServerRequest, request_id: RequestPath, body: ReplyInput) -> Response:
    await request.services.pending.permissions.reply(request_id, body.reply, body.message)
    return json_bytes(TRUE)


@routes.post(
    "/session/{sessionID}/permissions/{permissionID}",
    operation_id="permission.respond",
    response_model=bool,
    tags=["permission"],
    deprecated=True,
    responses=documented(400, 404),
)
async def respond(
    request: ServerRequest, session_id: SessionIdPath, permission_id: PermissionPath, body: RespondInput
) -> Response:
    await request.services.pending.permissions.reply(permission_id, body.response)
    return json_bytes(TRUE)


@routes.get(
    "/question",
    operation_id="question.list",
    response_model=list[QuestionRequest],
    tags=["question"],
    responses=documented(400, 403),
)
async def questions(request: ServerRequest, where: Directory) -> Response:
    directory = (await location_of(request, where)).directory
    return json_bytes(await request.services.pending.questions.pending_json(directory, request.principal.visible_owner))


@routes.post(
    "/question/{requestID}/reply",
    operation_id="question.reply",
    response_model=bool,
    tags=["question"],
    responses=documented(400, 404),
)
async def answer(request: ServerRequest, request_id: QuestionPath, body: AnswerInput) -> Response:
    await request.services.pending.questions.reply(request_id, body.answers)
    return json_bytes(TRUE)


@routes.post(
    "/question/{requestID}/reject",
    operation_id="question.reject",
    response_model=bool,
    tags=["question"],
    responses=documented(400, 404),
)
async def reject(request: ServerRequest, request_id: QuestionPath) -> Response:
    await request.services.pending.questions.reject(request_id)
    return json_bytes(TRUE)
