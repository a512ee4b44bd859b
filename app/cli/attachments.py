"""Files of the caller's machine as parts of a prompt: their content goes along, so the server need not see them."""

import base64
import mimetypes
from pathlib import Path
from typing import Any


def file_part(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    url = f"data:{(mime := _mime(path, content))};base64,{base64.b64encode(content).decode()}"
    return {"type": "file", "mime": mime, "filename": path.name, "url": url}


def _mime(path: Path, content: bytes) -> str:
    """Text is text, whatever its name: models read it."""
    guessed = mimetypes.guess_type(path.name)[0]
    if guessed and guessed.startswith(("image/", "application/pdf")):
        return guessed
    try:
        content.decode()
    except UnicodeDecodeError:
        return guessed or "application/octet-stream"
    return "text/plain"
