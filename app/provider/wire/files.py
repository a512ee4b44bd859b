"""Files of prompts and tool results, for the adapters."""

from typing import Literal

from app.provider.base import FileBlock

Medium = Literal["image", "pdf", "audio", "video"]
_KINDS: tuple[Medium, ...] = ("image", "audio", "video")


def medium_of(file: FileBlock) -> Medium | None:
    if file.mime == "application/pdf":
        return "pdf"
    return next((kind for kind in _KINDS if file.mime.startswith(f"{kind}/")), None)


def inline(file: FileBlock) -> str | None:
    """The content of a `data:` URL, in base64; None for any other URL."""
    return file.url.partition(",")[2] if file.url.startswith("data:") else None


def unsendable(file: FileBlock) -> str:
    """The text that replaces a file that the wire format cannot carry."""
    name = file.filename or (file.url if not file.url.startswith("data:") else "a file")
    return f"[{name} ({file.mime}) was attached, but this kind of file can't be sent to the model.]"
