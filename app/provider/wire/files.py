"""Files of prompts and tool results, for the adapters."""

from dataclasses import dataclass
from typing import Literal

from app.provider.base import FileBlock

FileKind = Literal["image", "pdf", "audio", "other"]


def file_kind(file: FileBlock) -> FileKind:
    if file.mime == "application/pdf":
        return "pdf"
    if file.mime.startswith("image/"):
        return "image"
    return "audio" if file.mime.startswith("audio/") else "other"


@dataclass(frozen=True, slots=True)
class InlineFile:
    mime: str
    base64: str


def inline(file: FileBlock) -> InlineFile | None:
    """The content of a `data:` URL; None for any other URL."""
    if not file.url.startswith("data:"):
        return None
    return InlineFile(file.mime, file.url.partition(",")[2])


def unsendable(file: FileBlock) -> str:
    """The text that replaces a file that the wire format cannot carry."""
    name = file.filename or (file.url if not file.url.startswith("data:") else "a file")
    return f"[{name} ({file.mime}) was attached, but this kind of file can't be sent to the model.]"
