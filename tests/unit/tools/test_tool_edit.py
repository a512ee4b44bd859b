"""The tools that change one file: edit, multiedit, write."""

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ordinary_user import ordinary_user
from tool_host import FakeHost, MakeContext, run

from app.permissions.service import PermissionRejected
from app.tools.base import ToolContext, ToolError, ToolPermission, ToolResult
from app.tools.builtin.edit import EditTool, MultiEditTool, WriteTool
from app.tools.builtin.read import ReadTool
from app.tools.changes import FileEditor
from app.tools.text_file import FileTimes, Stamp, hold_all
from app.util.tasks import ProcessLocks


class Workbench:
    """One server's tools."""

    def __init__(self, ctx: ToolContext, times: FileTimes | None = None) -> None:
        self.ctx = ctx
        self.times, self.locks = times or FileTimes(), ProcessLocks()

    async def require_unlocked(self, path: Path) -> None:
        async with asyncio.timeout(60), hold_all(self.locks, [path]):
            pass

    def file(self, name: str, content: str | bytes) -> Path:
        """A file that the session has read."""
        path = self.ctx.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.times.record(self.ctx.session_id, path, Stamp.of(path.stat()))
        return path

    async def run(self, tool: Any, name: str | Path, ctx: ToolContext | None = None, **given: Any) -> ToolResult:
        return await run(tool(FileEditor(self.times, self.locks)), ctx or self.ctx, filePath=str(name), **given)

    async def edit(self, name: str | Path, old: str, new: str, ctx: ToolContext | None = None, **more: Any) -> ToolResult:
        return await self.run(EditTool, name, ctx, **replaced(old, new, **more))


def replaced(old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"oldString": old, "newString": new, **more}


@pytest.fixture
def bench(ctx: ToolContext) -> Workbench:
    return Workbench(ctx)


async def test_a_replacement_is_made_shown_and_announced(bench: Workbench, host: FakeHost) -> None:
    path = bench.file("a.txt", "hello\nworld\n")
    result = await bench.edit("a.txt", "hello", "goodbye")
    assert path.read_text() == "goodbye\nworld\n"
    assert result.output == "Edit applied successfully."
    diff = f"Index: {path}\n{'=' * 67}\n--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n-hello\n+goodbye\n world\n"
    texts = {"before": "hello\nworld\n", "after": "goodbye\nworld\n", "patch": diff}
    filediff = {"file": str(path), **texts, "additions": 1, "deletions": 1}
    assert result.metadata == {"diagnostics": {}, "diff": diff, "filediff": filediff}
    assert host.edited == [path]
    assert host.updates == [{"title": None, "metadata": result.metadata}]
    await bench.edit("a.txt", "world", "moon")
    assert path.read_text() == "goodbye\nmoon\n", "the session need not read it again"


async def test_an_edit_is_asked_for_by_its_name_in_the_worktree(make_ctx: MakeContext, host: FakeHost, project: Path) -> None:
    (project / "pkg").mkdir()
    bench = Workbench(make_ctx(directory=project / "pkg", worktree=project))
    path = bench.file("a.txt", "one")
    result = await bench.edit("a.txt", "one", "two")
    [ask] = host.asks
    assert (ask.permission, ask.patterns, ask.always) == ("edit", ["pkg/a.txt"], ["*"])
    assert ask.metadata == {"filepath": str(path), "diff": result.metadata["diff"]}
    assert result.title == "pkg/a.txt"


async def test_a_refused_edit_changes_nothing(bench: Workbench, host: FakeHost) -> None:
    path = bench.file("a.txt", "one")
    host.refuse = PermissionRejected()
    with pytest.raises(PermissionRejected):
        await bench.edit("a.txt", "one", "two")
    assert (path.read_text(), host.edited) == ("one", [])
    await bench.require_unlocked(path)


async def test_several_places_are_replaced_only_on_request(bench: Workbench) -> None:
    path = bench.file("a.txt", "x y x")
    with pytest.raises(ToolError, match="multiple matches"):
        await bench.edit("a.txt", "x", "z")
    await bench.edit("a.txt", "x", "z", replaceAll=True)
    assert path.read_text() == "z y z"


@pytest.mark.parametrize(
    ("tool", "name", "given", "message"),
    [
        (EditTool, "unread", replaced("one", "two"), "You must read file"),
        (EditTool, "changed", replaced("one", "two"), "modified since it was last read"),
        (EditTool, "none", replaced("one", "two"), "File .*/none not found"),
        (EditTool, "src", replaced("one", "two"), "Path is a directory"),
        (EditTool, "src", replaced("", "two"), "Path is a directory"),
        (EditTool, "a.txt", replaced("three", "two"), "oldString not found in content"),
        (EditTool, "", replaced("one", "two"), "filePath"),
        (EditTool, "a.txt", replaced("same", "same"), "nothing to change"),
        (EditTool, "a.txt", replaced("", ""), "nothing to change"),
        (EditTool, "latin", replaced("{\ncaf\ufffd\n}", "{\ntea\n}"), "not valid UTF-8"),
        (MultiEditTool, "", {"edits": [replaced("one", "1")]}, "filePath"),
        (MultiEditTool, "a.txt", {"edits": []}, "at least one"),
        (MultiEditTool, "a.txt", {"edits": [replaced("one", "one")]}, "nothing to change"),
        (MultiEditTool, "a.txt", {"edits": [replaced("one", "1"), replaced("", "all")]}, "Only the first"),
        (
            MultiEditTool,
            "a.txt",
            {"edits": [replaced("one", "1"), replaced("no", "")]},
            "Edit 2 of 2 failed, so none was made: old",
        ),
        (MultiEditTool, "unread", {"edits": [replaced("one", "1")]}, "You must read file"),
        (WriteTool, "", {"content": "x"}, "filePath"),
        (WriteTool, "src", {"content": "x"}, "directory"),
        (WriteTool, "src/a\0", {"content": "x"}, "NUL"),
        (WriteTool, "new", {"content": "half a pair: \ud83d"}, "UTF-8"),
        (WriteTool, "unread", {"content": "new"}, "You must read file"),
    ],
)
async def test_what_cannot_be_changed_is_refused_before_it_is_asked_for(
    bench: Workbench, host: FakeHost, project: Path, tool: Any, name: str, given: dict[str, Any], message: str
) -> None:
    bench.file("a.txt", "one")
    bench.file("latin", b"{\ncaf\xe9\n}\n")
    bench.file("changed", "one").write_text("one, and more")
    (project / "unread").write_text("one")
    (project / "src").mkdir()
    before = {path.name: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    with pytest.raises(ToolError, match=message):
        await bench.run(tool, name, **given)
    assert {path.name: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
    assert host.asks == []


async def test_another_sessions_reading_does_not_count(bench: Workbench, make_ctx: MakeContext) -> None:
    bench.file("a.txt", "one")
    with pytest.raises(ToolError, match="You must read file"):
        await bench.edit("a.txt", "one", "two", make_ctx(session_id="ses_other"))


async def test_a_file_that_changes_or_appears_while_asking_is_left_alone(bench: Workbench, host: FakeHost) -> None:
    path = bench.file("a.txt", "one")
    host.on_ask = lambda ask: path.write_text("someone else's")
    with pytest.raises(ToolError, match="changed by someone else"):
        await bench.edit("a.txt", "one", "two")
    assert path.read_text() == "someone else's"
    path.unlink()
    with pytest.raises(ToolError, match="changed by someone else"):
        await bench.run(WriteTool, "a.txt", content="mine")
    assert path.read_text() == "someone else's"


async def test_an_empty_old_string_is_the_whole_file(bench: Workbench, project: Path) -> None:
    result = await bench.edit("new/a.txt", "", "text\n")
    assert (project / "new" / "a.txt").read_text() == "text\n"
    assert result.metadata["filediff"]["before"] == ""
    (project / "a.txt").write_text("old")
    await bench.edit("a.txt", "", "new")
    await bench.edit("a.txt", "new", "newer")
    assert (project / "a.txt").read_text() == "newer", "overwriting counts as reading"


@pytest.mark.parametrize(
    ("content", "outcome"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\r\n3\r\n", b"\xef\xbb\xbf1\r\n2\r\n3\r\n"),
        (b"/* caf\xe9 */\none\ntwo\n", b"/* caf\xe9 */\n1\n2\n"),
    ],
    ids=["CRLF and byte order mark", "no UTF-8"],
)
async def test_bytes_beside_the_edit_and_the_mode_stay(bench: Workbench, content: bytes, outcome: bytes) -> None:
    path = bench.file("a.c", content)
    path.chmod(0o755)
    result = await bench.edit("a.c", "one\ntwo", "1\n2")
    assert path.read_bytes() == outcome
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert ("\ufffd" in result.metadata["filediff"]["before"]) == (b"\xe9" in content)
    result.metadata["diff"].encode()


async def test_a_file_that_is_read_only_is_left_alone(host: FakeHost, make_ctx: MakeContext) -> None:
    with ordinary_user() as directory:
        bench = Workbench(make_ctx(directory=directory))
        path = bench.file("a.txt", "old")
        path.chmod(0o444)
        for tool, given in ((EditTool, replaced("old", "new")), (WriteTool, {"content": "new"})):
            with pytest.raises(ToolError, match="Permission denied"):
                await bench.run(tool, path, **given)
        assert path.read_text() == "old" and host.asks == []


async def test_a_symlink_stays_one_and_its_target_is_asked_for(bench: Workbench, host: FakeHost, project: Path) -> None:
    target = bench.file("../target.txt", "one").resolve()
    (project / "link.txt").symlink_to(target)
    await bench.edit("link.txt", "one", "two")
    assert (project / "link.txt").is_symlink()
    assert target.read_text() == "two"
    assert host.permissions == ["external_directory", "edit"]
    assert host.asks[1].metadata["filepath"] == str(target)
    assert os.listdir(project) == ["link.txt"]


async def test_parallel_edits_of_one_file_all_land(bench: Workbench) -> None:
    path = bench.file("a.txt", " ".join(f"<{number}>" for number in range(10)))
    await asyncio.gather(*[bench.edit("a.txt", f"<{number}>", f"[{number}]") for number in range(10)])
    assert path.read_text() == " ".join(f"[{number}]" for number in range(10))
    await bench.require_unlocked(path)


class SlowHost(FakeHost):
    """Answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def require_permission(self, needed: ToolPermission) -> None:
        self.asked.set()
        await self.may_answer.wait()


async def test_an_edit_that_waits_for_its_answer_holds_back_the_next(bench: Workbench, make_ctx: MakeContext) -> None:
    """The second must be computed from what the first leaves, and ask with that diff."""
    path, slow = bench.file("a.txt", "one two"), SlowHost()
    first = asyncio.create_task(bench.edit("a.txt", "one", "1", make_ctx(host=slow)))
    await slow.asked.wait()
    second = asyncio.create_task(bench.edit("a.txt", "two", "2"))
    slow.may_answer.set()
    await asyncio.gather(first, second)
    assert path.read_text() == "1 2"
    assert second.result().metadata["filediff"]["before"] == "1 two"


async def test_an_edit_that_is_cancelled_while_asking_changes_nothing(bench: Workbench, make_ctx: MakeContext) -> None:
    path, slow = bench.file("a.txt", "one"), SlowHost()
    task = asyncio.create_task(bench.edit("a.txt", "one", "two", make_ctx(host=slow)))
    await slow.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert path.read_text() == "one"
    await bench.require_unlocked(path)


async def test_a_file_of_five_megabytes_is_edited(bench: Workbench) -> None:
    path = bench.file("big.txt", "".join(f"line {number}\n" for number in range(400_000)))
    result = await bench.edit("big.txt", "line 123456\n", "changed\n")
    assert "\nchanged\n" in path.read_text()
    assert (result.metadata["filediff"]["additions"], len(result.metadata["diff"])) == (1, pytest.approx(400, abs=200))


async def test_each_of_several_edits_sees_the_outcome_of_the_one_before(bench: Workbench, host: FakeHost) -> None:
    file = bench.file("a.txt", "one\ntwo\ntwo\n")
    edits = [replaced("one", "1"), replaced("1\ntwo", "1\n2"), replaced("two", "3", replaceAll=True)]
    result = await bench.run(MultiEditTool, "a.txt", edits=edits)
    assert file.read_text() == result.metadata["filediff"]["after"] == "1\n2\n3\n"
    assert result.metadata["filediff"]["before"] == "one\ntwo\ntwo\n"
    assert host.permissions == ["edit"]
    assert host.asks[0].metadata["diff"] == result.metadata["diff"]
    assert host.edited == [file]
    await bench.run(MultiEditTool, "new.txt", edits=[replaced("", "a b"), replaced("b", "c")])
    assert file.with_name("new.txt").read_text() == "a c", "the first may make the file"


async def test_a_new_file_is_written_with_its_folders(bench: Workbench, host: FakeHost, project: Path) -> None:
    path = project / "some" / "folder" / "b.txt"
    result = await bench.run(WriteTool, "some/folder/b.txt", content="new\n")
    assert path.read_bytes() == b"new\n"
    assert result.output == "Wrote file successfully."
    assert result.metadata == {"diagnostics": {}, "filepath": str(path), "exists": False}
    assert host.edited == [path]
    [ask] = host.asks
    assert (ask.permission, ask.always) == ("edit", ["*"])
    assert ask.patterns == [result.title] == [str(path)[1:]]
    assert ask.metadata["filepath"] == str(path)
    assert ask.metadata["diff"].endswith("@@ -0,0 +1,1 @@\n+new\n")


async def test_a_file_that_was_read_is_overwritten(bench: Workbench, host: FakeHost, project: Path) -> None:
    (project / "a.txt").write_text("old\n")
    await run(ReadTool(bench.times), bench.ctx, filePath="a.txt")
    result = await bench.run(WriteTool, "a.txt", content="new\n")
    assert result.metadata["exists"] is True
    assert (result.metadata["filediff"]["before"], result.metadata["filediff"]["after"]) == ("old\n", "new\n")
    assert "-old\n+new\n" in host.asks[-1].metadata["diff"]
    assert (project / "a.txt").read_text() == "new\n"
    (project / "a.txt").write_text("changed\n")
    await Workbench(bench.ctx, FileTimes(check_disabled=True)).run(WriteTool, "a.txt", content="newer\n")
    assert (project / "a.txt").read_text() == "newer\n", "whether it was read need not be checked"
