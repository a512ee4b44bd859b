"""A session as one document, in the shape of `opencode export`: `{info, messages: [{info, parts}]}`.

Beside these two, and ignored by OpenCode: `todo`, `diff`, and the session's descendants in `children`.
"""

from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.schema.message import MessageWithParts
from app.schema.session import FileDiff, Session, Todo


class SessionHistory(Wire):
    """One session without its descendants."""

    info: Session
    messages: list[MessageWithParts]
    todo: list[Todo] = []
    diff: list[FileDiff] = []


class SessionDocument(SessionHistory):
    children: Annotated[
        list[SessionHistory], Field(description="All descendants, parents before their children; `info.parentID` makes the tree")
    ] = []

    def histories(self) -> list[SessionHistory]:
        """The session and its descendants."""
        return [self, *self.children]
