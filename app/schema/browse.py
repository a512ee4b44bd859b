"""What clients see when they look into a project: matches of a search, entries of a directory, a file, what git says of it."""

from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Wire
from app.schema.file import Range


class MatchedText(Wire):
    text: str


class Submatch(Wire):
    """`start` and `end` count bytes of the line."""

    match: MatchedText
    start: int
    end: int


class TextMatch(Wire):
    """A line, as `rg --json` reports it; `absolute_offset` is where it starts in the file, in bytes."""

    path: MatchedText
    lines: MatchedText
    line_number: Annotated[int, Field(alias="line_number")]
    absolute_offset: Annotated[int, Field(alias="absolute_offset")]
    submatches: list[Submatch]


class SymbolLocation(Wire):
    uri: str
    range: Range


class Symbol(Wire):
    name: str
    kind: int
    location: SymbolLocation


class FileNode(Wire):
    """`path` is relative to the directory that the request works in; `ignored` is git's view."""

    name: str
    path: str
    absolute: str
    type: Literal["file", "directory"]
    ignored: bool


class PatchHunk(Wire):
    """`lines` start with ` `, `-` or `+`, or say that there is no newline at the end."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: list[str]


class FilePatch(Wire):
    """A structured patch as the npm package `diff` makes it."""

    old_file_name: str
    new_file_name: str
    old_header: str | None = None
    new_header: str | None = None
    hunks: list[PatchHunk]
    index: str | None = None


class ViewedFile(Wire):
    """Text without the white space around it, or the bytes in base64. `diff` and `patch` when it differs from HEAD."""

    type: Literal["text"] = "text"
    content: str
    diff: str | None = None
    patch: FilePatch | None = None
    encoding: Literal["base64"] | None = None
    mime_type: str | None = None


class ChangedFile(Wire):
    """Against HEAD. Counts are lines, 0 for a binary file; `path` is relative to the directory that the request works in."""

    path: str
    added: int
    removed: int
    status: Literal["added", "deleted", "modified"]
