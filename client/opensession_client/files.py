"""Files as parts of a prompt."""

import base64
import mimetypes
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from opensession_client.models import FilePartInput


def attached_file(path: str | Path, mime: str | None = None) -> FilePartInput:
    """A file of this machine, sent with the prompt. `mime` is guessed from its name; what is not known counts as text."""
    file = Path(path)
    kind = mime or mimetypes.guess_type(file.name)[0] or "text/plain"
    content = base64.b64encode(file.read_bytes()).decode()
    return FilePartInput(mime=kind, filename=file.name, url=f"data:{kind};base64,{content}")


def server_file(path: str, lines: tuple[int, int] | None = None, mime: str = "text/plain") -> FilePartInput:
    """A file that the server reads, by its absolute path there. `lines`: the first and the last to be read, from 1."""
    selection = f"?start={lines[0]}&end={lines[1]}" if lines else ""
    return FilePartInput(mime=mime, filename=PurePosixPath(path).name, url=f"file://{quote(path)}{selection}")
