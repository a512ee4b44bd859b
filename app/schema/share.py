"""What a visitor of a share link is given."""

from app.schema.base import SessionID, Wire
from app.schema.message import MessageWithParts
from app.schema.session import FileDiff, SessionSummary, SessionTime, Todo


class SharedSession(Wire):
    """What a visitor may know of a session: no directory, no project, no permission rules."""

    id: SessionID
    title: str
    version: str
    time: SessionTime
    summary: SessionSummary | None = None


class SharedConversation(Wire):
    session: SharedSession
    messages: list[MessageWithParts]
    diff: list[FileDiff]
    todo: list[Todo]
