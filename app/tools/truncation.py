"""Truncates output that is too long for the model, and keeps the whole output in a file for a week."""

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from app.schema.config import ToolOutputConfig
from app.tools.text_file import finish_in_thread
from app.util import ids

log = logging.getLogger(__name__)

MAX_LINES = 2_000
MAX_BYTES = 50 * 1024
RETENTION_MS = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class BoundedOutput:
    """`output_path`: the file with the whole text if `truncated`."""

    text: str
    truncated: bool
    output_path: Path | None = None


class OutputStore:
    """The directory of whole outputs: one file per output, `tool_…`, readable by this user only."""

    def __init__(self, directory: Path, *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> None:
        self.directory = directory
        self._max_lines = max_lines
        self._max_bytes = max_bytes

    def within(self, limits: ToolOutputConfig) -> "OutputStore":
        """The same store with a configuration's limits, if it has some."""
        return OutputStore(
            self.directory,
            max_lines=limits.max_lines or self._max_lines,
            max_bytes=limits.max_bytes or self._max_bytes,
        )

    async def bound(self, text: str, *, may_delegate: bool) -> BoundedOutput:
        """The beginning, if the text is too long. `may_delegate`: the agent has the task tool; the hint suggests a subagent to
        search the file. Characters that UTF-8 cannot encode become `?`."""
        if len(text) <= self._max_bytes:  # a longer text cannot fit: a character has at least one byte
            data = text.encode("utf-8", "replace")
            if len(data) <= self._max_bytes and data.count(b"\n") < self._max_lines:
                return BoundedOutput(data.decode(), truncated=False)
        return await finish_in_thread(self._truncate, text, may_delegate)

    async def cleanup(self, now_ms: int) -> None:
        """Removes files older than a week at `now_ms`."""
        await asyncio.to_thread(self._remove_before, (now_ms - RETENTION_MS) / 1000)

    def _truncate(self, text: str, may_delegate: bool) -> BoundedOutput:
        data = text.encode("utf-8", "replace")
        path = self._keep(data)
        preview = _beginning(data, self._max_lines, self._max_bytes)
        return BoundedOutput(f"{preview}\n\n{_hint(path, may_delegate)}", truncated=True, output_path=path)

    def _keep(self, data: bytes) -> Path | None:
        """Returns the path; None if the file cannot be written (full disk), because the tool's result must not be lost."""
        path = self.directory / ids.ascending("tool")
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(data)
        except OSError as error:
            log.warning("the whole of a long output could not be kept: %s", error)
            with suppress(OSError):
                path.unlink()
            return None
        return path

    def _remove_before(self, limit: float) -> None:
        """Another server of this data directory may remove the same files meanwhile."""
        for path in self.directory.glob("tool_*") if self.directory.is_dir() else ():
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime < limit:
                    path.unlink()


def _beginning(data: bytes, max_lines: int, max_bytes: int) -> str:
    """Whole lines within both limits, or as much of a first line as fits; and how much is missing."""
    lines = data.split(b"\n")
    ends = accumulate(len(line) + 1 for line in lines)  # with their newlines
    kept = [line for line, end in zip(lines[:max_lines], ends, strict=False) if end <= max_bytes + 1]
    preview = b"\n".join(kept) if any(kept) else data[:max_bytes].decode("utf-8", "ignore").encode()
    at_lines = any(kept) and len(kept) == max_lines
    missing = f"{len(lines) - len(kept)} lines" if at_lines else f"{len(data) - len(preview)} bytes"
    return f"{preview.decode('utf-8', 'ignore')}\n\n...{missing} truncated..."


def _hint(path: Path | None, may_delegate: bool) -> str:
    if path is None:
        return "The output was too long, and the rest of it could not be kept. Run it again with less output if you need that."
    where = f"The output was too long; all of it is in the file {path}\n"
    if may_delegate:
        return where + (
            "Have a subagent go through that file with grep and read (use the task tool) and report what matters: "
            "reading it yourself would fill your context."
        )
    return where + "Search it with grep, or read parts of it with read's offset and limit."
