"""Files that are open in an editor: what it shows is read, and is not written over."""

from pathlib import Path
from typing import Any

import pytest
from tool_host import FakeHost, run

from app.tools import text_file
from app.tools.base import ToolContext, ToolError
from app.tools.builtin.apply_patch import ApplyPatchTool
from app.tools.builtin.edit import EditTool, MultiEditTool, WriteTool
from app.tools.builtin.read import ReadTool
from app.tools.changes import FileEditor
from app.tools.text_file import FileTimes
from app.util.tasks import ProcessLocks


@pytest.fixture
def file(project: Path, host: FakeHost) -> Path:
    path = project / "sub" / "a.txt"
    path.parent.mkdir()
    path.write_text("stored\n")
    host.buffers = {path: "shown\n"}
    return path


async def read(ctx: ToolContext, name: object, **more: int) -> str:
    return (await run(ReadTool(FileTimes()), ctx, filePath=str(name), **more)).output


async def test_what_the_editor_shows_is_read_by_lines(ctx: ToolContext, host: FakeHost, file: Path) -> None:
    host.buffers = {file: "one\ntwo\nthree\n"}
    output = await read(ctx, file, offset=1, limit=1)
    assert "00002| two" in output and "one" not in output and "not saved" in output
    assert host.permissions == ["read"]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [(b"a\nb\n", "a\nb"), (b"a\r\nb\r\n", "a\nb\n"), (b"\xef\xbb\xbfa\n", "a\n"), (b"caf\xe9\n", "caf\u00e9\n"), (b"a\n", None)],
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


def swapped(path: Path, target: str) -> None:
    """What an editor that follows the link would read, and as if nothing had been."""
    kept = path.with_name("kept")
    path.rename(kept)
    path.symlink_to(target)
    path.unlink()
    kept.rename(path)


@pytest.mark.parametrize("is_directory", [False, True])
async def test_an_editor_that_may_have_followed_a_link_is_not_believed(
    ctx: ToolContext, host: FakeHost, file: Path, is_directory: bool
) -> None:
    host.on_editor = lambda path: swapped(file.parent, "/etc") if is_directory else swapped(file, "/etc/passwd")
    output = await read(ctx, file)
    assert "stored" in output and "shown" not in output


async def test_a_link_that_stays_is_an_error(ctx: ToolContext, host: FakeHost, file: Path) -> None:
    def link(path: Path) -> None:
        path.unlink()
        path.symlink_to("/etc/passwd")

    host.on_editor = link
    with pytest.raises(ToolError, match="symbolic link"):
        await read(ctx, file)


EDIT = {"oldString": "stored", "newString": "x"}
PATCH = "*** Begin Patch\n*** Update File: sub/a.txt\n@@\n-stored\n+x\n*** End Patch"
CHANGES: list[tuple[Any, dict[str, Any]]] = [
    (EditTool, EDIT),
    (MultiEditTool, {"edits": [EDIT]}),
    (WriteTool, {"content": "x"}),
    (ApplyPatchTool, {"patchText": PATCH}),
]


@pytest.mark.parametrize(("tool", "given"), CHANGES, ids=[tool.id for tool, _ in CHANGES])
async def test_what_is_not_saved_is_not_written_over(
    ctx: ToolContext, host: FakeHost, file: Path, tool: Any, given: dict[str, Any]
) -> None:
    changing = tool(FileEditor(FileTimes(check_disabled=True), ProcessLocks()))
    with pytest.raises(ToolError, match="changes that are not saved"):
        await run(changing, ctx, filePath=str(file), **given)
    assert file.read_text() == "stored\n" and host.permissions == [], "it is refused before the user is asked"
    host.buffers = {file: "stored\n"}
    await run(changing, ctx, filePath=str(file), **given)
    assert file.read_text().strip() == "x"
