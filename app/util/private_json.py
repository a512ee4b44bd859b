"""A JSON object in a file that only its owner can read."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson

PrivateFileStamp = tuple[int, int, int]


class PrivateJson:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._path_text = str(path)

    def stamp(self) -> PrivateFileStamp | None:
        """Differs after the file is replaced; None without a file. The file is opened, because a network file system
        shows that another machine has replaced it at once then, and up to a minute later to a mere look-up."""
        if not os.access(self._path_text, os.F_OK):  # usually there is no file, and an exception costs ten times as much
            return None
        try:
            descriptor = os.open(self._path_text, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return status.st_mtime_ns, status.st_size, status.st_ino

    def read(self) -> dict[str, Any]:
        """{} for a missing or unreadable file: a damaged file must not stop the server."""
        content = self._content()
        return content if isinstance(content, dict) else {}

    @contextmanager
    def updating(self) -> Iterator[dict[str, Any]]:
        """Yields the content to be changed in place, and stores it if the block ends without an exception. Holds a lock that
        other servers and commands of the same user respect."""
        with self._locked():
            content = self.read()
            before = deepcopy(content)
            yield content
            if content != before:
                self._write(content)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, content: dict[str, Any]) -> None:
        """Replaces the file atomically. A file that cannot be read is kept as `….json.bad`.

        mkstemp creates its file with mode 0600, so that others can never read the content.
        """
        self._keep_broken_file()
        descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.stem}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps(content, option=orjson.OPT_INDENT_2))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _keep_broken_file(self) -> None:
        if self.path.exists() and not isinstance(self._content(), dict):
            self.path.replace(self.path.with_suffix(".json.bad"))

    def _content(self) -> Any:
        try:
            return orjson.loads(self.path.read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            return None
