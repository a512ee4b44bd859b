import base64
import os
from pathlib import Path

import pytest
from git_files import put_file
from tool_host import FakeHost, MakeContext, run

from app.permissions.service import PermissionRejected
from app.project.sandbox.scope import SandboxWorkspace, Walls
from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin.read import MAX_ATTACHMENT_BYTES, MAX_SCANNED_BYTES, ReadTool, _lines, _skip_lines
from app.tools.text_file import FileTimes, Stamp

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


async def read(ctx: ToolContext, name: str | Path, times: FileTimes | None = None, **more: int | str | float) -> ToolResult:
    return await run(ReadTool(times or FileTimes()), ctx, filePath=str(name), **more)


async def refusal(ctx: ToolContext, name: str | Path) -> str:
    with pytest.raises(ToolError) as caught:
        await read(ctx, name)
    return str(caught.value)


async def test_a_file_is_shown_with_its_line_numbers(make_ctx: MakeContext, host: FakeHost, project: Path) -> None:
    put_file(project / "pkg" / "a.txt", "hello\nworld\n")
    times = FileTimes()
    result = await read(make_ctx(directory=project / "pkg", worktree=project), "a.txt", times)
    assert result.output == "<file>\n00001| hello\n00002| world\n00003| \n\n(End of file - total 3 lines)\n</file>"
    assert result.metadata == {"preview": "hello\nworld\n", "truncated": False}
    assert result.title == "pkg/a.txt"
    times.check("ses_test", project / "pkg" / "a.txt", Stamp.of((project / "pkg" / "a.txt").stat()))
    [ask] = host.asks
    asked = ("read", [str(project / "pkg" / "a.txt")], ["*"], {})
    assert (ask.permission, ask.patterns, ask.always, ask.metadata) == asked


@pytest.mark.parametrize(("data", "lines"), [(b"", [""]), (b"x", ["x"]), (b"\n", ["", ""]), (b"\xef\xbb\xbfx\xff", ["x\ufffd"])])
async def test_lines_are_counted_as_an_editor_does(ctx: ToolContext, project: Path, data: bytes, lines: list[str]) -> None:
    (project / "a").write_bytes(data)
    result = await read(ctx, "a")
    assert result.metadata["preview"] == "\n".join(lines)
    assert f"total {len(lines)} lines" in result.output


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ({"offset": 3, "limit": 2}, "00004| l4\n00005| l5\n\n(", "'offset' parameter to read beyond line 5)\n</file>"),
        ({"offset": "3", "limit": 2.0}, "00004| l4\n00005| l5\n\n(", "'offset' parameter to read beyond line 5)\n</file>"),
        ({"offset": 5}, "00006| l6\n", "00010| l10\n\n(End of file - total 10 lines)\n</file>"),
        ({"limit": 10}, "00001| l1\n", "00010| l10\n\n(End of file - total 10 lines)\n</file>"),
        ({"offset": 19}, "\n\n(End of file - total 10 lines)\n</file>", ""),
    ],
)
async def test_an_offset_and_a_limit_choose_lines(
    ctx: ToolContext, project: Path, asked: dict[str, int | str | float], begin: str, end: str
) -> None:
    (project / "a").write_text("\n".join(f"l{number}" for number in range(1, 11)))
    result = await read(ctx, "a", **asked)
    assert result.output.startswith(f"<file>\n{begin}") and result.output.endswith(end)
    assert result.metadata["truncated"] is ("beyond" in end)


async def test_two_thousand_lines_are_shown_by_default(ctx: ToolContext, project: Path) -> None:
    """Also of a sparse terabyte behind lines of text: the start can be read, the rest is not loaded."""
    (project / "a").write_text("x\n" * 3000)
    os.truncate(project / "a", 2**40)
    result = await read(ctx, "a")
    assert "02000| x\n\n(" in result.output and "02001|" not in result.output
    assert "beyond line 2000" in result.output
    assert result.metadata == {"preview": "\n".join(["x"] * 20), "truncated": True}


async def test_long_lines_and_long_outputs_are_cut(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text("é" * 2001 + "\n" + "é" * 2000 + "\n" + "𝄞" * 1_000_000 + "\nend")
    lines = (await read(ctx, "a")).output.split("\n")
    assert lines[1:5] == ["00001| " + "é" * 2000 + "...", "00002| " + "é" * 2000, "00003| " + "𝄞" * 2000 + "...", "00004| end"]
    (project / "a").write_text(("x" * 1023 + "\n") * 100)
    result = await read(ctx, "a")
    assert "00050| x" in result.output and "00051|" not in result.output
    assert "cut at 51200 bytes" in result.output and "beyond line 50)" in result.output
    assert result.metadata["truncated"] is True


async def test_what_lies_too_far_into_a_file_is_refused(project: Path) -> None:
    (project / "a").write_bytes(b"x\n")
    os.truncate(project / "a", MAX_SCANNED_BYTES + 2**21)
    for go_on in (lambda file: _skip_lines(file, 1), lambda file: list(_lines(file))):
        with (project / "a").open("rb") as file:
            file.seek(MAX_SCANNED_BYTES - 1)
            with pytest.raises(ToolError, match="bash tool"):
                go_on(file)


async def test_a_long_file_is_read_at_any_offset(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text("".join(f"line {number}\n" for number in range(300_000)))
    for offset in (0, 1, 99_999, 100_000, 299_999, 300_000):
        first = (await read(ctx, "a", offset=offset, limit=1)).metadata["preview"]
        assert first == (f"line {offset}" if offset < 300_000 else "")


@pytest.mark.parametrize("name", ["../out", "link"])
async def test_outside_is_asked_for_first_also_behind_a_link(ctx: ToolContext, host: FakeHost, project: Path, name: str) -> None:
    outside = project.parent / "out"
    outside.write_text("x")
    (project / "link").symlink_to(outside)
    await read(ctx, name)
    assert host.permissions == ["external_directory", "read"]
    assert host.asks[1].patterns == [str(outside)]


async def test_refused_means_not_even_looked_at(ctx: ToolContext, host: FakeHost) -> None:
    host.refuse = PermissionRejected()
    with pytest.raises(PermissionRejected):
        await read(ctx, "missing")


async def test_of_a_file_that_is_not_there_similar_names_are_suggested(ctx: ToolContext, project: Path) -> None:
    for name in ("Config.json", "config.json.bak", "my-config.json", "other"):
        (project / name).write_text("x")
    first, *_, one, two, three = (await refusal(ctx, "config.json")).split("\n")
    assert first == f"File not found: {project / 'config.json'}"
    assert [one, two, three] == [str(project / name) for name in ("Config.json", "config.json.bak", "my-config.json")]
    assert await refusal(ctx, "none/such") == f"File not found: {project / 'none/such'}"
    assert await refusal(ctx, "other/below") == f"File not found: {project / 'other/below'}"


async def test_nothing_is_suggested_where_the_user_may_not_look_around(make_ctx: MakeContext, project: Path) -> None:
    """As among the kept outputs of tools: who knows the name of one may read it."""
    outputs = project.parent / "outputs"
    put_file(outputs / "tool_1", "x")
    walls = Walls(admits=lambda real: Path(real).parent == outputs)
    ctx = make_ctx(sandbox_workspace=SandboxWorkspace(project, Path("/"), walls=walls))
    assert "x" in (await read(ctx, outputs / "tool_1")).output
    assert await refusal(ctx, outputs / "tool") == f"File not found: {outputs / 'tool'}"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("src", "directory"),
        ("src", "list or glob tool"),
        ("", "filePath"),
        ("pipe", "regular file"),
        ("/dev/zero", "regular file"),
    ],
)
async def test_what_is_no_file_is_not_read(ctx: ToolContext, project: Path, name: str, says: str) -> None:
    (project / "src").mkdir()
    os.mkfifo(project / "pipe")
    assert says in await refusal(ctx, name)


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.zip", b"text"), ("A.EXE", b"text"), ("nul", b"a\0b"), ("control", b"\x01\x02abc"), ("late", b"a" * 4095 + b"\0")],
)
async def test_a_binary_file_is_not_read(ctx: ToolContext, project: Path, name: str, data: bytes) -> None:
    (project / name).write_bytes(data)
    assert await refusal(ctx, name) == f"Cannot read binary file: {project / name}"


@pytest.mark.parametrize(
    ("name", "data"), [("a", b"\x01\x02abcdef"), ("a", b"a" * 4096 + b"\0"), ("a", "日本語".encode()), ("a.svg", b"<svg/>")]
)
async def test_text_is_told_from_binary_files(ctx: ToolContext, project: Path, name: str, data: bytes) -> None:
    (project / name).write_bytes(data)
    assert (await read(ctx, name)).output.startswith("<file>\n00001| ")


@pytest.mark.parametrize(
    ("name", "data", "mime", "output"),
    [
        ("a.png", PNG, "image/png", "Image read successfully"),
        ("a.jpg", PNG, "image/png", "Image read successfully"),
        ("a.pdf", b"%PDF-1.7\n\0\0", "application/pdf", "PDF read successfully"),
    ],
)
async def test_an_image_or_a_pdf_is_attached_as_what_it_is(
    ctx: ToolContext, project: Path, name: str, data: bytes, mime: str, output: str
) -> None:
    (project / name).write_bytes(data)
    result = await read(ctx, name)
    assert result.output == output
    assert result.metadata == {"preview": output, "truncated": False}
    [file] = result.attachments
    assert (file.mime, file.filename) == (mime, name)
    assert file.url == f"data:{mime};base64," + base64.b64encode(data).decode()


async def test_an_image_that_is_too_large_is_not_attached(ctx: ToolContext, project: Path) -> None:
    (project / "a.png").write_bytes(PNG)
    os.truncate(project / "a.png", MAX_ATTACHMENT_BYTES + 1)
    assert "too large" in await refusal(ctx, "a.png")
