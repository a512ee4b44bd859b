"""Files as parts of a prompt."""

import base64
import mimetypes
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from opensession_client.models import FilePartInput


def attached_file(path: str | Path, mime: str | None = None) -> FilePartInput:
    """A file of this machine, sent with the prompt. Without `mime` a text is sent as text, whatever its name."""
    file = Path(path)
    content = file.read_bytes()
    kind = mime or _kind(file.name, content)
    return FilePartInput(mime=kind, filename=file.name, url=f"data:{kind};base64,{base64.b64encode(content).decode()}")


def _kind(name: str, content: bytes) -> str:
    """Models are sent the content of `text/plain`; of other types only what they take, such as images."""
    guessed = mimetypes.guess_type(name)[0]
    if guessed and guessed.startswith(("image/", "application/pdf")):
        return guessed
    try:
        content.decode()
    except UnicodeDecodeError:
        return guessed or "application/octet-stream"
    return "text/plain"


def server_file(path: str, lines: tuple[int, int] | None = None, mime: str = "text/plain") -> FilePartInput:
    """A file that the server reads, by its absolute path there. `lines`: the first and the last to be read, from 1."""
    selection = f"?start={lines[0]}&end={lines[1]}" if lines else ""
    return FilePartInput(mime=mime, filename=PurePosixPath(path).name, url=f"file://{quote(path)}{selection}")
