"""Requests to the user: permissions, with their rules, and the model's questions."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from app.schema.base import Metadata, PermissionID, QuestionID, SessionID, Wire

Action = Literal["allow", "deny", "ask"]
Reply = Literal["once", "always", "reject"]

EDITING_TOOLS = {"edit", "write", "multiedit", "apply_patch", "patch"}
"""Tools that change the files that they name, or fail and change nothing. They share the permission `edit`, and a revert knows
their files. Not to be edited for a new tool: `Tool.__init_subclass__` adds those that say `edits_files`."""


class Rule(Wire):
    permission: str
    pattern: str
    action: Action


Ruleset = list[Rule]


class CallRef(Wire):
    """The tool call that a permission or a question was asked for."""

    message_id: str
    call_id: str


class PermissionRequest(Wire):
    id: PermissionID
    session_id: SessionID
    permission: str
    patterns: list[str]
    metadata: Metadata
    always: list[str]
    tool: CallRef | None = None
    unattended: Annotated[bool | None, Field(description="A client asked: no tool call waits for the reply")] = None


class ReplyInput(Wire):
    reply: Reply
    message: str | None = None


class RespondInput(Wire):
    """The deprecated route's body: POST /session/:id/permissions/:permissionID."""

    response: Reply


class PermissionV2Source(CallRef):
    """The tool call that needs the permission."""

    type: Literal["tool"] = "tool"


class PermissionV2Request(Wire):
    """A permission request as the second API has it."""

    id: PermissionID
    session_id: SessionID
    action: str
    resources: list[str]
    save: list[str] | None = None
    metadata: Metadata | None = None
    source: PermissionV2Source | None = None

    @classmethod
    def of(cls, request: PermissionRequest) -> "PermissionV2Request":
        call = request.tool
        return cls(
            id=request.id,
            session_id=request.session_id,
            action=request.permission,
            resources=request.patterns,
            save=request.always,
            metadata=request.metadata or None,
            source=PermissionV2Source(message_id=call.message_id, call_id=call.call_id) if call else None,
        )


class ClientPermission(Wire):
    """`resources`: what rules match. `save`: the patterns that a reply of `always` approves. `agent`: whose rules count, by
    default the session's."""

    id: PermissionID | None = None
    action: str
    resources: list[str]
    save: list[str] = []
    metadata: Metadata = {}
    source: PermissionV2Source | None = None
    agent: str | None = None


class QuestionOption(Wire):
    label: str
    description: str


class QuestionInfo(Wire):
    question: str
    header: str
    options: list[QuestionOption]
    multiple: bool | None = None
    custom: bool | None = None


class QuestionRequest(Wire):
    unattended: ClassVar[bool] = False

    id: QuestionID
    session_id: SessionID
    questions: list[QuestionInfo]
    tool: CallRef | None = None


Answer = list[str]


class AnswerInput(Wire):
    answers: list[Answer]
