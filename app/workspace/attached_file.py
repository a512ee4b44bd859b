"""What the URL of a file part says: lines of a file, or a text; and the file that it names, opened and read."""

import base64
import os
import stat
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, unquote_to_bytes, urlsplit

from app.schema.errors import BadRequest
from app.util.project_files import DirectoryReplaced, path_of
from app.workspace.instance import Instance

MAX_EMBEDDED_BYTES = 20 * 1024 * 1024


def split_url(url: str) -> SplitResult:
    """Raises BadRequest."""
    try:
        split = urlsplit(url)
    except ValueError as error:
        raise BadRequest(f"The url of a file part cannot be read: {error}", ["parts", "url"], url) from error
    if not split.scheme:
        raise BadRequest("The url of a file part needs a scheme, as file:///path has", ["parts", "url"], url)
    return split


def line_range(query: str) -> tuple[int | None, int | None]:
    """`start=2&end=3` (lines from 1, both included) → (lines to skip, lines to read)."""
    values = parse_qs(query)
    start, end = (_line_number(values.get(name, [""])[0]) for name in ("start", "end"))
    if start is None:
        return None, None
    offset = max(start - 1, 0)
    return offset, None if end is None else max(end - offset, 1)


def _line_number(text: str) -> int | None:
    """No file has a line with a longer number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def data_text(url: str) -> str:
    """The text of a `data:` URL. Raises BadRequest for broken base64."""
    head, _, payload = url.partition(",")
    raw = unquote_to_bytes(payload)
    if not head.endswith(";base64"):
        return raw.decode("utf-8", "replace")
    standard = raw.translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(standard + b"=" * (-len(standard) % 4)).decode("utf-8", "replace")
    except ValueError as error:
        raise BadRequest(f"The data of a file part is not base64: {error}", ["parts", "url"], url) from error


def read_attached(instance: Instance, path: Path, url: str, embeds: bool) -> tuple[os.stat_result, bytes]:
    """Checks the path of the open file, because its name may lead elsewhere each time. Raises BadRequest if the file is not the
    user's or cannot be attached. The bytes are those of a file that is embedded."""
    try:
        _require_visible(instance, path, path, url)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)  # a FIFO would wait for a writer
    except (OSError, ValueError) as error:
        raise BadRequest(f"There is no file {path} that can be read: {error}", ["parts"], url) from error
    try:
        _require_visible(instance, path, path_of(descriptor), url)
        _require_in_place(instance, url)
        status = os.fstat(descriptor)
        data = _read_bounded(descriptor, path) if embeds and not stat.S_ISDIR(status.st_mode) else b""
        return status, data
    finally:
        os.close(descriptor)


def _require_visible(instance: Instance, path: Path, place: Path | str, url: str) -> None:
    if instance.hides(place):
        raise BadRequest(f"{path} is outside the directories that you may work in", ["parts"], url)


def _require_in_place(instance: Instance, url: str) -> None:
    """Raises BadRequest if another directory has taken the project's place since the work began."""
    for directory in instance.sandbox_workspace.directories():
        if not directory.is_in_place():
            raise BadRequest(f"{directory.path}: {DirectoryReplaced(directory.path).strerror}", ["parts"], url)


def _read_bounded(descriptor: int, path: Path) -> bytes:
    """Raises BadRequest for a file that cannot be embedded: too big, not regular, or not readable."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise BadRequest(f"{path} is not a regular file", ["parts"])
    try:
        with open(descriptor, "rb", closefd=False) as opened:
            data = opened.read(MAX_EMBEDDED_BYTES + 1) or b""
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}", ["parts"]) from error
    if len(data) > MAX_EMBEDDED_BYTES:
        raise BadRequest(f"{path} is larger than {MAX_EMBEDDED_BYTES // 2**20} MiB and cannot be attached", ["parts"])
    return data
