"""A file in a message, and where in the user's text it was named; a file that an editor has open."""

from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Wire


class SourceText(Wire):
    value: str
    start: int
    end: int


class Position(Wire):
    line: int
    character: int


class Range(Wire):
    start: Position
    end: Position


class FileSource(Wire):
    text: SourceText
    type: Literal["file"] = "file"
    path: str


class SymbolSource(Wire):
    text: SourceText
    type: Literal["symbol"] = "symbol"
    path: str
    range: Range
    name: str
    kind: int


class ResourceSource(Wire):
    text: SourceText
    type: Literal["resource"] = "resource"
    client_name: str
    uri: str


FilePartSource = Annotated[FileSource | SymbolSource | ResourceSource, Field(discriminator="type")]


class FileContent(Wire):
    type: Literal["file"] = "file"
    mime: str
    filename: str | None = None
    description: str | None = None
    url: str
    source: FilePartSource | None = None


class PartIdentity(Wire):
    id: str
    session_id: str
    message_id: str


class FilePart(FileContent, PartIdentity):
    pass


MOST_OF_EDITOR = 10 * 1024 * 1024


class EditorFile(Wire):
    """A file that the agent reads: what does the editor show of it?"""

    id: str
    path: str


class EditorFileText(Wire):
    """`text`: all of it; None where the editor cannot tell."""

    id: str
    text: Annotated[str, Field(max_length=MOST_OF_EDITOR)] | None = None
