"""Permission requests and questions that wait for the user, of a place or of a session; and approvals that are saved."""

from typing import Annotated

from fastapi import Path, Query
from fastapi.responses import Response

from app.api.deps import SessionIdPath, session_instance
from app.api.json_route import ServerRequest
from app.api.v2.answers import Data, Located, data, data_list, located_list, no_content, router
from app.api.v2.errors import (
    ForbiddenError,
    PermissionNotFoundError,
    QuestionNotFoundError,
    SessionNotFoundError,
    described,
)
from app.api.v2.place import Place, place_of
from app.intake.client_permission import ClientPermission, ask
from app.pending.requests import PendingRequest, PendingRequests, R, T
from app.permission.saved import SavedApproval
from app.schema.base import PermissionID, Wire
from app.schema.permission import Action, PermissionV2Request, ReplyInput
from app.schema.question import AnswerInput, QuestionRequest

routes = router()

PermissionRequestPath = Annotated[str, Path(alias="requestID", pattern="^per")]
QuestionRequestPath = Annotated[str, Path(alias="requestID", pattern="^que")]


class PermissionEffect(Wire):
    """`ask`: the request waits for a reply."""

    id: PermissionID
    effect: Action


class PermissionSavedInfo(Wire):
    """`owner`: whose it is, on a server with users."""

    id: str
    project_id: str
    action: str
    resource: str
    owner: str | None = None

    @classmethod
    def of(cls, saved: SavedApproval) -> "PermissionSavedInfo":
        return cls(
            id=saved.id,
            project_id=saved.project_id,
            action=saved.permission,
            resource=saved.pattern,
            owner=saved.owner or None,
        )


async def _find(request: ServerRequest, session_id: str, request_id: str, pending: PendingRequests[R, T]) -> PendingRequest[R, T]:
    """Raises SessionNotFound, RequestNotPending."""
    await request.services.sessions.store.session(session_id)
    return await pending.find_in(session_id, request_id)


# Permissions.


@routes.get(
    "/permission/request",
    operation_id="v2.permission.request.list",
    response_model=Located[list[PermissionV2Request]],
    tags=["permission"],
    responses=described(ForbiddenError),
)
async def permissions(request: ServerRequest, place: Place) -> Response:
    location, pending = await place_of(request, place), request.services.pending.permissions.pending
    found = await pending.all(location.directory, request.principal.visible_owner)
    return located_list(location, map(PermissionV2Request.of, found))


@routes.get(
    "/permission/saved",
    operation_id="v2.permission.saved.list",
    response_model=Data[list[PermissionSavedInfo]],
    tags=["permission"],
    responses=described(),
)
async def saved(request: ServerRequest, project_id: Annotated[str | None, Query(alias="projectID")] = None) -> Response:
    """What replies of `always` have approved."""
    found = await request.services.pending.permissions.saved.all(request.principal.visible_owner, project_id)
    return data_list(map(PermissionSavedInfo.of, found))


@routes.delete(
    "/permission/saved/{id}",
    operation_id="v2.permission.saved.remove",
    status_code=204,
    response_model=None,
    tags=["permission"],
    responses=described(ForbiddenError),
)
async def remove_saved(request: ServerRequest, saved_id: Annotated[str, Path(alias="id")]) -> Response:
    """It is asked for again. One that is not there is gone already."""
    await request.services.pending.permissions.saved.remove(request.principal.visible_owner, saved_id)
    return no_content()


@routes.post(
    "/session/{sessionID}/permission",
    operation_id="v2.session.permission.create",
    response_model=Data[PermissionEffect],
    tags=["permission"],
    responses=described(ForbiddenError, SessionNotFoundError),
)
async def create(request: ServerRequest, session_id: SessionIdPath, body: ClientPermission) -> Response:
    """For what a client is about to do itself. The reply comes as the event `permission.v2.replied`."""
    session = await request.services.sessions.store.session(session_id)
    instance = await session_instance(request, session_id, None)
    request_id, effect = await ask(request.services.pending.permissions, instance, session, body)
    return data(PermissionEffect(id=request_id, effect=effect).wire_json())


@routes.get(
    "/session/{sessionID}/permission",
    operation_id="v2.session.permission.list",
    response_model=Data[list[PermissionV2Request]],
    tags=["permission"],
    responses=described(SessionNotFoundError),
)
async def session_permissions(request: ServerRequest, session_id: SessionIdPath) -> Response:
    await request.services.sessions.store.session(session_id)
    found = await request.services.pending.permissions.pending.of_session(session_id)
    return data_list(PermissionV2Request.of(pending.request) for pending in found)


@routes.get(
    "/session/{sessionID}/permission/{requestID}",
    operation_id="v2.session.permission.get",
    response_model=Data[PermissionV2Request],
    tags=["permission"],
    responses=described(SessionNotFoundError, PermissionNotFoundError),
)
async def permission(request: ServerRequest, session_id: SessionIdPath, request_id: PermissionRequestPath) -> Response:
    pending = await _find(request, session_id, request_id, request.services.pending.permissions.pending)
    return data(PermissionV2Request.of(pending.request).wire_json())


@routes.post(
    "/session/{sessionID}/permission/{requestID}/reply",
    operation_id="v2.session.permission.reply",
    status_code=204,
    response_model=None,
    tags=["permission"],
    responses=described(ForbiddenError, SessionNotFoundError, PermissionNotFoundError),
)
async def reply(
    request: ServerRequest, session_id: SessionIdPath, request_id: PermissionRequestPath, body: ReplyInput
) -> Response:
    permissions = request.services.pending.permissions
    await _find(request, session_id, request_id, permissions.pending)
    await permissions.reply(request_id, body.reply, body.message)
    return no_content()


# Questions.


@routes.get(
    "/question/request",
    operation_id="v2.question.request.list",
    response_model=Located[list[QuestionRequest]],
    tags=["question"],
    responses=described(ForbiddenError),
)
async def questions(request: ServerRequest, place: Place) -> Response:
    location, pending = await place_of(request, place), request.services.pending.questions.pending
    return located_list(location, await pending.all(location.directory, request.principal.visible_owner))


@routes.get(
    "/session/{sessionID}/question",
    operation_id="v2.session.question.list",
    response_model=Data[list[QuestionRequest]],
    tags=["question"],
    responses=described(SessionNotFoundError),
)
async def session_questions(request: ServerRequest, session_id: SessionIdPath) -> Response:
    await request.services.sessions.store.session(session_id)
    found = await request.services.pending.questions.pending.of_session(session_id)
    return data_list(pending.request for pending in found)


@routes.post(
    "/session/{sessionID}/question/{requestID}/reply",
    operation_id="v2.session.question.reply",
    status_code=204,
    response_model=None,
    tags=["question"],
    responses=described(ForbiddenError, SessionNotFoundError, QuestionNotFoundError),
)
async def answer(
    request: ServerRequest, session_id: SessionIdPath, request_id: QuestionRequestPath, body: AnswerInput
) -> Response:
    questions = request.services.pending.questions
    await _find(request, session_id, request_id, questions.pending)
    await questions.reply(request_id, body.answers)
    return no_content()


@routes.post(
    "/session/{sessionID}/question/{requestID}/reject",
    operation_id="v2.session.question.reject",
    status_code=204,
    response_model=None,
    tags=["question"],
    responses=described(ForbiddenError, SessionNotFoundError, QuestionNotFoundError),
)
async def reject(request: ServerRequest, session_id: SessionIdPath, request_id: QuestionRequestPath) -> Response:
    questions = request.services.pending.questions
    await _find(request, session_id, request_id, questions.pending)
    await questions.reject(request_id)
    return no_content()
