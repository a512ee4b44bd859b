import os
import stat
from pathlib import Path

import pytest
from tool_host import FakeHost, MakeContext

from app.permissions.service import PermissionRejected
from app.project.sandbox.scope import SandboxWorkspace, hold
from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin.apply_patch import ApplyPatchParameters, ApplyPatchTool, FileBatch, write_batch
from app.tools.text_file import FileLocks, FileTimes


@pytest.fixture
def ctx(make_ctx: MakeContext, project: Path) -> ToolContext:
    return make_ctx(worktree=project)


async def patch(ctx: ToolContext, *lines: str, times: FileTimes | None = None) -> ToolResult:
    text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    args = ApplyPatchParameters.model_validate({"patchText": text})
    return await ApplyPatchTool(times or FileTimes(), FileLocks()).execute(args, ctx)


async def refusal(ctx: ToolContext, *lines: str) -> str:
    with pytest.raises(ToolError) as caught:
        await patch(ctx, *lines)
    return str(caught.value)


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


async def test_every_kind_of_change(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    (project / "up.txt").write_text("one\ntwo\n")
    (project / "from.txt").write_text("a\nb\n")
    (project / "gone.txt").write_text("x\n")
    result = await patch(
        ctx,
        "*** Add File: sub/new.txt",
        "+fresh",
        "*** Update File: up.txt",
        "@@",
        " one",
        "-two",
        "+2",
        "+3",
        "*** Update File: from.txt",
        "*** Move to: sub/to.txt",
        "@@",
        "-a",
        "+A",
        "*** Delete File: gone.txt",
    )
    assert tree(project) == {"sub/new.txt": "fresh\n", "up.txt": "one\n2\n3\n", "sub/to.txt": "A\nb\n"}
    assert result.title == result.output
    assert result.output.split("\n")[1:] == ["A sub/new.txt", "M up.txt", "M sub/to.txt", "D gone.txt"]
    assert host.edited == [project / "sub/new.txt", project / "up.txt", project / "sub/to.txt"]

    [ask] = host.asks
    names = ["sub/new.txt", "up.txt", "from.txt", "sub/to.txt", "gone.txt"]
    assert (ask.permission, ask.patterns, ask.always) == ("edit", names, ["*"])
    assert ask.metadata["filepath"] == ", ".join(names)
    assert ask.metadata["diff"] == result.metadata["diff"]
    assert ask.metadata["files"] == result.metadata["files"]

    files = {entry["type"]: entry for entry in result.metadata["files"]}
    assert list(files) == ["add", "update", "move", "delete"]
    assert files["update"] == {
        "filePath": str(project / "up.txt"),
        "relativePath": "up.txt",
        "type": "update",
        "diff": files["update"]["diff"],
        "before": "one\ntwo\n",
        "after": "one\n2\n3\n",
        "additions": 2,
        "deletions": 1,
    }
    assert files["move"]["movePath"] == str(project / "sub/to.txt")
    assert (files["move"]["filePath"], files["move"]["relativePath"]) == (str(project / "from.txt"), "sub/to.txt")
    assert (files["delete"]["before"], files["delete"]["after"], files["delete"]["deletions"]) == ("x\n", "", 1)
    assert all(entry["diff"] in result.metadata["diff"] for entry in files.values())


async def test_reading_first_is_not_needed_and_writing_counts_as_knowing(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text("one\n")
    times = FileTimes()
    await patch(ctx, "*** Update File: a", "@@", "-one", "+two", times=times)
    times.check(ctx.session_id, project / "a")


async def test_one_file_may_change_twice(ctx: ToolContext, project: Path) -> None:
    result = await patch(ctx, "*** Add File: a", "+one", "*** Update File: a", "@@", "-one", "+two")
    assert tree(project) == {"a": "two\n"}
    assert [entry["before"] for entry in result.metadata["files"]] == ["", "one\n"]


async def test_adding_over_a_file_shows_what_is_lost(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    (project / "a").write_text("old\n")
    await patch(ctx, "*** Add File: a", "+new")
    assert tree(project) == {"a": "new\n"}
    assert "-old\n+new\n" in host.asks[0].metadata["diff"]


async def test_bytes_and_mode_move_along(ctx: ToolContext, project: Path) -> None:
    source = project / "run.sh"
    source.write_bytes(b"\xef\xbb\xbfcaf\xe9\r\nrun\r\n")
    source.chmod(0o755)
    await patch(ctx, "*** Update File: run.sh", "*** Move to: bin/run.sh", "@@", "-run", "+go")
    target = project / "bin" / "run.sh"
    assert target.read_bytes() == b"\xef\xbb\xbfcaf\xe9\r\ngo\r\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert not source.exists()


async def test_a_move_alone(ctx: ToolContext, project: Path) -> None:
    (project / "a").write_text("x")
    await patch(ctx, "*** Update File: a", "*** Move to: b")
    assert tree(project) == {"b": "x"}


class TestVerification:
    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            (["*** Update File: none", "@@", "-a"], "does not exist"),
            (["*** Delete File: none"], "does not exist"),
            (["*** Update File: a", "@@", "-missing"], "not found in"),
            (["*** Update File: a", "*** Move to: b"], "exists already"),
            (["*** Delete File: src"], "directory"),
            (["rubbish"], "line 3"),
            (["*** Delete File: link"], "symbolic link"),
            (["*** Update File: latin", "@@", "-caf\ufffd", "+tea"], "not found in"),
            (["*** Add File: half", "+\ud83d"], "UTF-8"),
        ],
    )
    async def test_nothing_is_asked_or_changed(
        self, ctx: ToolContext, host: FakeHost, project: Path, lines: list[str], message: str
    ) -> None:
        (project / "a").write_text("a\n")
        (project / "b").write_text("b\n")
        (project / "src").mkdir()
        (project / "latin").write_bytes(b"caf\xe9\n")
        (project / "link").symlink_to(project / "a")
        error = await refusal(ctx, "*** Add File: new/file", "+x", *lines)
        assert error.startswith("apply_patch verification failed: ")
        assert message in error
        assert host.asks == []
        assert sorted(os.listdir(project)) == ["a", "b", "latin", "link", "src"]

    async def test_an_empty_patch(self, ctx: ToolContext) -> None:
        assert await refusal(ctx) == "patch rejected: empty patch"

    async def test_no_text(self, ctx: ToolContext) -> None:
        with pytest.raises(ToolError, match="patchText is required"):
            await ApplyPatchTool(FileTimes(), FileLocks()).execute(ApplyPatchParameters(patch_text=" "), ctx)


class TestAsking:
    async def test_every_place_outside_is_asked_before_the_patch(self, ctx: ToolContext, host: FakeHost, project: Path) -> None:
        (project / "a").write_text("x\n")
        await patch(ctx, "*** Update File: a", "*** Move to: ../else/b", "*** Add File: ../c", "+y")
        assert host.permissions == ["external_directory", "external_directory", "edit"]
        assert [ask.metadata["filepath"] for ask in host.asks[:2]] == [
            str(project.parent / "else" / "b"),
            str(project.parent / "c"),
        ]

    async def test_refused_means_unchanged(self, ctx: ToolContext, host: FakeHost, project: Path) -> None:
        host.refuse = PermissionRejected()
        with pytest.raises(PermissionRejected):
            await patch(ctx, "*** Add File: a", "+x")
        assert tree(project) == {}

    async def test_a_file_that_changes_while_asking(self, ctx: ToolContext, host: FakeHost, project: Path) -> None:
        (project / "b").write_text("b\n")
        host.on_ask = lambda ask: (project / "b").write_text("someone else's")
        assert "changed by someone else" in await refusal(ctx, "*** Add File: a", "+x", "*** Update File: b", "@@", "-b", "+B")
        assert tree(project) == {"b": "someone else's"}


class TestRollback:
    async def test_a_failing_write_undoes_the_others(self, ctx: ToolContext, host: FakeHost, project: Path) -> None:
        (project / "a").write_bytes(b"\xef\xbb\xbfcaf\xe9\na\n")
        (project / "a").chmod(0o600)
        (project / "file").write_text("in the way\n")
        error = await refusal(
            ctx,
            "*** Update File: a",
            "@@",
            "-a",
            "+A",
            "*** Add File: new/folder/b",
            "+b",
            "*** Add File: file/below",
            "+c",
        )
        assert "Could not write" in error
        assert (project / "a").read_bytes() == b"\xef\xbb\xbfcaf\xe9\na\n"
        assert stat.S_IMODE((project / "a").stat().st_mode) == 0o600
        assert sorted(os.listdir(project)) == ["a", "file"]
        assert host.edited == []

    def test_a_failing_delete_undoes_the_writes(self, project: Path) -> None:
        class Stubborn(FileBatch):
            def removed(self) -> list[Path]:
                return [project / "folder"]

        (project / "folder").mkdir()
        (project / "a").write_text("old")
        batch = Stubborn()
        batch.put(project / "a", "new")
        batch.put(project / "b", "new")
        with pytest.raises(ToolError, match="Could not delete"):
            write_batch(batch)
        assert tree(project) == {"a": "old"}


@pytest.mark.parametrize("kind", ["link", "other directory"])
async def test_a_project_that_was_replaced_is_not_touched(
    make_ctx: MakeContext, host: FakeHost, project: Path, kind: str
) -> None:
    outside = project.parent / "outside"
    for folder in (project, outside):
        folder.mkdir(exist_ok=True)
        (folder / "from.txt").write_text("a\n")
        (folder / "gone.txt").write_text("a\n")
    workspace = SandboxWorkspace(project, project, held=hold(project, project))
    lines = ("*** Add File: new/made.txt", "+x", "*** Delete File: gone.txt", "*** Update File: from.txt")
    lines = (*lines, "*** Move to: to.txt", "@@", "-a", "+b")

    def replace(_: object) -> None:
        project.rename(project.with_name("aside"))
        project.symlink_to(outside) if kind == "link" else outside.rename(project)
        host.on_ask = lambda ask: None

    host.on_ask = replace
    assert "another directory" in await refusal(make_ctx(sandbox_workspace=workspace), *lines)
    assert tree(project.with_name("aside")) == tree(project) == {"from.txt": "a\n", "gone.txt": "a\n"}
    assert "another directory" in await refusal(make_ctx(sandbox_workspace=workspace), *lines)
    project.unlink() if kind == "link" else project.rename(outside)
    project.with_name("aside").rename(project)
    await patch(make_ctx(sandbox_workspace=workspace), *lines)
    assert tree(project) == {"new/made.txt": "x\n", "to.txt": "b\n"}
