"""Changes to several files that are planned in memory and then written together, or not at all."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self, assert_never

from pydantic import Field

from app.schema.base import Wire
from app.tools import changes, patch, text_file, unsaved
from app.tools.base import Tool, ToolContext, ToolError, ToolPermission, ToolResult
from app.tools.boundary import ask_if_outside, locate, relative_name, require_in_place, root_of
from app.tools.changes import Errors, FileDelta, format_file, format_metadata
from app.tools.patch import AddFile, DeleteFile, PatchChange, PatchError, UpdateFile
from app.tools.text_file import ROOT, FileLocks, FileTimes, Root, Stamp, TextFile, remove_folder

_MARKS = {"add": "A", "update": "M", "move": "M", "delete": "D"}


class ApplyPatchParameters(Wire):
    patch_text: Annotated[str, Field(description="The whole patch, from *** Begin Patch to *** End Patch")]


@dataclass(frozen=True, slots=True)
class _PlannedText:
    """`source`: the file on disk that gives the mode, the byte order mark and the bytes that are not UTF-8."""

    text: str
    source: TextFile | None


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


def write_batch(batch: FileBatch, data: Mapping[Path, bytes]) -> dict[Path, Stamp]:
    """Writes `data` (what `encoded` gave), deletes what the batch removes, and returns the stamps of the written files. Undoes
    the writes and raises ToolError if one fails or a file has changed since it was read."""
    for path, original in batch.originals.items():
        text_file.require_unchanged(path, original, batch.root_of(path))
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


@dataclass(frozen=True, slots=True)
class _LocatedChange:
    """One change of the patch, with resolved paths."""

    change: PatchChange
    path: Path
    target: Path | None


@dataclass(frozen=True, slots=True)
class _PlannedChange:
    type: Literal["add", "update", "move", "delete"]
    path: Path
    move_path: Path | None
    before: str
    after: str
    delta: FileDelta

    @property
    def result_path(self) -> Path:
        return self.move_path or self.path

    def formatted(self, file: TextFile) -> Self:
        after = text_file.json_text(file.text)
        if after == self.after:
            return self
        return replace(self, after=after, delta=changes.compare(str(self.path), self.before, after))

    def wire(self, ctx: ToolContext) -> dict[str, Any]:
        entry = {
            "filePath": str(self.path),
            "relativePath": relative_name(ctx, self.result_path),
            "type": self.type,
            "diff": self.delta.text,
            "before": self.before,
            "after": self.after,
            "additions": self.delta.additions,
            "deletions": self.delta.deletions,
        }
        return entry | ({"movePath": str(self.move_path)} if self.move_path else {})


class ApplyPatchTool(Tool[ApplyPatchParameters]):
    """Changes several files at once. The whole patch is validated before the user is asked, and applied completely or not at
    all."""

    id = "apply_patch"
    parameters = ApplyPatchParameters
    edits_files = True

    def __init__(self, times: FileTimes, locks: FileLocks) -> None:
        self._times = times
        self._locks = locks

    async def execute(self, args: ApplyPatchParameters, ctx: ToolContext) -> ToolResult:
        steps = _located(ctx, _parsed(args.patch_text))
        paths = list(dict.fromkeys(path for step in steps for path in (step.path, step.target) if path))
        for path in paths:
            await ask_if_outside(ctx, path)
        async with self._locks.hold_all(paths):
            batch, data, planned = await asyncio.to_thread(_plan, steps, partial(root_of, ctx))
            for path in batch.originals:
                await unsaved.require_saved(ctx, path)
            metadata = _metadata(ctx, planned)
            await ctx.host.require_permission(_edit_permission(ctx, paths, metadata))
            require_in_place(ctx, *paths)
            for path, stamp in (await text_file.finish_in_thread(write_batch, batch, data)).items():
                self._times.record(ctx.session_id, path, stamp)
            planned, format_errors = await self._formatted(ctx, planned)
        for plan in planned:
            if plan.type != "delete":
                await ctx.host.file_edited(plan.result_path)
        written = {path: planned[at].after for path, at in _left(planned).items()}
        metadata = _metadata(ctx, planned) | format_metadata(format_errors)
        return _result(ctx, planned, metadata, await ctx.host.errors_in(written))

    async def _formatted(self, ctx: ToolContext, planned: list[_PlannedChange]) -> tuple[list[_PlannedChange], dict[str, str]]:
        """The changes with the texts that formatters have made of them; if two changes are of one file, the last has them."""
        errors: dict[str, str] = {}
        changed = list(planned)
        for path, at in _left(planned).items():
            formatted, failed = await format_file(ctx, path, root_of(ctx, path))
            errors |= failed
            if formatted is not None:
                self._times.record(ctx.session_id, path, formatted.stamp)
                changed[at] = await asyncio.to_thread(changed[at].formatted, formatted)
        return changed, errors


def _left(planned: Sequence[_PlannedChange]) -> dict[Path, int]:
    """The files that exist after the changes, each with the index of its last change."""
    left: dict[Path, int] = {}
    for at, plan in enumerate(planned):
        left.pop(plan.path, None)
        if plan.type != "delete":
            left[plan.result_path] = at
    return left


def _parsed(text: str) -> list[PatchChange]:
    if not text.strip():
        raise ToolError("patchText is required")
    try:
        changes = patch.parse(text)
    except PatchError as error:
        raise _verification_error(error) from error
    if not changes:
        raise ToolError("patch rejected: empty patch")
    return changes


def _verification_error(error: Exception) -> ToolError:
    return ToolError(f"apply_patch verification failed: {error}")


def _located(ctx: ToolContext, changes: list[PatchChange]) -> list[_LocatedChange]:
    for change in changes:
        takes_away = isinstance(change, DeleteFile) or (isinstance(change, UpdateFile) and change.move_to is not None)
        # Resolved paths name the target of a link: deleting or moving it would leave the link itself.
        if takes_away and (ctx.directory / change.path).is_symlink():
            raise _verification_error(PatchError(f"{change.path} is a symbolic link: use the bash tool to delete or move it"))
    located = []
    for change in changes:
        move_to = change.move_to if isinstance(change, UpdateFile) else None
        located.append(_LocatedChange(change, locate(ctx, change.path), locate(ctx, move_to) if move_to else None))
    return located


def _plan(
    steps: list[_LocatedChange], root_of: Callable[[Path], Root]
) -> tuple[FileBatch, dict[Path, bytes], list[_PlannedChange]]:
    batch = FileBatch(root_of)
    try:
        planned = [_apply(batch, step) for step in steps]
        data = batch.encoded()
        for path in data:
            if batch.originals[path] is not None:
                text_file.require_writable(path, root_of(path))
        return batch, data, planned
    except (PatchError, ToolError) as error:
        raise _verification_error(error) from error


def _apply(batch: FileBatch, step: _LocatedChange) -> _PlannedChange:
    path = step.path
    before = batch.text(path)
    match step.change:
        case AddFile(content=content):
            batch.put(path, content)
            return _planned("add", path, None, before or "", content)
        case DeleteFile():
            batch.remove(path)
            return _planned("delete", path, None, _existing(before, path, "delete"), "")
        case UpdateFile(chunks=chunks):
            text = _existing(before, path, "update")
            after = patch.apply_chunks(text, chunks, str(path))
            if step.target is None or step.target == path:
                batch.put(path, after)
                return _planned("update", path, None, text, after)
            batch.move(path, step.target, after)
            return _planned("move", path, step.target, text, after)
        case _:
            assert_never(step.change)


def _existing(text: str | None, path: Path, action: str) -> str:
    if text is None:
        raise PatchError(f"the file to {action} does not exist: {path}")
    return text


def _planned(
    kind: Literal["add", "update", "move", "delete"], path: Path, move_path: Path | None, before: str, after: str
) -> _PlannedChange:
    before, after = text_file.json_text(before), text_file.json_text(after)
    return _PlannedChange(kind, path, move_path, before, after, changes.compare(str(path), before, after))


def _metadata(ctx: ToolContext, planned: Sequence[_PlannedChange]) -> dict[str, Any]:
    return {
        "diff": "\n".join(plan.delta.text for plan in planned),
        "files": [plan.wire(ctx) for plan in planned],
        "diagnostics": {},
    }


def _edit_permission(ctx: ToolContext, paths: list[Path], metadata: dict[str, Any]) -> ToolPermission:
    names = [relative_name(ctx, path) for path in paths]
    return ToolPermission(
        "edit", names, ["*"], {"filepath": ", ".join(names), "diff": metadata["diff"], "files": metadata["files"]}
    )


def _result(ctx: ToolContext, planned: Sequence[_PlannedChange], metadata: dict[str, Any], errors: Errors) -> ToolResult:
    lines = [f"{_MARKS[plan.type]} {relative_name(ctx, plan.result_path)}" for plan in planned]
    names = {plan.result_path: relative_name(ctx, plan.result_path) for plan in planned if plan.type != "delete"}
    output = "\n".join(["Success: the patch is applied. Files changed:", *lines]) + changes.errors_of_patch(names, errors)
    return ToolResult(output, output, {**metadata, "diagnostics": changes.diagnostics([*names], errors)})
