"""The four states of a tool call: pending → running → completed | error."""

from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Metadata, Wire
from app.schema.file import FilePart


class Started(Wire):
    start: int


class Ended(Started):
    end: int


class CompletedTime(Ended):
    compacted: int | None = None


class Pending(Wire):
    sent_back = True

    status: Literal["pending"] = "pending"
    input: Metadata = {}
    raw: str = ""


class Running(Wire):
    status: Literal["running"] = "running"
    input: Metadata
    title: str | None = None
    metadata: Metadata | None = None
    time: Started


class Completed(Wire):
    status: Literal["completed"] = "completed"
    input: Metadata
    output: str
    title: str
    metadata: Metadata
    time: CompletedTime
    attachments: list[FilePart] | None = None


class Failed(Wire):
    status: Literal["error"] = "error"
    input: Metadata
    error: str
    metadata: Metadata | None = None
    time: Ended


ToolState = Annotated[Pending | Running | Completed | Failed, Field(discriminator="status")]
