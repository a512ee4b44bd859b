"""Everything the server announces, closed in `AnyEvent`: `{"type": …, "properties": {…}}` on the wire."""

from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Wire
from app.schema.errors import MessageError
from app.schema.message import Message
from app.schema.part import Part
from app.schema.permission import PermissionRequest, Reply
from app.schema.project import Project
from app.schema.question import Answer, QuestionRequest
from app.schema.session import FileDiff, Session, SessionStatus, Todo


class Nothing(Wire):
    pass


class OfSession(Wire):
    session_id: str


class OfDirectory(Wire):
    directory: str


class SessionInfo(Wire):
    info: Session


class DiffOfSession(OfSession):
    diff: list[FileDiff]


class StatusOfSession(OfSession):
    status: SessionStatus


class ErrorOfSession(Wire):
    session_id: str | None = None
    error: MessageError | None = None


class TodosOfSession(OfSession):
    todos: list[Todo]


class MessageInfo(Wire):
    info: Message


class MessageRef(OfSession):
    message_id: str


class PartRef(MessageRef):
    part_id: str


class PartChange(Wire):
    part: Part
    delta: str | None = None


class PartGain(PartRef):
    """What a part gained, for clients that asked for `parts=delta`: the first gain is the first that they hear of the part."""

    part_type: str
    field: str
    delta: str


class PermissionReply(OfSession):
    request_id: str
    reply: Reply


class QuestionReply(OfSession):
    request_id: str
    answers: list[Answer]


class QuestionRef(OfSession):
    request_id: str


class CommandRun(OfSession):
    name: str
    arguments: str
    message_id: str


class FileRef(Wire):
    file: str


class BranchName(Wire):
    branch: str | None = None


class EventServerConnected(Wire):
    type: Literal["server.connected"] = "server.connected"
    properties: Nothing = Nothing()


class EventServerHeartbeat(Wire):
    type: Literal["server.heartbeat"] = "server.heartbeat"
    properties: Nothing = Nothing()


class EventServerResync(Wire):
    """The cursor is older than the journal: read everything again."""

    type: Literal["server.resync"] = "server.resync"
    properties: Nothing = Nothing()


class EventServerInstanceDisposed(Wire):
    type: Literal["server.instance.disposed"] = "server.instance.disposed"
    properties: OfDirectory


class EventGlobalDisposed(Wire):
    type: Literal["global.disposed"] = "global.disposed"
    properties: Nothing = Nothing()


class EventProjectUpdated(Wire):
    type: Literal["project.updated"] = "project.updated"
    properties: Project


class EventVcsBranchUpdated(Wire):
    type: Literal["vcs.branch.updated"] = "vcs.branch.updated"
    properties: BranchName


class EventSessionCreated(Wire):
    type: Literal["session.created"] = "session.created"
    properties: SessionInfo


class EventSessionUpdated(Wire):
    type: Literal["session.updated"] = "session.updated"
    properties: SessionInfo


class EventSessionDeleted(Wire):
    type: Literal["session.deleted"] = "session.deleted"
    properties: SessionInfo


class EventSessionDiff(Wire):
    type: Literal["session.diff"] = "session.diff"
    properties: DiffOfSession


class EventSessionStatus(Wire):
    type: Literal["session.status"] = "session.status"
    properties: StatusOfSession


class EventSessionIdle(Wire):
    type: Literal["session.idle"] = "session.idle"
    properties: OfSession


class EventSessionCompacted(Wire):
    type: Literal["session.compacted"] = "session.compacted"
    properties: OfSession


class EventSessionError(Wire):
    type: Literal["session.error"] = "session.error"
    properties: ErrorOfSession


class EventMessageUpdated(Wire):
    type: Literal["message.updated"] = "message.updated"
    properties: MessageInfo


class EventMessageRemoved(Wire):
    type: Literal["message.removed"] = "message.removed"
    properties: MessageRef


class EventMessagePartUpdated(Wire):
    type: Literal["message.part.updated"] = "message.part.updated"
    properties: PartChange


class EventMessagePartDelta(Wire):
    type: Literal["message.part.delta"] = "message.part.delta"
    properties: PartGain


class EventMessagePartRemoved(Wire):
    type: Literal["message.part.removed"] = "message.part.removed"
    properties: PartRef


class EventPermissionAsked(Wire):
    type: Literal["permission.asked"] = "permission.asked"
    properties: PermissionRequest


class EventPermissionReplied(Wire):
    type: Literal["permission.replied"] = "permission.replied"
    properties: PermissionReply


class EventQuestionAsked(Wire):
    type: Literal["question.asked"] = "question.asked"
    properties: QuestionRequest


class EventQuestionReplied(Wire):
    type: Literal["question.replied"] = "question.replied"
    properties: QuestionReply


class EventQuestionRejected(Wire):
    type: Literal["question.rejected"] = "question.rejected"
    properties: QuestionRef


class EventTodoUpdated(Wire):
    type: Literal["todo.updated"] = "todo.updated"
    properties: TodosOfSession


class EventCommandExecuted(Wire):
    type: Literal["command.executed"] = "command.executed"
    properties: CommandRun


class EventFileEdited(Wire):
    type: Literal["file.edited"] = "file.edited"
    properties: FileRef


class McpServerRef(Wire):
    server: str


class EventMcpToolsChanged(Wire):
    type: Literal["mcp.tools.changed"] = "mcp.tools.changed"
    properties: McpServerRef


class McpPage(Wire):
    mcp_name: str
    url: str


class EventMcpBrowserOpenFailed(Wire):
    type: Literal["mcp.browser.open.failed"] = "mcp.browser.open.failed"
    properties: McpPage


AnyEvent = Annotated[
    EventServerConnected
    | EventServerHeartbeat
    | EventServerResync
    | EventServerInstanceDisposed
    | EventGlobalDisposed
    | EventProjectUpdated
    | EventVcsBranchUpdated
    | EventSessionCreated
    | EventSessionUpdated
    | EventSessionDeleted
    | EventSessionDiff
    | EventSessionStatus
    | EventSessionIdle
    | EventSessionCompacted
    | EventSessionError
    | EventMessageUpdated
    | EventMessageRemoved
    | EventMessagePartUpdated
    | EventMessagePartDelta
    | EventMessagePartRemoved
    | EventPermissionAsked
    | EventPermissionReplied
    | EventQuestionAsked
    | EventQuestionReplied
    | EventQuestionRejected
    | EventTodoUpdated
    | EventCommandExecuted
    | EventFileEdited
    | EventMcpToolsChanged
    | EventMcpBrowserOpenFailed,
    Field(discriminator="type"),
]


class GlobalEvent(Wire):
    """An item of GET /global/event: an event and the directory it belongs to, absent for the server's own."""

    directory: str | None = None
    payload: AnyEvent


def frame(event_type: str, properties: bytes) -> bytes:
    """An event's JSON around properties that are JSON already."""
    return b'{"type":"%b","properties":%b}' % (event_type.encode(), properties)
