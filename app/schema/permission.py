from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Metadata, PermissionID, SessionID, Wire

Action = Literal["allow", "deny", "ask"]
Reply = Literal["once", "always", "reject"]


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
