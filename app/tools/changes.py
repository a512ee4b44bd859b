"""Changes to files by the tools. Begin at FileEditor: it checks changes, asks permission with a diff, writes them together and
formats. Behind it, the errors of language servers as texts."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from app.record.postgres import Locks
from app.schema.project import FileErrors
from app.tools import text_file, unsaved
from app.tools.base import ToolContext, ToolError, ToolPermission
from app.tools.boundary import project_of, relative_name, require_in_place, root_of
from app.tools.diff import FileDelta, compare
from app.tools.text_file import FileTimes, Stamp, TextFile, hold_all
from app.util.beneath import ROOT, Root, remove_folder

Requirement = Literal["exists and was read", "was read if it exists", "nothing"]
ChangeType = Literal["add", "update", "move", "delete"]
MAX_ERRORS = 20
MAX_OTHER_FILES = 5
Errors = Mapping[Path, FileErrors]


@dataclass(frozen=True, slots=True)
class FileChange:
    """`before`, `after`: the texts as JSON takes them, empty where there is no file."""

    type: ChangeType
    path: Path
    move_path: Path | None
    before: str
    after: str
    delta: FileDelta

    @classmethod
    def of(cls, type: ChangeType, path: Path, before: str, after: str, move_path: Path | None = None) -> Self:
        before, after = text_file.json_text(before), text_file.json_text(after)
        return cls(type, path, move_path, before, after, compare(str(path), before, after))

    @property
    def result_path(self) -> Path:
        return self.move_path or self.path

    def formatted(self, file: TextFile) -> Self:
        """The change with the text that formatters have made of its own."""
        after = text_file.json_text(file.text)
        return self if after == self.after else replace(self, after=after, delta=compare(str(self.path), self.before, after))

    def filediff(self) -> dict[str, Any]:
        """OpenCode's FileDiff with an absolute path: newer clients read the patch, older ones both texts."""
        return {
            "file": str(self.path),
            "before": self.before,
            "after": self.after,
            "patch": self.delta.text,
            "additions": self.delta.additions,
            "deletions": self.delta.deletions,
        }

    def edit_metadata(self, format_errors: Mapping[str, str]) -> dict[str, Any]:
        failed = format_metadata(format_errors)
        return {"diagnostics": {}, "diff": self.delta.text, "filediff": self.filediff(), **failed}


@dataclass(frozen=True, slots=True)
class _PlannedText:
    """`source`: the file on disk that gives the mode, the byte order mark and the bytes that are not UTF-8. `data`: the bytes to
    write."""

    text: str
    source: TextFile | None
    data: bytes


class FileBatch:
    """The planned state of the files. Reads see earlier changes of the batch, so that a file can change more than once."""

    def __init__(self, root_of: Callable[[Path], Root] = lambda path: ROOT) -> None:
        """`root_of`: the directory beneath which a path is opened, as in app.tools.text_file."""
        self.root_of = root_of
        self.originals: dict[Path, TextFile | None] = {}
        self._planned: dict[Path, _PlannedText | None] = {}

    def text(self, path: Path) -> str | None:
        content = self._content(path)
        return content.text if content else None

    def put(self, path: Path, text: str) -> None:
        """Raises ToolError for text that cannot be encoded, and for a file that is read-only."""
        content = self._content(path)
        self._plan(path, text, content.source if content else None)

    def remove(self, path: Path) -> None:
        self._content(path)
        self._planned[path] = None

    def move(self, path: Path, target: Path, text: str) -> None:
        """Raises ToolError as `put` does, and if the target exists."""
        if self._content(target) is not None:
            raise ToolError(f"the file to move to exists already: {target}")
        source = self._content(path)
        self._plan(target, text, source.source if source else None)
        self._planned[path] = None

    def written(self) -> dict[Path, _PlannedText]:
        return {path: content for path, content in self._planned.items() if content}

    def removed(self) -> list[Path]:
        return [path for path, content in self._planned.items() if content is None and self.originals[path] is not None]

    def _content(self, path: Path) -> _PlannedText | None:
        if path not in self.originals:
            original = self.originals[path] = text_file.read(path, self.root_of(path))
            self._planned[path] = _PlannedText(original.text, original, original.data()) if original else None
        return self._planned[path]

    def _plan(self, path: Path, text: str, source: TextFile | None) -> None:
        if self.originals[path] is not None:
            text_file.require_writable(path, self.root_of(path))
        self._planned[path] = _PlannedText(text, source, text_file.encode(text, source))


def write_batch(batch: FileBatch) -> dict[Path, Stamp]:
    """Writes the planned texts, deletes what the batch removes, and returns the stamps of the written files. Undoes the writes
    and raises ToolError if one fails or a file has changed since it was read."""
    for path, original in batch.originals.items():
        text_file.require_unchanged(path, original, batch.root_of(path))
    written = batch.written()
    folders = _missing_folders(written)
    try:
        stamps = {
            path: text_file.write(path, content.data, content.source.mode if content.source else None, batch.root_of(path))
            for path, content in written.items()
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
    stuck = [str(path) for path, original in batch.originals.items() if not _put_back(path, original, batch.root_of(path))]
    for folder in folders:
        with suppress(OSError):  # not made yet, or not empty
            remove_folder(folder, batch.root_of(folder))
    if stuck:
        raise ToolError(f"{cause}\nThese files could not be put back as they were: {', '.join(stuck)}") from cause


def _put_back(path: Path, original: TextFile | None, root: Root) -> bool:
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


async def format_file(ctx: ToolContext, path: Path, root: Root) -> tuple[TextFile | None, dict[str, str]]:
    """The file as it is now, None if no formatter ran; and by formatter, why it failed.

    The caller holds the file's lock. For files of the project only: a file outside is opened to the model, not to the
    project's programs. Raises ToolError if the change of a formatter that failed cannot be undone.
    """
    due = await ctx.host.formatters(path) if project_of(ctx).contains(path) else ()
    if not due:
        return None, {}
    file: TextFile = await asyncio.to_thread(_require, path, root)
    errors: dict[str, str] = {}
    for formatter in due:
        try:
            reason = await formatter.run()
        except asyncio.CancelledError:
            await text_file.finish_in_thread(_restored, path, file, root)
            raise
        made = await asyncio.to_thread(_read, path, root) if reason is None else None
        if made is None:
            errors[formatter.name] = reason or "it left no file that could be edited"
            formatter.failed(errors[formatter.name])
        file = made if made is not None else await text_file.finish_in_thread(_restored, path, file, root)
    return file, errors


def format_metadata(errors: Mapping[str, str]) -> dict[str, Any]:
    """The metadata of a call; empty if no formatter failed."""
    return {"formatErrors": dict(errors)} if errors else {}


def _read(path: Path, root: Root) -> TextFile | None:
    with suppress(ToolError):
        return text_file.read(path, root)
    return None


def _require(path: Path, root: Root) -> TextFile:
    file = text_file.read(path, root)
    if file is None:
        raise ToolError(f"File {path} was deleted by someone else while it was written.")
    return file


def _restored(path: Path, before: TextFile, root: Root) -> TextFile:
    """Writes the file as it was before, over what is there now."""
    now = _read(path, root)
    if now is not None and now.data() == before.data():
        return now
    with suppress(ToolError):
        text_file.delete(path, root)
    text_file.write(path, before.data(), before.mode, root)
    return _require(path, root)


class FileEditor:
    def __init__(self, times: FileTimes, locks: Locks) -> None:
        self._times = times
        self._locks = locks

    async def change(
        self, ctx: ToolContext, path: Path, derive: Callable[[str], str], requirement: Requirement
    ) -> tuple[FileChange, dict[str, str]]:
        """`change_all` for one file, which gets `derive(text)`. `text` is empty for a new file."""

        def plan(batch: FileBatch) -> list[FileChange]:
            before = batch.text(path)
            self._require(ctx.session_id, path, batch.originals[path], requirement)
            after = derive(before or "")
            batch.put(path, after)
            return [FileChange.of("add" if before is None else "update", path, before or "", after)]

        about = {"filepath": str(path)}
        changes, format_errors = await self.change_all(
            ctx, [path], plan, lambda changes: {**about, "diff": changes[0].delta.text}
        )
        return changes[0], format_errors

    async def change_all(
        self,
        ctx: ToolContext,
        paths: Sequence[Path],
        plan: Callable[[FileBatch], list[FileChange]],
        about: Callable[[list[FileChange]], dict[str, Any]],
    ) -> tuple[list[FileChange], dict[str, str]]:
        """Makes the changes that `plan` plans in a thread, all or none, after asking the permission `edit`. Returns them as
        formatters have left them; and by formatter, why it failed. `about`: the request's metadata.

        Holds the files' locks throughout, so that a parallel change starts from the result of this one.
        """
        async with hold_all(self._locks, paths):
            for path in paths:
                await unsaved.require_saved(ctx, path)
            batch = FileBatch(partial(root_of, ctx))
            async with ctx.host.in_order():
                changes = await asyncio.to_thread(plan, batch)
            names = [relative_name(ctx, path) for path in paths]
            await ctx.host.require_permission(ToolPermission("edit", names, ["*"], about(changes)))
            require_in_place(ctx, *paths)
            for path, stamp in (await text_file.finish_in_thread(write_batch, batch)).items():
                self._times.record(ctx.session_id, path, stamp)
            changes, format_errors = await self._formatted(ctx, changes)
        for change in changes:
            if change.type != "delete":
                await ctx.host.file_edited(change.result_path)
        return changes, format_errors

    def _require(self, session_id: str, path: Path, original: TextFile | None, requirement: Requirement) -> None:
        if original is None:
            if requirement == "exists and was read":
                raise ToolError(f"File {path} not found")
        elif requirement != "nothing":
            self._times.check(session_id, path, original.stamp)

    async def _formatted(self, ctx: ToolContext, changes: list[FileChange]) -> tuple[list[FileChange], dict[str, str]]:
        """If two changes are of one file, the last has the formatters' text."""
        errors: dict[str, str] = {}
        for path, at in files_left(changes).items():
            formatted, failed = await format_file(ctx, path, root_of(ctx, path))
            errors |= failed
            if formatted is not None:
                self._times.record(ctx.session_id, path, formatted.stamp)
                changes[at] = await asyncio.to_thread(changes[at].formatted, formatted)
        return changes, errors


def files_left(changes: Sequence[FileChange]) -> dict[Path, int]:
    """The files that exist after the changes, each with the index of its last change."""
    left: dict[Path, int] = {}
    for at, change in enumerate(changes):
        left.pop(change.path, None)
        if change.type != "delete":
            left[change.result_path] = at
    return left


def errors_in_file(path: Path, errors: Errors) -> str:
    return errors_text({path: "this file, please fix:"}, errors)


def errors_in_others(written: Path, errors: Errors) -> str:
    others = [path for path in errors if path != written and errors[path].total][:MAX_OTHER_FILES]
    return errors_text(dict.fromkeys(others, "other files:"), errors)


def errors_text(files: Mapping[Path, str], errors: Errors) -> str:
    """The errors in these files, each with what it is called. Begins with an empty line; empty without errors."""
    return "".join(_section(words, path, errors[path]) for path, words in files.items() if path in errors)


def diagnostics(paths: Sequence[Path], errors: Errors) -> dict[str, list[Mapping[str, Any]]]:
    """The errors of the written files and of others, by path, in LSP's form."""
    others = [path for path in errors if path not in paths][:MAX_OTHER_FILES]
    return {str(path): errors[path].items[:MAX_ERRORS] for path in (*paths, *others) if path in errors and errors[path].total}


def _section(words: str, path: Path, errors: FileErrors) -> str:
    if not errors.total:
        return ""
    listed = errors.items[:MAX_ERRORS]
    more = f"\n... and {errors.total - len(listed)} more" if errors.total > len(listed) else ""
    return (
        f'\n\nLSP errors detected in {words}\n<diagnostics file="{path}">\n'
        + "\n".join(map(_line, listed))
        + f"{more}\n</diagnostics>"
    )


def _line(error: Mapping[str, Any]) -> str:
    start = error["range"]["start"]
    return f"ERROR [{start['line'] + 1}:{start['character'] + 1}] {error['message']}"
