"""Changes to several files that are planned in memory and then written together, or not at all."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.tool.base import ToolError
from app.tool.files import text_file
from app.tool.files.beneath import ROOT, Root, remove_folder
from app.tool.files.file_times import Stamp
from app.tool.files.text_file import TextFile


@dataclass(frozen=True, slots=True)
class _PlannedText:
    """`source`: the file on disk that gives the mode, the byte order mark and the bytes that are not UTF-8."""

    text: str
    source: TextFile | None


class FileBatch:
    """The planned state of the files. Reads see earlier changes of the batch, so that a file can change more than once."""

    def __init__(self, root_of: Callable[[Path], Root] = lambda path: ROOT) -> None:
        """`root_of`: the directory beneath which a path is opened, as in app.tool.files.beneath."""
        self.root_of = root_of
        self.originals: dict[Path, TextFile | None] = {}
        self._planned: dict[Path, _PlannedText | None] = {}

    def text(self, path: Path) -> str | None:
        content = self._content(path)
        return content.text if content else None

    def put(self, path: Path, text: str) -> None:
        content = self._content(path)
        self._planned[path] = _PlannedText(text, content.source if content else None)

    def remove(self, path: Path) -> None:
        self._content(path)
        self._planned[path] = None

    def move(self, path: Path, target: Path, text: str) -> None:
        """Raises ToolError if the target exists."""
        if self._content(target) is not None:
            raise ToolError(f"the file to move to exists already: {target}")
        source = self._content(path)
        self._planned[target] = _PlannedText(text, source.source if source else None)
        self._planned[path] = None

    def encoded(self) -> dict[Path, bytes]:
        """The bytes to write. Raises ToolError for text that cannot be encoded."""
        return {path: text_file.encode(content.text, content.source) for path, content in self._planned.items() if content}

    def new_mode(self, path: Path) -> int | None:
        content = self._planned[path]
        return content.source.mode if content and content.source else None

    def removed(self) -> list[Path]:
        return [path for path, content in self._planned.items() if content is None and self.originals[path] is not None]

    def _content(self, path: Path) -> _PlannedText | None:
        if path not in self.originals:
            original = self.originals[path] = text_file.read(path, self.root_of(path))
            self._planned[path] = _PlannedText(original.text, original) if original else None
        return self._planned[path]


def write_batch(batch: FileBatch) -> dict[Path, Stamp]:
    """Writes everything and returns the stamps of the written files. Undoes the writes and raises ToolError if one fails or a
    file has changed since it was read.
    """
    for path, original in batch.originals.items():
        text_file.require_unchanged(path, original, batch.root_of(path))
    data = batch.encoded()
    folders = _missing_folders(data)
    try:
        stamps = {
            path: text_file.write(path, content, batch.new_mode(path), batch.root_of(path)) for path, content in data.items()
        }
        for path in batch.removed():
            text_file.delete(path, batch.root_of(path))
    except BaseException as error:
        _undo(batch, folders, error)
        raise
    return stamps


def _missing_folders(paths: Iterable[Path]) -> list[Path]:
    """Directories that writing creates, deepest first."""
    missing = {parent for path in paths for parent in path.parents if not parent.exists()}
    return sorted(missing, key=lambda folder: len(folder.parts), reverse=True)


def _undo(batch: FileBatch, folders: list[Path], cause: BaseException) -> None:
    stuck = [str(path) for path, original in batch.originals.items() if not _restored(path, original, batch.root_of(path))]
    for folder in folders:
        with suppress(OSError):  # not made yet, or not empty
            remove_folder(folder, batch.root_of(folder))
    if stuck:
        raise ToolError(f"{cause}\nThese files could not be put back as they were: {', '.join(stuck)}") from cause


def _restored(path: Path, original: TextFile | None, root: Root) -> bool:
    try:
        if text_file.stamp(path, root) == (original.stamp if original else None):
            return True
        if original is None:
            text_file.delete(path, root)
        else:
            text_file.write(path, original.data(), original.mode, root)
    except NotADirectoryError:
        return True
    except (OSError, ToolError):
        return False
    return True
