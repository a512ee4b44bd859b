"""Opens a file that a prompt attaches, and reads it if it is to be embedded."""

import os
import stat
from pathlib import Path

from app.schema.errors import BadRequest
from app.util.project_files import DirectoryReplaced, path_of
from app.workspace.instance import Instance

MAX_EMBEDDED_BYTES = 20 * 1024 * 1024


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
