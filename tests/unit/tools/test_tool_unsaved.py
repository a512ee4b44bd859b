"""Files that are open in an editor: what it shows is read, and is not written over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tool_host import FakeHost

from app.tools import text_file
from app.tools.base import ToolContext, ToolError
from app.tools.builtin.apply_patch import ApplyPatchParameters, ApplyPatchTool
from app.tools.builtin.edit import EditParameters, EditTool, MultiEditParameters, MultiEditTool, WriteParameters, WriteTool
from app.tools.builtin.read import ReadParameters, ReadTool
from app.tools.text_file import FileLocks, FileTimes

TIMES, LOCKS = FileTimes(check_disabled=True), FileLocks()


@pytest.fixture
def file(project: Path, host: FakeHost) -> Path:
    path = project / "sub" / "a.txt"
    path.parent.mkdir()
    path.write_text("stored\n")
    host.buffers = {path: "shown\n"}
    return path


async def read(ctx: ToolContext, name: object, **more: int) -> str:
    args = ReadParameters.model_validate({"filePath": str(name), **more})
    return (await ReadTool(FileTimes()).execute(args, ctx)).output


async def test_what_the_editor_shows_is_read_by_lines(ctx: ToolContext, host: FakeHost, file: Path) -> None:
    host.buffers = {file: "one\ntwo\nthree\n"}
    output = await read(ctx, file, offset=1, limit=1)
    assert "00002| two" in output and "one" not in output and "not saved" in output
    assert host.permissions == ["read"]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (b"a\nb\n", "a\nb"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"\xef\xbb\xbfa\n", "a\n"),
        (b"caf\xe9\n", "caf\u00e9\n"),
        (b"a\n", None),
    ],
)
async def test_what_is_stored_is_no_change_however_the_editor_keeps_it(
    ctx: ToolContext, host: FakeHost, file: Path, stored: bytes, shown: str | None
) -> None:
    file.write_bytes(stored)
    host.buffers = {file: shown} if shown is not None else {}
    assert "not saved" not in await read(ctx, file)


async def test_an_editor_that_makes_an_empty_buffer_of_a_missing_file(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    host.buffers = {project / "none": ""}
    with pytest.raises(ToolError, match="File not found"):
        await read(ctx, "none")


async def test_what_is_outside_of_the_project_binary_or_large_is_not_asked_for(
    ctx: ToolContext, host: FakeHost, file: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = project.parent / "outside.txt"
    asked: list[Path] = []
    host.on_editor = asked.append
    outside.write_text("stored outside\n")
    assert "stored outside" in await read(ctx, outside)
    (project / "data.bin").write_bytes(b"\0\1")
    with pytest.raises(ToolError, match="binary"):
        await read(ctx, "data.bin")
    monkeypatch.setattr(text_file, "MAX_BYTES", 3)
    assert "stored" in await read(ctx, file)
    assert asked == []


def _swap(file: Path) -> None:
    """What an editor that follows the link would read, and as if nothing had been."""
    kept = file.with_name("kept")
    file.rename(kept)
    file.symlink_to("/etc/passwd")
    file.unlink()
    kept.rename(file)


def _swap_directory(file: Path) -> None:
    kept = file.parent.with_name("kept")
    file.parent.rename(kept)
    file.parent.symlink_to("/etc")
    file.parent.unlink()
    kept.rename(file.parent)


@pytest.mark.parametrize("swap", [_swap, _swap_directory])
async def test_an_editor_that_may_have_followed_a_link_is_not_believed(
    ctx: ToolContext, host: FakeHost, file: Path, swap: Callable[[Path], None]
) -> None:
    host.on_editor = swap
    output = await read(ctx, file)
    assert "stored" in output and "shown" not in output


async def test_a_link_that_stays_is_an_error(ctx: ToolContext, host: FakeHost, file: Path) -> None:
    def link(path: Path) -> None:
        path.unlink()
        path.symlink_to("/etc/passwd")

    host.on_editor = link
    with pytest.raises(ToolError, match="symbolic link"):
        await read(ctx, file)


CHANGES: list[tuple[Any, dict[str, Any]]] = [
    (EditTool(TIMES, LOCKS), {"oldString": "stored", "newString": "x"}),
    (MultiEditTool(TIMES, LOCKS), {"edits": [{"oldString": "stored", "newString": "x"}]}),
    (WriteTool(TIMES, LOCKS), {"content": "x"}),
    (ApplyPatchTool(TIMES, LOCKS), {}),
]


@pytest.mark.parametrize(("tool", "given"), CHANGES, ids=[tool.id for tool, _ in CHANGES])
async def test_what_is_not_saved_is_not_written_over(
    ctx: ToolContext, host: FakeHost, file: Path, tool: Any, given: dict[str, Any]
) -> None:
    models = {"edit": EditParameters, "multiedit": MultiEditParameters, "write": WriteParameters}
    if tool.id == "apply_patch":
        patch = "*** Begin Patch\n*** Update File: sub/a.txt\n@@\n-stored\n+x\n*** End Patch"
        args: Any = ApplyPatchParameters(patch_text=patch)
    else:
        args = models[tool.id].model_validate({"filePath": str(file), **given})
    with pytest.raises(ToolError, match="changes that are not saved"):
        await tool.execute(args, ctx)
    assert file.read_text() == "stored\n" and host.permissions == [], "it is refused before the user is asked"
    host.buffers = {file: "stored\n"}
    await tool.execute(args, ctx)
    assert file.read_text().strip() == "x"
