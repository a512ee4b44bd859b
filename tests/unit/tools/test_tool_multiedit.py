from pathlib import Path

import pytest
from tool_host import FakeHost

from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin.edit import MultiEditParameters, MultiEditTool
from app.tools.text_file import FileLocks, FileTimes

Edit = dict[str, str | bool]


def edit(old: str, new: str, **more: bool) -> Edit:
    return {"oldString": old, "newString": new, **more}


async def run(ctx: ToolContext, times: FileTimes, name: str, *edits: Edit) -> ToolResult:
    args = MultiEditParameters.model_validate({"filePath": name, "edits": list(edits)})
    return await MultiEditTool(times, FileLocks()).execute(args, ctx)


@pytest.fixture
def file(project: Path) -> Path:
    path = project / "a.txt"
    path.write_text("one\ntwo\ntwo\n")
    return path


@pytest.fixture
def times(ctx: ToolContext, file: Path) -> FileTimes:
    times = FileTimes()
    times.record(ctx.session_id, file)
    return times


async def test_each_edit_sees_the_outcome_of_the_one_before(
    ctx: ToolContext, times: FileTimes, host: FakeHost, file: Path
) -> None:
    result = await run(ctx, times, "a.txt", edit("one", "1"), edit("1\ntwo", "1\n2"), edit("two", "3", replaceAll=True))
    assert file.read_text() == "1\n2\n3\n"
    assert result.metadata["filediff"]["before"] == "one\ntwo\ntwo\n"
    assert result.metadata["filediff"]["after"] == "1\n2\n3\n"
    assert host.permissions == ["edit"]
    assert host.asks[0].metadata["diff"] == result.metadata["diff"]
    assert host.edited == [file]


async def test_if_one_fails_none_is_made(ctx: ToolContext, times: FileTimes, host: FakeHost, file: Path) -> None:
    with pytest.raises(ToolError, match=r"Edit 2 of 2 failed, so none was made: oldString not found"):
        await run(ctx, times, "a.txt", edit("one", "1"), edit("three", "3"))
    assert file.read_text() == "one\ntwo\ntwo\n"
    assert host.asks == []


async def test_a_file_is_created_and_edited(ctx: ToolContext, times: FileTimes, project: Path) -> None:
    await run(ctx, times, "new.txt", edit("", "a b"), edit("b", "c"))
    assert (project / "new.txt").read_text() == "a c"


async def test_an_unread_file(ctx: ToolContext, file: Path) -> None:
    with pytest.raises(ToolError, match="You must read file"):
        await run(ctx, FileTimes(), "a.txt", edit("one", "1"))


@pytest.mark.parametrize(
    ("name", "edits", "message"),
    [
        ("", [edit("one", "1")], "filePath"),
        ("a.txt", [], "at least one"),
        ("a.txt", [edit("one", "one")], "nothing to change"),
        ("a.txt", [edit("one", "1"), edit("", "all")], "Only the first"),
    ],
)
async def test_pointless_calls(
    ctx: ToolContext, times: FileTimes, host: FakeHost, name: str, edits: list[Edit], message: str
) -> None:
    with pytest.raises(ToolError, match=message):
        await run(ctx, times, name, *edits)
    assert host.asks == []
