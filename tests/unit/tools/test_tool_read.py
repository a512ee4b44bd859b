import base64
import os
from pathlib import Path

import pytest
from tool_host import FakeHost, MakeContext

from app.permissions.service import PermissionRejected
from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin.read import MAX_ATTACHMENT_BYTES, MAX_SCANNED_BYTES, ReadParameters, ReadTool, _lines, _skip_lines
from app.tools.text_file import FileTimes

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture
def times() -> FileTimes:
    return FileTimes()


async def read(ctx: ToolContext, name: str | Path, times: FileTimes | None = None, **more: int) -> ToolResult:
    args = ReadParameters.model_validate({"filePath": str(name), **more})
    return await ReadTool(times or FileTimes()).execute(args, ctx)


async def refusal(ctx: ToolContext, name: str | Path) -> str:
    with pytest.raises(ToolError) as caught:
        await read(ctx, name)
    return str(caught.value)


async def test_a_small_file(ctx: ToolContext, project: Path, times: FileTimes) -> None:
    (project / "a.txt").write_text("hello\nworld\n")
    result = await read(ctx, "a.txt", times)
    assert result.output == "<file>\n00001| hello\n00002| world\n00003| \n\n(End of file - total 3 lines)\n</file>"
    assert result.metadata == {"preview": "hello\nworld\n", "truncated": False}
    times.check("ses_test", project / "a.txt")


@pytest.mark.parametrize(("data", "lines"), [(b"", [""]), (b"x", ["x"]), (b"\n", ["", ""]), (b"\xef\xbb\xbfx\xff", ["x\ufffd"])])
async def test_how_lines_are_counted(ctx: ToolContext, project: Path, data: bytes, lines: list[str]) -> None:
    (project / "a").write_bytes(data)
    result = await read(ctx, "a")
    assert result.metadata["preview"] == "\n".join(lines)
    assert f"total {len(lines)} lines" in result.output


async def test_title_is_relative_to_the_worktree(make_ctx: MakeContext, project: Path) -> None:
    (project / "pkg").mkdir()
    (project / "pkg" / "a").write_text("x")
    assert (await read(make_ctx(directory=project / "pkg", worktree=project), "a")).title == "pkg/a"


async def test_offset_and_limit(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text("\n".join(f"l{number}" for number in range(1, 11)))
    result = await read(ctx, "a", offset=3, limit=2)
    assert result.output.startswith("<file>\n00004| l4\n00005| l5\n\n(")
    assert "'offset' parameter to read beyond line 5)" in result.output
    assert result.metadata == {"preview": "l4\nl5", "truncated": True}
    rest = await read(ctx, "a", offset=5)
    assert rest.output.startswith("<file>\n00006| l6\n")
    assert rest.output.endswith("00010| l10\n\n(End of file - total 10 lines)\n</file>")
    assert rest.metadata["truncated"] is False


async def test_exactly_as_many_lines_as_the_limit(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text("a\nb")
    assert "(End of file - total 2 lines)" in (await read(ctx, "a", limit=2)).output


async def test_an_offset_beyond_the_end(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text("a\nb")
    assert (await read(ctx, "a", offset=9)).output == "<file>\n\n\n(End of file - total 2 lines)\n</file>"


async def test_two_thousand_lines_by_default(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text("x\n" * 5000)
    result = await read(ctx, "a")
    assert "02000| x\n\n(" in result.output and "02001|" not in result.output
    assert "beyond line 2000" in result.output
    assert result.metadata == {"preview": "\n".join(["x"] * 20), "truncated": True}


async def test_long_lines_are_cut(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text("é" * 2001 + "\n" + "é" * 2000 + "\n" + "𝄞" * 1_000_000 + "\nend")
    lines = (await read(ctx, "a")).output.split("\n")
    assert lines[1:5] == ["00001| " + "é" * 2000 + "...", "00002| " + "é" * 2000, "00003| " + "𝄞" * 2000 + "...", "00004| end"]


async def test_the_output_is_cut_by_bytes(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text(("x" * 1023 + "\n") * 100)
    result = await read(ctx, "a")
    assert "00050| x" in result.output and "00051|" not in result.output
    assert "cut at 51200 bytes" in result.output and "beyond line 50)" in result.output
    assert result.metadata["truncated"] is True


async def test_a_huge_file_is_not_loaded(ctx: ToolContext, project: Path) -> None:
    """A sparse terabyte behind lines of text: the start can be read, the rest is out of reach."""
    path = project / "a"
    path.write_text("x\n" * 3000)
    os.truncate(path, 2**40)
    assert "beyond line 2000" in (await read(ctx, "a")).output


async def test_what_lies_too_far_into_a_file_is_refused(project: Path) -> None:
    (project / "a").write_bytes(b"x\n")
    os.truncate(project / "a", MAX_SCANNED_BYTES + 2**21)
    for go_on in (lambda file: _skip_lines(file, 1), lambda file: list(_lines(file))):
        with (project / "a").open("rb") as file:
            file.seek(MAX_SCANNED_BYTES - 1)
            with pytest.raises(ToolError, match="bash tool"):
                go_on(file)


@pytest.mark.parametrize("offset", [0, 1, 99_999, 100_000, 299_999, 300_000])
async def test_any_offset_of_a_long_file(ctx: ToolContext, project: Path, offset: int) -> None:
    (project / "a").write_text("".join(f"line {number}\n" for number in range(300_000)))
    first = (await read(ctx, "a", offset=offset, limit=1)).metadata["preview"]
    assert first == (f"line {offset}" if offset < 300_000 else "")


class TestAsking:
    async def test_the_absolute_path_is_asked_for(self, ctx: ToolContext, host: FakeHost, project: Path) -> None:
        (project / "a").write_text("x")
        await read(ctx, "a")
        [ask] = host.asks
        assert (ask.permission, ask.patterns, ask.always, ask.metadata) == ("read", [str(project / "a")], ["*"], {})

    async def test_outside_is_asked_first(self, ctx: ToolContext, host: FakeHost, project: Path) -> None:
        (project.parent / "out").write_text("x")
        await read(ctx, project.parent / "out")
        assert host.permissions == ["external_directory", "read"]

    async def test_a_link_is_asked_for_where_it_leads(self, ctx: ToolContext, host: FakeHost, project: Path) -> None:
        (project.parent / "secret").write_text("x")
        (project / "link").symlink_to(project.parent / "secret")
        await read(ctx, "link")
        assert host.permissions == ["external_directory", "read"]
        assert host.asks[1].patterns == [str(project.parent / "secret")]

    async def test_refused_means_not_even_looked_at(self, ctx: ToolContext, host: FakeHost, times: FileTimes) -> None:
        host.refuse = PermissionRejected()
        with pytest.raises(PermissionRejected):
            await read(ctx, "missing", times)


class TestRefusals:
    async def test_similar_names_are_suggested(self, ctx: ToolContext, project: Path) -> None:
        for name in ("Config.json", "config.json.bak", "my-config.json", "other"):
            (project / name).write_text("x")
        message = await refusal(ctx, "config.json")
        assert message.startswith(f"File not found: {project / 'config.json'}\n")
        assert message.split("\n")[-3:] == [
            str(project / "Config.json"),
            str(project / "config.json.bak"),
            str(project / "my-config.json"),
        ]

    async def test_nothing_like_it(self, ctx: ToolContext, project: Path) -> None:
        assert await refusal(ctx, "none/such") == f"File not found: {project / 'none/such'}"
        (project / "file").write_text("x")
        assert await refusal(ctx, "file/below") == f"File not found: {project / 'file/below'}"

    async def test_a_directory(self, ctx: ToolContext, project: Path) -> None:
        (project / "src").mkdir()
        message = await refusal(ctx, "src")
        assert "directory" in message and "list or glob tool" in message

    async def test_an_empty_path(self, ctx: ToolContext) -> None:
        assert "filePath" in await refusal(ctx, "")

    async def test_special_files_do_not_hang(self, ctx: ToolContext, project: Path) -> None:
        os.mkfifo(project / "pipe")
        assert "regular file" in await refusal(ctx, "pipe")
        assert "regular file" in await refusal(ctx, "/dev/zero")

    @pytest.mark.parametrize(
        ("name", "data"),
        [("a.zip", b"text"), ("A.EXE", b"text"), ("nul", b"a\0b"), ("control", b"\x01\x02abc"), ("late", b"a" * 4095 + b"\0")],
    )
    async def test_binary_files(self, ctx: ToolContext, project: Path, name: str, data: bytes) -> None:
        (project / name).write_bytes(data)
        assert await refusal(ctx, name) == f"Cannot read binary file: {project / name}"

    @pytest.mark.parametrize("data", [b"\x01\x02abcdef", b"a" * 4096 + b"\0", "日本語".encode()])
    async def test_text_that_is_not_binary(self, ctx: ToolContext, project: Path, data: bytes) -> None:
        (project / "a").write_bytes(data)
        assert (await read(ctx, "a")).output.startswith("<file>")


class TestAttachments:
    async def test_an_image(self, ctx: ToolContext, project: Path, times: FileTimes) -> None:
        (project / "a.png").write_bytes(PNG)
        result = await read(ctx, "a.png", times)
        assert result.output == "Image read successfully"
        assert result.metadata == {"preview": "Image read successfully", "truncated": False}
        [file] = result.attachments
        assert (file.mime, file.filename) == ("image/png", "a.png")
        assert file.url == "data:image/png;base64," + base64.b64encode(PNG).decode()

    async def test_the_content_says_what_image_it_is(self, ctx: ToolContext, project: Path) -> None:
        (project / "a.jpg").write_bytes(PNG)
        assert (await read(ctx, "a.jpg")).attachments[0].mime == "image/png"

    async def test_a_pdf(self, ctx: ToolContext, project: Path) -> None:
        (project / "a.pdf").write_bytes(b"%PDF-1.7\n\0\0")
        result = await read(ctx, "a.pdf")
        assert (result.output, result.attachments[0].mime) == ("PDF read successfully", "application/pdf")

    async def test_svg_is_text(self, ctx: ToolContext, project: Path) -> None:
        (project / "a.svg").write_text("<svg/>")
        assert "00001| <svg/>" in (await read(ctx, "a.svg")).output

    async def test_too_large(self, ctx: ToolContext, project: Path) -> None:
        path = project / "a.png"
        path.write_bytes(PNG)
        os.truncate(path, MAX_ATTACHMENT_BYTES + 1)
        assert "too large" in await refusal(ctx, "a.png")


def test_numbers_are_coerced() -> None:
    args = ReadParameters.model_validate({"filePath": "a", "offset": "10", "limit": 5.0})
    assert (args.offset, args.limit) == (10, 5)
