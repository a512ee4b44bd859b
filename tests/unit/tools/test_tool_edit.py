import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tool_host import FakeHost, MakeContext

from app.permissions.service import PermissionRejected
from app.tools.base import ToolContext, ToolError, ToolPermission, ToolResult
from app.tools.builtin.edit import EditParameters, EditTool
from app.tools.text_file import FileLocks, FileTimes


class Workbench:
    """One server's edit tool."""

    def __init__(self, ctx: ToolContext) -> None:
        self.ctx = ctx
        self.times = FileTimes()
        self.locks = FileLocks()
        self.tool = EditTool(self.times, self.locks)

    async def require_unlocked(self, path: Path) -> None:
        async with asyncio.timeout(60), self.locks.hold(path):
            pass

    def file(self, name: str, content: str | bytes) -> Path:
        """A file that the session has read."""
        path = self.ctx.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.times.record(self.ctx.session_id, path)
        return path

    async def edit(self, name: str | Path, old: str, new: str, ctx: ToolContext | None = None, **more: Any) -> ToolResult:
        args = EditParameters.model_validate({"filePath": str(name), "oldString": old, "newString": new, **more})
        return await self.tool.execute(args, ctx or self.ctx)


@pytest.fixture
def bench(ctx: ToolContext) -> Workbench:
    return Workbench(ctx)


async def test_a_replacement_and_its_metadata(bench: Workbench, host: FakeHost, project: Path) -> None:
    path = bench.file("a.txt", "hello\nworld\n")
    result = await bench.edit("a.txt", "hello", "goodbye")
    assert path.read_text() == "goodbye\nworld\n"
    assert result.output == "Edit applied successfully."
    diff = f"Index: {path}\n{'=' * 67}\n--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n-hello\n+goodbye\n world\n"
    assert result.metadata == {
        "diagnostics": {},
        "diff": diff,
        "filediff": {
            "file": str(path),
            "before": "hello\nworld\n",
            "after": "goodbye\nworld\n",
            "patch": diff,
            "additions": 1,
            "deletions": 1,
        },
    }
    assert host.edited == [path]
    assert host.updates == [{"title": None, "metadata": result.metadata}]


async def test_what_is_asked(make_ctx: MakeContext, host: FakeHost, project: Path) -> None:
    (project / "pkg").mkdir()
    bench = Workbench(make_ctx(directory=project / "pkg", worktree=project))
    path = bench.file("a.txt", "one")
    result = await bench.edit("a.txt", "one", "two")
    [ask] = host.asks
    assert (ask.permission, ask.patterns, ask.always) == ("edit", ["pkg/a.txt"], ["*"])
    assert ask.metadata == {"filepath": str(path), "diff": result.metadata["diff"]}
    assert result.title == "pkg/a.txt"


async def test_refused_means_unchanged(bench: Workbench, host: FakeHost) -> None:
    path = bench.file("a.txt", "one")
    host.refuse = PermissionRejected()
    with pytest.raises(PermissionRejected):
        await bench.edit("a.txt", "one", "two")
    assert (path.read_text(), host.edited) == ("one", [])
    await bench.require_unlocked(path)


async def test_edits_follow_each_other_without_reading_again(bench: Workbench) -> None:
    path = bench.file("a.txt", "one two")
    await bench.edit("a.txt", "one", "1")
    await bench.edit("a.txt", "two", "2")
    assert path.read_text() == "1 2"


async def test_replace_all(bench: Workbench) -> None:
    path = bench.file("a.txt", "x y x")
    with pytest.raises(ToolError, match="multiple matches"):
        await bench.edit("a.txt", "x", "z")
    await bench.edit("a.txt", "x", "z", replaceAll=True)
    assert path.read_text() == "z y z"


class TestRefusals:
    async def test_an_unread_file(self, bench: Workbench, host: FakeHost, project: Path) -> None:
        (project / "a.txt").write_text("one")
        with pytest.raises(ToolError, match="You must read file"):
            await bench.edit("a.txt", "one", "two")
        assert host.asks == []

    async def test_another_sessions_reading_does_not_count(self, bench: Workbench, make_ctx: MakeContext) -> None:
        bench.file("a.txt", "one")
        with pytest.raises(ToolError, match="You must read file"):
            await bench.edit("a.txt", "one", "two", make_ctx(session_id="ses_other"))

    async def test_a_file_that_changed_since(self, bench: Workbench) -> None:
        path = bench.file("a.txt", "one")
        path.write_text("one, and more")
        with pytest.raises(ToolError, match="modified since it was last read"):
            await bench.edit("a.txt", "one", "two")

    async def test_a_file_that_changes_while_asking(self, bench: Workbench, host: FakeHost) -> None:
        path = bench.file("a.txt", "one")
        host.on_ask = lambda ask: path.write_text("someone else's text")
        with pytest.raises(ToolError, match="changed by someone else"):
            await bench.edit("a.txt", "one", "two")
        assert path.read_text() == "someone else's text"

    async def test_a_missing_file(self, bench: Workbench, project: Path) -> None:
        with pytest.raises(ToolError, match=f"File {project / 'none'} not found"):
            await bench.edit("none", "one", "two")

    async def test_a_directory(self, bench: Workbench, project: Path) -> None:
        (project / "src").mkdir()
        for old in ("one", ""):
            with pytest.raises(ToolError, match="Path is a directory"):
                await bench.edit("src", old, "two")

    async def test_text_that_is_not_there(self, bench: Workbench, host: FakeHost) -> None:
        bench.file("a.txt", "one")
        with pytest.raises(ToolError, match="oldString not found in content"):
            await bench.edit("a.txt", "three", "two")
        assert host.asks == []

    @pytest.mark.parametrize(("name", "old", "new"), [("", "one", "two"), ("a.txt", "same", "same"), ("a.txt", "", "")])
    async def test_pointless_calls(self, bench: Workbench, host: FakeHost, name: str, old: str, new: str) -> None:
        with pytest.raises(ToolError):
            await bench.edit(name, old, new)
        assert host.asks == []


class TestWholeFile:
    async def test_an_empty_old_string_creates(self, bench: Workbench, project: Path) -> None:
        result = await bench.edit("new/a.txt", "", "text\n")
        assert (project / "new" / "a.txt").read_text() == "text\n"
        assert result.metadata["filediff"]["before"] == ""

    async def test_an_empty_old_string_overwrites_and_counts_as_read(self, bench: Workbench, project: Path) -> None:
        (project / "a.txt").write_text("old")
        await bench.edit("a.txt", "", "new")
        await bench.edit("a.txt", "new", "newer")
        assert (project / "a.txt").read_text() == "newer"


class TestBytes:
    async def test_crlf_and_byte_order_mark_stay(self, bench: Workbench) -> None:
        path = bench.file("a.txt", b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
        await bench.edit("a.txt", "one\ntwo", "1\n2")
        assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree\r\n"

    async def test_bytes_that_are_no_utf8_stay(self, bench: Workbench, host: FakeHost) -> None:
        path = bench.file("a.c", b"/* caf\xe9 */\nint x;\n")
        result = await bench.edit("a.c", "int x;", "int y;")
        assert path.read_bytes() == b"/* caf\xe9 */\nint y;\n"
        assert result.metadata["filediff"]["before"] == "/* caf\ufffd */\nint x;\n"
        result.metadata["diff"].encode()

    async def test_bytes_that_are_no_utf8_cannot_be_edited_away(self, bench: Workbench, host: FakeHost) -> None:
        path = bench.file("a.c", b"{\ncaf\xe9\n}\n")
        with pytest.raises(ToolError, match="not valid UTF-8"):
            await bench.edit("a.c", "{\ncaf\ufffd\n}", "{\ntea\n}")
        assert path.read_bytes() == b"{\ncaf\xe9\n}\n"
        assert host.asks == []

    async def test_mode_stays(self, bench: Workbench) -> None:
        path = bench.file("run.sh", "one")
        path.chmod(0o755)
        await bench.edit("run.sh", "one", "two")
        assert stat.S_IMODE(path.stat().st_mode) == 0o755

    async def test_a_symlink_stays_one_and_its_target_is_asked_for(self, bench: Workbench, host: FakeHost, project: Path) -> None:
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


async def test_an_edit_that_waits_for_its_answer_holds_back_the_next(bench: Workbench, make_ctx: MakeContext) -> None:
    """The second must be computed from what the first leaves, and ask with that diff."""
    path = bench.file("a.txt", "one two")
    asked, answer = asyncio.Event(), asyncio.Event()

    class SlowHost(FakeHost):
        async def require_permission(self, needed: ToolPermission) -> None:
            asked.set()
            await answer.wait()

    first = asyncio.create_task(bench.edit("a.txt", "one", "1", make_ctx(host=SlowHost())))
    await asked.wait()
    second = asyncio.create_task(bench.edit("a.txt", "two", "2"))
    answer.set()
    await asyncio.gather(first, second)
    assert path.read_text() == "1 2"
    assert second.result().metadata["filediff"]["before"] == "1 two"


async def test_cancelled_while_asking(bench: Workbench, make_ctx: MakeContext) -> None:
    path = bench.file("a.txt", "one")
    asked = asyncio.Event()

    class SilentHost(FakeHost):
        async def require_permission(self, needed: ToolPermission) -> None:
            asked.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(bench.edit("a.txt", "one", "two", make_ctx(host=SilentHost())))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert path.read_text() == "one"
    await bench.require_unlocked(path)


async def test_five_megabytes(bench: Workbench) -> None:
    path = bench.file("big.txt", "".join(f"line {number}\n" for number in range(400_000)))
    result = await bench.edit("big.txt", "line 123456\n", "changed\n")
    assert "\nchanged\n" in path.read_text()
    assert (result.metadata["filediff"]["additions"], len(result.metadata["diff"])) == (1, pytest.approx(400, abs=200))
