"""Everything the server announces, each a class below: `{"id": …, "type": …, "properties": {…}}` on the wire.

The id is written when an event is sent, by `app.events.bus.base`.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union

import orjson
from pydantic import Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from app.schema.base import Wire
from app.schema.errors import MessageError
from app.schema.message import Message
from app.schema.part import Part
from app.schema.permission import Answer, PermissionRequest, QuestionRequest, Reply
from app.schema.project import Project
from app.schema.session import FileDiff, RevertState, Session, SessionModel, SessionStatus, Todo
from app.schema.terminal import CommandExecute, PromptAppend, Pty, SessionSelect, ToastShow
from app.util import clock


class Nothing(Wire):
    pass


class OfSession(Wire):
    session_id: str


class OfDirectory(Wire):
    directory: str


class SessionInfo(OfSession):
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


class MessageInfo(OfSession):
    info: Message


class MessageRef(OfSession):
    message_id: str


class PartRef(MessageRef):
    part_id: str


class QueueRef(OfSession):
    """`message_id`: of the prompt's message, if the client has named it."""

    queued_id: str
    message_id: str | None = None


class PartChange(OfSession):
    """`time` in epoch milliseconds."""

    part: Part
    delta: str | None = None
    time: int


class PartGain(PartRef):
    """New text of a part, for clients that asked for `parts=delta`: the first is also the first that they hear of the part."""

    part_type: str
    field: str
    delta: str


class SessionMoment(OfSession):
    """`timestamp` in epoch milliseconds."""

    timestamp: int


class SwitchedAgent(SessionMoment):
    message_id: str
    agent: str


class SwitchedModel(SessionMoment):
    message_id: str
    model: SessionModel


class StagedRevert(SessionMoment):
    revert: RevertState


class CommittedRevert(SessionMoment):
    message_id: str


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


class WorktreeName(Wire):
    name: str
    branch: str


class WorktreeFailure(Wire):
    message: str


class BranchName(Wire):
    branch: str | None = None


class RenderedEvent(NamedTuple):
    """An event whose JSON is made already."""

    type: str
    payload: bytes

    def wire_json(self) -> bytes:
        return self.payload


class AnnouncedEvent(Wire):
    """An event has a `type` and `properties`. Each direct subclass is in `AnyEvent`, with its docstring as its description."""

    type: str

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """With the id that an event has once it is published."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        described = handler.resolve_ref_schema(schema)
        described["properties"] = {"id": {"type": "string", "pattern": "^evt_", "title": "Id"}, **described["properties"]}
        described["required"] = ["id", *described.get("required", ())]
        return schema

    @classmethod
    def of_json(cls, **properties: Any) -> RenderedEvent:
        """The event of properties by their names on the wire. An `orjson.Fragment` is JSON already: a large part that was written
        once is neither read nor written again."""
        kind = cls.model_fields["type"].default
        return RenderedEvent(kind, orjson.dumps({"type": kind, "properties": properties}))

    @classmethod
    def around_info(cls, session_id: str, info: bytes) -> RenderedEvent:
        """The event of a session or message, which is JSON already."""
        return cls.of_json(sessionID=session_id, info=orjson.Fragment(info))


class EventServerConnected(AnnouncedEvent):
    """The first event of every stream."""

    type: Literal["server.connected"] = "server.connected"
    properties: Nothing = Nothing()


class EventServerHeartbeat(AnnouncedEvent):
    """Nothing has happened for a while; it keeps the connection open."""

    type: Literal["server.heartbeat"] = "server.heartbeat"
    properties: Nothing = Nothing()


class EventServerResync(AnnouncedEvent):
    """The cursor is older than the journal: read everything again."""

    type: Literal["server.resync"] = "server.resync"
    properties: Nothing = Nothing()


class EventServerInstanceDisposed(AnnouncedEvent):
    """The directory was closed: what ran there is aborted. The next request opens it anew."""

    type: Literal["server.instance.disposed"] = "server.instance.disposed"
    properties: OfDirectory


class EventGlobalDisposed(AnnouncedEvent):
    """All directories were closed, by `POST /global/dispose`."""

    type: Literal["global.disposed"] = "global.disposed"
    properties: Nothing = Nothing()


class EventProjectUpdated(AnnouncedEvent):
    """A project was found or changed: its name, icon, commands or checkouts."""

    type: Literal["project.updated"] = "project.updated"
    properties: Project


class EventVcsBranchUpdated(AnnouncedEvent):
    """Another branch is checked out than before; no name where HEAD is detached."""

    type: Literal["vcs.branch.updated"] = "vcs.branch.updated"
    properties: BranchName


class EventWorktreeReady(AnnouncedEvent):
    """The files of the worktree, which `directory` names, are there."""

    type: Literal["worktree.ready"] = "worktree.ready"
    properties: WorktreeName


class EventWorktreeFailed(AnnouncedEvent):
    """The worktree's files could not be checked out."""

    type: Literal["worktree.failed"] = "worktree.failed"
    properties: WorktreeFailure


class EventSessionCreated(AnnouncedEvent):
    """A session was created, forked or imported, or a subagent was given a task."""

    type: Literal["session.created"] = "session.created"
    properties: SessionInfo


class EventSessionUpdated(AnnouncedEvent):
    """Anything of a session has changed: its title, model, permissions, share, revert, sums or times."""

    type: Literal["session.updated"] = "session.updated"
    properties: SessionInfo


class EventSessionDeleted(AnnouncedEvent):
    """The session is gone with its messages, or for its former owner, given to another user."""

    type: Literal["session.deleted"] = "session.deleted"
    properties: SessionInfo


class EventSessionDiff(AnnouncedEvent):
    """The files that the session has changed differ from those announced before."""

    type: Literal["session.diff"] = "session.diff"
    properties: DiffOfSession


class EventSessionStatus(AnnouncedEvent):
    """The session has become busy or idle, or waits to send a request to the model again (`retry`)."""

    type: Literal["session.status"] = "session.status"
    properties: StatusOfSession


class EventSessionIdle(AnnouncedEvent):
    """The session's turn is over, and its record complete."""

    type: Literal["session.idle"] = "session.idle"
    properties: OfSession


class EventSessionCompacted(AnnouncedEvent):
    """A summary stands for the messages before it."""

    type: Literal["session.compacted"] = "session.compacted"
    properties: OfSession


class EventPromptQueued(AnnouncedEvent):
    """A prompt waits for a turn of its own (`whenBusy: "queue"`)."""

    type: Literal["prompt.queued"] = "prompt.queued"
    properties: QueueRef


class EventPromptDequeued(AnnouncedEvent):
    """The prompt's turn begins, or it was removed from the queue."""

    type: Literal["prompt.dequeued"] = "prompt.dequeued"
    properties: QueueRef


class EventSessionError(AnnouncedEvent):
    """A turn failed, a command could not be begun, a file of a prompt could not be read, or a revert could not put files back."""

    type: Literal["session.error"] = "session.error"
    properties: ErrorOfSession


class EventSessionNextAgentSwitched(AnnouncedEvent):
    """The session's agent is another one, by the second API. Only its event streams have it."""

    type: Literal["session.next.agent.switched"] = "session.next.agent.switched"
    properties: SwitchedAgent


class EventSessionNextModelSwitched(AnnouncedEvent):
    """The session's model is another one, by the second API. Only its event streams have it."""

    type: Literal["session.next.model.switched"] = "session.next.model.switched"
    properties: SwitchedModel


class EventSessionNextRevertStaged(AnnouncedEvent):
    """Files are restored and messages hidden from here on, until the revert is cleared or committed."""

    type: Literal["session.next.revert.staged"] = "session.next.revert.staged"
    properties: StagedRevert


class EventSessionNextRevertCleared(AnnouncedEvent):
    """The staged revert was undone."""

    type: Literal["session.next.revert.cleared"] = "session.next.revert.cleared"
    properties: SessionMoment


class EventSessionNextRevertCommitted(AnnouncedEvent):
    """The messages from here on are removed."""

    type: Literal["session.next.revert.committed"] = "session.next.revert.committed"
    properties: CommittedRevert


class EventMessageUpdated(AnnouncedEvent):
    """A message was stored, or anything of it but its parts has changed."""

    type: Literal["message.updated"] = "message.updated"
    properties: MessageInfo


class EventMessageRemoved(AnnouncedEvent):
    """A message is gone: it was deleted, or its revert was made final."""

    type: Literal["message.removed"] = "message.removed"
    properties: MessageRef


class EventMessagePartUpdated(AnnouncedEvent):
    """A part was stored or has changed. While the part streams, `delta` is its new text."""

    type: Literal["message.part.updated"] = "message.part.updated"
    properties: PartChange

    @classmethod
    def around_part(cls, session_id: str, part: bytes, delta: str = "") -> RenderedEvent:
        """The event of a part, which is JSON already."""
        new_text = {"delta": delta} if delta else {}
        return cls.of_json(part=orjson.Fragment(part), **new_text, sessionID=session_id, time=clock.now_ms())


class EventMessagePartDelta(AnnouncedEvent):
    """The text of a streaming part has grown. Only on streams with `parts=delta`."""

    type: Literal["message.part.delta"] = "message.part.delta"
    properties: PartGain


class EventMessagePartRemoved(AnnouncedEvent):
    """A part is gone: it was deleted, its revert was made final, or the attempt that wrote it failed."""

    type: Literal["message.part.removed"] = "message.part.removed"
    properties: PartRef


class EventPermissionAsked(AnnouncedEvent):
    """A tool call, or a client, waits for the user's permission."""

    type: Literal["permission.asked"] = "permission.asked"
    properties: PermissionRequest


class EventPermissionReplied(AnnouncedEvent):
    """A permission request was answered or withdrawn."""

    type: Literal["permission.replied"] = "permission.replied"
    properties: PermissionReply


class EventQuestionAsked(AnnouncedEvent):
    """The model has asked the user something, and waits."""

    type: Literal["question.asked"] = "question.asked"
    properties: QuestionRequest


class EventQuestionReplied(AnnouncedEvent):
    """A question was answered."""

    type: Literal["question.replied"] = "question.replied"
    properties: QuestionReply


class EventQuestionRejected(AnnouncedEvent):
    """A question was rejected or withdrawn."""

    type: Literal["question.rejected"] = "question.rejected"
    properties: QuestionRef


class EventTodoUpdated(AnnouncedEvent):
    """The model has changed the session's to-do list."""

    type: Literal["todo.updated"] = "todo.updated"
    properties: TodosOfSession


class EventCommandExecuted(AnnouncedEvent):
    """A command was run; its message is stored."""

    type: Literal["command.executed"] = "command.executed"
    properties: CommandRun


class EventFileEdited(AnnouncedEvent):
    """A tool has written a file."""

    type: Literal["file.edited"] = "file.edited"
    properties: FileRef


class EventLspUpdated(AnnouncedEvent):
    """A language server is ready, or is not any more."""

    type: Literal["lsp.updated"] = "lsp.updated"
    properties: Nothing


class DiagnosedFile(Wire):
    server_id: str
    path: str


class EventLspClientDiagnostics(AnnouncedEvent):
    """A language server has published the errors of a file, perhaps none."""

    type: Literal["lsp.client.diagnostics"] = "lsp.client.diagnostics"
    properties: DiagnosedFile


class McpServerRef(Wire):
    server: str


class EventMcpToolsChanged(AnnouncedEvent):
    """The tools of an MCP server have changed: it was connected, was closed, or says so."""

    type: Literal["mcp.tools.changed"] = "mcp.tools.changed"
    properties: McpServerRef


class McpPage(Wire):
    mcp_name: str
    url: str


class EventMcpBrowserOpenFailed(AnnouncedEvent):
    """The user is to open this page to sign in to an MCP server: this server opens no browser."""

    type: Literal["mcp.browser.open.failed"] = "mcp.browser.open.failed"
    properties: McpPage


class PtyInfo(Wire):
    info: Pty


class PtyExit(Wire):
    id: str
    exit_code: int


class PtyRef(Wire):
    id: str


class EventPtyCreated(AnnouncedEvent):
    """A terminal was made."""

    type: Literal["pty.created"] = "pty.created"
    properties: PtyInfo


class EventPtyUpdated(AnnouncedEvent):
    """A terminal has another title or size."""

    type: Literal["pty.updated"] = "pty.updated"
    properties: PtyInfo


class EventPtyExited(AnnouncedEvent):
    """The terminal's program has exited. A terminal that was made by `POST /pty` is gone then."""

    type: Literal["pty.exited"] = "pty.exited"
    properties: PtyExit


class EventPtyDeleted(AnnouncedEvent):
    """A terminal is gone."""

    type: Literal["pty.deleted"] = "pty.deleted"
    properties: PtyRef


class WebhookRef(Wire):
    """`removed`: the webhook is gone, not only switched off."""

    webhook_id: str
    url: str
    reason: str
    removed: bool = False


class EventWebhookDisabled(AnnouncedEvent):
    """The server sends this webhook nothing any more."""

    type: Literal["webhook.disabled"] = "webhook.disabled"
    properties: WebhookRef


class EventTuiPromptAppend(PromptAppend, AnnouncedEvent):
    """Terminal clients append the text to what stands in their prompt."""


class EventTuiCommandExecute(CommandExecute, AnnouncedEvent):
    """Terminal clients run a command of theirs."""


class EventTuiToastShow(ToastShow, AnnouncedEvent):
    """Terminal clients show a message for a while."""


class EventTuiSessionSelect(SessionSelect, AnnouncedEvent):
    """Terminal clients show a session."""


if TYPE_CHECKING:
    AnyEvent = AnnouncedEvent
else:
    AnyEvent = Annotated[Union[tuple(AnnouncedEvent.__subclasses__())], Field(discriminator="type")]  # noqa: UP007


class GlobalEvent(Wire):
    """An item of GET /global/event: an event and the directory it belongs to, absent for the server's own."""

    directory: str | None = None
    payload: AnyEvent
