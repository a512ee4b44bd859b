from pathlib import Path

import pytest
from tool_host import FakeHost

from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin.edit import WriteParameters, WriteTool
from app.tools.builtin.read import ReadParameters, ReadTool
from app.tools.text_file import FileLocks, FileTimes


@pytest.fixture
def times() -> FileTimes:
    return FileTimes()


async def write(ctx: ToolContext, times: FileTimes, name: str | Path, content: str) -> ToolResult:
    args = WriteParameters.model_validate({"filePath": str(name), "content": content})
    return await WriteTool(times, FileLocks()).execute(args, ctx)


async def test_a_new_file(ctx: ToolContext, times: FileTimes, host: FakeHost, project: Path) -> None:
    path = project / "some" / "folder" / "b.txt"
    result = await write(ctx, times, "some/folder/b.txt", "new\n")
    assert path.read_bytes() == b"new\n"
    assert result.output == "Wrote file successfully."
    assert result.metadata == {"diagnostics": {}, "filepath": str(path), "exists": False}
    assert host.edited == [path]
    [ask] = host.asks
    assert (ask.permission, ask.always) == ("edit", ["*"])
    assert ask.patterns == [result.title] == [str(path)[1:]]
    assert ask.metadata["filepath"] == str(path)
    assert ask.metadata["diff"].endswith("@@ -0,0 +1,1 @@\n+new\n")


async def test_an_existing_file_must_have_been_read(ctx: ToolContext, times: FileTimes, host: FakeHost, project: Path) -> None:
    (project / "a.txt").write_text("old\n")
    with pytest.raises(ToolError, match="You must read file"):
        await write(ctx, times, "a.txt", "new\n")
    assert host.asks == []
    await ReadTool(times).execute(ReadParameters(file_path="a.txt"), ctx)
    result = await write(ctx, times, "a.txt", "new\n")
    assert result.metadata["exists"] is True
    assert (result.metadata["filediff"]["before"], result.metadata["filediff"]["after"]) == ("old\n", "new\n")
    assert "-old\n+new\n" in host.asks[-1].metadata["diff"]
    assert (project / "a.txt").read_text() == "new\n"


async def test_the_check_can_be_turned_off(ctx: ToolContext, project: Path) -> None:
    (project / "a.txt").write_text("old")
    await write(ctx, FileTimes(check_disabled=True), "a.txt", "new")
    assert (project / "a.txt").read_text() == "new"


async def test_a_file_that_appears_while_asking_is_not_overwritten(
    ctx: ToolContext, times: FileTimes, host: FakeHost, project: Path
) -> None:
    host.on_ask = lambda ask: (project / "a.txt").write_text("someone else's")
    with pytest.raises(ToolError, match="changed by someone else"):
        await write(ctx, times, "a.txt", "mine")
    assert (project / "a.txt").read_text() == "someone else's"


@pytest.mark.parametrize(("name", "message"), [("", "filePath"), ("src", "directory"), ("src/a\0", "NUL")])
async def test_what_cannot_be_written(ctx: ToolContext, times: FileTimes, project: Path, name: str, message: str) -> None:
    (project / "src").mkdir()
    with pytest.raises(ToolError, match=message):
        await write(ctx, times, name, "x")


async def test_text_that_is_no_utf8(ctx: ToolContext, times: FileTimes, host: FakeHost, project: Path) -> None:
    with pytest.raises(ToolError, match="UTF-8"):
        await write(ctx, times, "a.txt", "half a pair: \ud83d")
    assert (host.asks, list(project.iterdir())) == ([], [])
