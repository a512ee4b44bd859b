"""Changes to files by the tools. Begin at FileEditor: it checks a change, asks permission with a diff, writes and formats. The
diff algorithm stands before it; behind it, the errors of language servers as texts."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from app.schema.project import FileErrors
from app.tools import text_file, unsaved
from app.tools.base import ToolContext, ToolError, ToolPermission
from app.tools.boundary import project_of, relative_name, require_in_place, root_of
from app.tools.replace import with_newlines
from app.tools.text_file import FileLocks, FileTimes, Root, TextFile

_CONTEXT = 4
_RULE = "=" * 67
# The exact comparison needs lines × lines / 8 bytes of memory: 25 MB at this bound.
_MAX_COMPARED = 200_000_000

Requirement = Literal["exists and was read", "was read if it exists", "nothing"]
MAX_ERRORS = 20
MAX_OTHER_FILES = 5
Errors = Mapping[Path, FileErrors]


@dataclass(frozen=True, slots=True)
class FileDelta:
    text: str
    additions: int
    deletions: int


class Region(NamedTuple):
    """Lines [old, old_end) are replaced by lines [new, new_end)."""

    old: int
    old_end: int
    new: int
    new_end: int


def compare(path: str, before: str, after: str) -> FileDelta:
    """Takes less than a second for 5 MB on each side. Beyond 14,000 × 14,000 changed lines the diff is exact only around lines
    that occur once, and coarser elsewhere."""
    old, new = with_newlines(before), with_newlines(after)
    regions = changed_regions(old, new)
    body = [line for hunk in _group(regions) for line in _hunk(old, new, hunk)]
    header = [f"Index: {path}", _RULE, f"--- {path}", f"+++ {path}"]
    return FileDelta(
        text="\n".join(header + _trim_indent(body)) + "\n",
        additions=sum(region.new_end - region.new for region in regions),
        deletions=sum(region.old_end - region.old for region in regions),
    )


def changed_regions(old: Sequence[str], new: Sequence[str]) -> list[Region]:
    top = _common(old, new)
    bottom = _common(old[top:][::-1], new[top:][::-1])
    middle = Region(top, len(old) - bottom, top, len(new) - bottom)
    return _merge_adjacent(_refine(old, new, middle))


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    count = 0
    for ours, theirs in zip(left, right, strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def _refine(old: Sequence[str], new: Sequence[str], region: Region) -> list[Region]:
    removed, added = region.old_end - region.old, region.new_end - region.new
    if not removed and not added:
        return []
    if not removed or not added:
        return [region]
    if removed * added <= _MAX_COMPARED:
        return _shortest(old, new, region)
    return _split_at_anchors(old, new, region)


def _shortest(old: Sequence[str], new: Sequence[str], region: Region) -> list[Region]:
    from rapidfuzz.distance import Indel  # 3 MB: loaded on first use

    number: dict[str, int] = {}
    left = [number.setdefault(line, len(number)) for line in old[region.old : region.old_end]]
    right = [number.setdefault(line, len(number)) for line in new[region.new : region.new_end]]
    return [
        Region(region.old + op.src_start, region.old + op.src_end, region.new + op.dest_start, region.new + op.dest_end)
        for op in Indel.opcodes(left, right)
        if op.tag != "equal"
    ]


def _split_at_anchors(old: Sequence[str], new: Sequence[str], region: Region) -> list[Region]:
    """Compares the parts between the lines that occur exactly once on each side, in the same order."""
    once_old = _indices_of_unique(old, region.old, region.old_end)
    once_new = _indices_of_unique(new, region.new, region.new_end)
    anchors = _longest_ascending([(at, once_new[line]) for line, at in once_old.items() if line in once_new])
    if not anchors:
        return [region]
    bounds = [(region.old - 1, region.new - 1), *anchors, (region.old_end, region.new_end)]
    gaps = [Region(old_at + 1, old_next, new_at + 1, new_next) for (old_at, new_at), (old_next, new_next) in pairwise(bounds)]
    return [part for gap in gaps for part in _refine(old, new, gap)]


def _indices_of_unique(lines: Sequence[str], start: int, end: int) -> dict[str, int]:
    count = Counter(lines[start:end])
    return {line: start + offset for offset, line in enumerate(lines[start:end]) if count[line] == 1}


def _longest_ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """`pairs` ascend on the left; keeps the longest series that ascends on the right too (patience sorting)."""
    tops: list[int] = []
    piles: list[int] = []
    previous: list[int] = []
    for index, (_, right) in enumerate(pairs):
        pile = bisect_left(tops, right)
        previous.append(piles[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [right]
        piles[pile : pile + 1] = [index]
    chain = []
    at = piles[-1] if piles else -1
    while at >= 0:
        chain.append(pairs[at])
        at = previous[at]
    return chain[::-1]


def _merge_adjacent(regions: list[Region]) -> list[Region]:
    merged: list[Region] = []
    for region in regions:
        if merged and merged[-1].old_end == region.old and merged[-1].new_end == region.new:
            region = Region(merged[-1].old, region.old_end, merged.pop().new, region.new_end)
        merged.append(region)
    return merged


def _group(regions: list[Region]) -> Iterator[list[Region]]:
    """Groups regions whose context lines would touch into one hunk."""
    group: list[Region] = []
    for region in regions:
        if group and region.old - group[-1].old_end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(region)
    if group:
        yield group


def _hunk(old: Sequence[str], new: Sequence[str], regions: list[Region]) -> Iterator[str]:
    lead = min(_CONTEXT, regions[0].old)
    tail = min(_CONTEXT, len(old) - regions[-1].old_end)
    start, end = regions[0].old - lead, regions[-1].old_end + tail
    old_span = _span(start, end)
    new_span = _span(regions[0].new - lead, regions[-1].new_end + tail)
    yield f"@@ -{old_span} +{new_span} @@"
    at = start
    for region in regions:
        yield from _marked(" ", old[at : region.old])
        yield from _marked("-", old[region.old : region.old_end])
        yield from _marked("+", new[region.new : region.new_end])
        at = region.old_end
    yield from _marked(" ", old[at:end])


def _span(start: int, end: int) -> str:
    return f"{start + 1 if end > start else start},{end - start}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _trim_indent(body: list[str]) -> list[str]:
    indents = [len(line[1:]) - len(line[1:].lstrip()) for line in body if line[0] in " +-" and line[1:].strip()]
    common = min(indents, default=0)
    if not common:
        return body
    return [line[0] + line[1 + common :] if line[0] in " +-" else line for line in body]


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


@dataclass(frozen=True, slots=True)
class TextChange:
    path: Path
    original: TextFile | None
    after: str
    data: bytes
    delta: FileDelta
    format_errors: Mapping[str, str] = field(default_factory=dict)
    """By formatter, why it failed."""

    def filediff(self) -> dict[str, Any]:
        """OpenCode's FileDiff with an absolute path: newer clients read the patch, older ones both texts."""
        return {
            "file": str(self.path),
            "before": text_file.json_text(self.original.text if self.original else ""),
            "after": text_file.json_text(self.after),
            "patch": self.delta.text,
            "additions": self.delta.additions,
            "deletions": self.delta.deletions,
        }

    def edit_metadata(self) -> dict[str, Any]:
        failed = format_metadata(self.format_errors)
        return {"diagnostics": {}, "diff": self.delta.text, "filediff": self.filediff(), **failed}

    def formatted(self, file: TextFile, errors: Mapping[str, str]) -> Self:
        """With the text that formatters have made of this one."""
        if file.text == self.after:
            return replace(self, format_errors=errors)
        before = self.original.text if self.original else ""
        delta = compare(str(self.path), text_file.json_text(before), text_file.json_text(file.text))
        return replace(self, after=file.text, data=file.data(), delta=delta, format_errors=errors)


class FileEditor:
    def __init__(self, times: FileTimes, locks: FileLocks) -> None:
        self._times = times
        self._locks = locks

    async def change(self, ctx: ToolContext, path: Path, derive: Callable[[str], str], requirement: Requirement) -> TextChange:
        """Writes `derive(text)` after asking the permission `edit`. `text` is empty for a new file. `derive` runs in a thread.
        Holds the file's lock throughout, so that a parallel change starts from the result of this one."""
        async with self._locks.hold(path):
            root = root_of(ctx, path)
            original = await asyncio.to_thread(text_file.read, path, root)
            self._require(ctx.session_id, path, original, requirement)
            if original is not None:
                text_file.require_writable(path, root)
            await unsaved.require_saved(ctx, path)
            change = await asyncio.to_thread(plan_change, path, original, derive)
            about = {"filepath": str(path), "diff": change.delta.text}
            await ctx.host.require_permission(ToolPermission("edit", [relative_name(ctx, path)], ["*"], about))
            require_in_place(ctx, path)
            text_file.require_unchanged(path, original, root)
            stamp = await text_file.finish_in_thread(text_file.write, path, change.data, None, root)
            self._times.record(ctx.session_id, path, stamp)
            formatted, errors = await format_file(ctx, path, root)
            if formatted is not None:
                self._times.record(ctx.session_id, path, formatted.stamp)
                change = await asyncio.to_thread(change.formatted, formatted, errors)
        await ctx.host.file_edited(path)
        return change

    def _require(self, session_id: str, path: Path, original: TextFile | None, requirement: Requirement) -> None:
        if original is None:
            if requirement == "exists and was read":
                raise ToolError(f"File {path} not found")
        elif requirement != "nothing":
            self._times.check(session_id, path, original.stamp)


def plan_change(path: Path, original: TextFile | None, derive: Callable[[str], str]) -> TextChange:
    before = original.text if original else ""
    after = derive(before)
    delta = compare(str(path), text_file.json_text(before), text_file.json_text(after))
    return TextChange(path, original, after, text_file.encode(after, original), delta)


def errors_in_file(path: Path, errors: Errors) -> str:
    """Begins with an empty line; empty without errors."""
    return _section("LSP errors detected in this file, please fix:", path, errors.get(path))


def errors_in_others(written: Path, errors: Errors) -> str:
    others = [path for path in errors if path != written and errors[path].total][:MAX_OTHER_FILES]
    return "".join(_section("LSP errors detected in other files:", path, errors[path]) for path in others)


def errors_of_patch(names: Mapping[Path, str], errors: Errors) -> str:
    """`names`: the files of the patch as they are shown."""
    sections = (_section(f"LSP errors detected in {name}, please fix:", path, errors.get(path)) for path, name in names.items())
    return "".join(sections)


def diagnostics(paths: Sequence[Path], errors: Errors) -> dict[str, list[Mapping[str, Any]]]:
    """By path, in LSP's form: of the files that were written, and of others with errors."""
    others = [path for path in errors if path not in paths][:MAX_OTHER_FILES]
    return {str(path): errors[path].items[:MAX_ERRORS] for path in (*paths, *others) if path in errors and errors[path].total}


def _section(words: str, path: Path, errors: FileErrors | None) -> str:
    if errors is None or not errors.total:
        return ""
    told = errors.items[:MAX_ERRORS]
    more = f"\n... and {errors.total - len(told)} more" if errors.total > len(told) else ""
    return f'\n\n{words}\n<diagnostics file="{path}">\n' + "\n".join(map(_line, told)) + f"{more}\n</diagnostics>"


def _line(error: Mapping[str, Any]) -> str:
    start = error["range"]["start"]
    return f"ERROR [{start['line'] + 1}:{start['character'] + 1}] {error['message']}"
