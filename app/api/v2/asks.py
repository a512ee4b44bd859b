"""Permission requests and questions that wait for the user, of a place or of a session; and approvals that are saved."""

from typing import Annotated

from fastapi import Path, Query

from app.api.deps import AppServices, SessionIdPath, Who
from app.api.errors import described
from app.api.roles import READS, WRITES, WRITES_WHILE_STOPPING
from app.api.v2.shapes import Data, InstanceOfSession, Located, PlaceLocation, located, router
from app.permissions.pending_requests import PendingRequest, PendingRequests, R, T
from app.permissions.service import PermissionCheck, Permissions, SavedApproval
from app.schema.base import PermissionID, Wire
from app.schema.permission import (
    Action,
    AnswerInput,
    CallRef,
    ClientPermission,
    PermissionRequest,
    PermissionV2Request,
    QuestionRequest,
    ReplyInput,
)
from app.schema.session import Session
from app.server import Server
from app.turn import hooks
from app.util import ids
from app.workspace.instance import Instance

_PERMISSIONS, _QUESTIONS = "/session/{sessionID}/permission", "/session/{sessionID}/question"
_NO_PERMISSION = ("SessionNotFoundError", "PermissionNotFoundError")
_NO_QUESTION = ("SessionNotFoundError", "QuestionNotFoundError", "ForbiddenError")
permissions = router("/permission", tags=["permission"])
session_permissions = router(_PERMISSIONS, "SessionNotFoundError", tags=["permission"])
session_permission = router(_PERMISSIONS + "/{requestID}", *_NO_PERMISSION, tags=["permission"])
questions = router("/question", "ForbiddenError", tags=["question"])
session_questions = router(_QUESTIONS, "SessionNotFoundError", tags=["question"])
session_question = router(_QUESTIONS + "/{requestID}", *_NO_QUESTION, tags=["question"])
routers = (permissions, session_permissions, session_permission, questions, session_questions, session_question)
_FORBIDDEN = described("ForbiddenError")

PermissionRequestPath = Annotated[str, Path(alias="requestID", pattern="^per")]
QuestionRequestPath = Annotated[str, Path(alias="requestID", pattern="^que")]


class PermissionEffect(Wire):
    """`ask`: the request waits for a reply."""

    id: PermissionID
    effect: Action


class PermissionSavedInfo(Wire):
    """`owner`: the user whose approval it is, on a server with users."""

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


async def _find(app: Server, session_id: str, request_id: str, pending: PendingRequests[R, T]) -> PendingRequest[R, T]:
    """Raises SessionNotFound, RequestNotPending."""
    await app.store.session(session_id)
    return await pending.find_in(session_id, request_id)


@permissions.get("/request", operation_id="v2.permission.request.list", responses=_FORBIDDEN, dependencies=READS)
async def list_permissions(app: AppServices, who: Who, here: PlaceLocation) -> Located[list[PermissionV2Request]]:
    found = await app.permissions.pending.all(here.directory, who.visible_owner)
    return located(here, list(map(PermissionV2Request.of, found)))


@permissions.get("/saved", operation_id="v2.permission.saved.list", dependencies=READS)
async def saved(
    app: AppServices, who: Who, project_id: Annotated[str | None, Query(alias="projectID")] = None
) -> Data[list[PermissionSavedInfo]]:
    """The permissions that replies of `always` have approved."""
    found = await app.permissions.saved(who.visible_owner, project_id)
    return Data(data=list(map(PermissionSavedInfo.of, found)))


@permissions.delete(
    "/saved/{id}", operation_id="v2.permission.saved.remove", status_code=204, responses=_FORBIDDEN, dependencies=WRITES
)
async def remove_saved(app: AppServices, who: Who, saved_id: Annotated[str, Path(alias="id")]) -> None:
    """Removes an approval: the permission is asked for again. An unknown approval counts as removed."""
    await app.permissions.remove_saved(who.visible_owner, saved_id)


@session_permissions.post("", operation_id="v2.session.permission.create", responses=_FORBIDDEN, dependencies=WRITES)
async def create(
    app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath, body: ClientPermission
) -> Data[PermissionEffect]:
    """Asks permission for what the client itself is about to do. The reply comes as the event `permission.v2.replied`."""
    session = await app.store.session(session_id)
    request_id, effect = await _ask(app.permissions, instance, session, body)
    return Data(data=PermissionEffect(id=request_id, effect=effect))


async def _ask(permissions: Permissions, instance: Instance, session: Session, wanted: ClientPermission) -> tuple[str, Action]:
    """Asks for a permission for a client itself. Returns the request's id and the rules' decision. Raises BadRequest for an
    unknown agent, Conflict, TooManyRequests."""
    agent = instance.agent(wanted.agent or session.agent)
    call = wanted.source
    request = PermissionRequest(
        id=wanted.id or ids.ascending("permission"),
        session_id=session.id,
        permission=wanted.action,
        patterns=wanted.resources,
        metadata=wanted.metadata,
        always=wanted.save,
        tool=CallRef(message_id=call.message_id, call_id=call.call_id) if call else None,
        unattended=True,
    )
    ruleset = [*agent.permission, *(session.permission or [])]
    decision = hooks.permission_decision(instance.extensions.hooks)
    check = PermissionCheck(instance.location, request, ruleset, plugin_decision=decision, owner=session.owner or "")
    return request.id, await permissions.ask_unattended(check)


@session_permissions.get("", operation_id="v2.session.permission.list", dependencies=READS)
async def permissions_of_session(app: AppServices, session_id: SessionIdPath) -> Data[list[PermissionV2Request]]:
    await app.store.session(session_id)
    found = await app.permissions.pending.of_session(session_id)
    return Data(data=[PermissionV2Request.of(pending.request) for pending in found])


@session_permission.get("", operation_id="v2.session.permission.get", dependencies=READS)
async def permission(app: AppServices, session_id: SessionIdPath, request_id: PermissionRequestPath) -> Data[PermissionV2Request]:
    found = await _find(app, session_id, request_id, app.permissions.pending)
    return Data(data=PermissionV2Request.of(found.request))


@session_permission.post(
    "/reply",
    operation_id="v2.session.permission.reply",
    status_code=204,
    responses=_FORBIDDEN,
    dependencies=WRITES_WHILE_STOPPING,
)
async def reply(app: AppServices, session_id: SessionIdPath, request_id: PermissionRequestPath, body: ReplyInput) -> None:
    await _find(app, session_id, request_id, app.permissions.pending)
    await app.permissions.reply(request_id, body.reply, body.message)


@questions.get("/request", operation_id="v2.question.request.list", dependencies=READS)
async def list_questions(app: AppServices, who: Who, here: PlaceLocation) -> Located[list[QuestionRequest]]:
    return located(here, list(await app.questions.pending.all(here.directory, who.visible_owner)))


@session_questions.get("", operation_id="v2.session.question.list", dependencies=READS)
async def questions_of_session(app: AppServices, session_id: SessionIdPath) -> Data[list[QuestionRequest]]:
    await app.store.session(session_id)
    return Data(data=[pending.request for pending in await app.questions.pending.of_session(session_id)])


@session_question.post("/reply", operation_id="v2.session.question.reply", status_code=204, dependencies=WRITES_WHILE_STOPPING)
async def answer(app: AppServices, session_id: SessionIdPath, request_id: QuestionRequestPath, body: AnswerInput) -> None:
    await _find(app, session_id, request_id, app.questions.pending)
    await app.questions.reply(request_id, body.answers)


@session_question.post("/reject", operation_id="v2.session.question.reject", status_code=204, dependencies=WRITES_WHILE_STOPPING)
async def reject(app: AppServices, session_id: SessionIdPath, request_id: QuestionRequestPath) -> None:
    await _find(app, session_id, request_id, app.questions.pending)
    await app.questions.reject(request_id)
