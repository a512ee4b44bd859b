"""Detects the type of a file from its name and first bytes."""

from pathlib import Path

SNIFFED_BYTES = 4096
_UNPRINTABLE_SHARE = 0.3

# fmt: off
_BINARY_SUFFIXES = frozenset(
    (
        "zip", "tar", "gz", "exe", "dll", "so", "class", "jar", "war", "7z", "doc", "docx", "xls", "xlsx",
        "ppt", "pptx", "odt", "ods", "odp", "bin", "dat", "obj", "o", "a", "lib", "wasm", "pyc", "pyo",
    )
)
# fmt: on
_ATTACHED = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "ico": "image/x-icon",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "avif": "image/avif",
    "heic": "image/heic",
    "pdf": "application/pdf",
}
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}
_UNPRINTABLE = bytes(range(9)) + bytes(range(14, 32))


def attachment_mime(path: Path, head: bytes) -> str | None:
    """The MIME type of an image or PDF; None for anything else. The first bytes take precedence over the name: providers reject a
    conversation with a wrongly labelled image.
    """
    by_name = _ATTACHED.get(_suffix(path))
    return (_by_signature(head) or by_name) if by_name else None


def is_binary(path: Path, head: bytes) -> bool:
    if _suffix(path) in _BINARY_SUFFIXES or b"\0" in head:
        return True
    unprintable = len(head) - len(head.translate(None, _UNPRINTABLE))
    return unprintable > _UNPRINTABLE_SHARE * len(head)


def _suffix(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")


def _by_signature(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for start, mime in _SIGNATURES.items() if head.startswith(start)), None)
