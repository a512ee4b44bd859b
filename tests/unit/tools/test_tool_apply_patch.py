import os
import stat
from pathlib import Path

import pytest
from ordinary_user import ordinary_user
from tool_host import FakeHost, MakeContext, run

from app.permissions.service import PermissionRejected
from app.project.sandbox.scope import SandboxWorkspace, hold
from app.tools.base import ToolContext, ToolError, ToolPermission, ToolResult
from app.tools.builtin.apply_patch import ApplyPatchTool
from app.tools.changes import FileBatch, FileEditor, write_batch
from app.tools.text_file import FileTimes, Stamp
from app.util.tasks import ProcessLocks


@pytest.fixture
def ctx(make_ctx: MakeContext, project: Path) -> ToolContext:
    return make_ctx(worktree=project)


async def patch(ctx: ToolContext, text: str, times: FileTimes | None = None) -> ToolResult:
    tool = ApplyPatchTool(FileEditor(times or FileTimes(), ProcessLocks()))
    return await run(tool, ctx, patchText=f"*** Begin Patch\n{text}\n*** End Patch")


async def refusal(ctx: ToolContext, text: str) -> str:
    with pytest.raises(ToolError) as caught:
        await patch(ctx, text)
    return str(caught.value)


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


EVERY_KIND = """*** Add File: sub/new.txt
+fresh
*** Update File: up.txt
@@
 one
-two
+2
+3
*** Update File: from.txt
*** Move to: sub/to.txt
@@
-a
+A
*** Delete File: gone.txt"""


async def test_a_file_that_is_read_only_is_left_alone(host: FakeHost, make_ctx: MakeContext) -> None:
    with ordinary_user() as directory:
        path = directory / "a"
        path.write_text("old\n")
        path.chmod(0o444)
        ctx = make_ctx(directory=directory)
        for text in ("*** Update File: a\n-old\n+new", "*** Add File: a\n+new"):
            assert "Permission denied" in await refusal(ctx, text)
        assert path.read_text() == "old\n" and host.asks == []
        await patch(ctx, "*** Update File: a\n*** Move to: b\n-old\n+new")
        assert os.listdir(directory) == ["b"]


async def test_every_kind_of_change(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    (project / "up.txt").write_text("one\ntwo\n")
    (project / "from.txt").write_text("a\nb\n")
    (project / "gone.txt").write_text("x\n")
    times = FileTimes()
    result = await patch(ctx, EVERY_KIND, times)
    times.check(ctx.session_id, project / "up.txt", Stamp.of((project / "up.txt").stat()))
    assert tree(project) == {"sub/new.txt": "fresh\n", "up.txt": "one\n2\n3\n", "sub/to.txt": "A\nb\n"}
    assert result.title == result.output
    assert result.output.split("\n")[1:] == ["A sub/new.txt", "M up.txt", "M sub/to.txt", "D gone.txt"]
    assert host.edited == [project / "sub/new.txt", project / "up.txt", project / "sub/to.txt"]

    [ask] = host.asks
    names = ["sub/new.txt", "up.txt", "from.txt", "sub/to.txt", "gone.txt"]
    assert (ask.permission, ask.patterns, ask.always) == ("edit", names, ["*"])
    shown = {key: result.metadata[key] for key in ("diff", "files")}
    assert ask.metadata == {"filepath": ", ".join(names), **shown}
    files = {entry["type"]: entry for entry in result.metadata["files"]}
    assert list(files) == ["add", "update", "move", "delete"]
    update = {"filePath": str(project / "up.txt"), "relativePath": "up.txt", "type": "update", "additions": 2, "deletions": 1}
    assert files["update"] == update | {"diff": files["update"]["diff"], "before": "one\ntwo\n", "after": "one\n2\n3\n"}
    assert files["move"]["movePath"] == str(project / "sub/to.txt")
    assert (files["move"]["filePath"], files["move"]["relativePath"]) == (str(project / "from.txt"), "sub/to.txt")
    assert (files["delete"]["before"], files["delete"]["after"], files["delete"]["deletions"]) == ("x\n", "", 1)
    assert all(entry["diff"] in result.metadata["diff"] for entry in files.values())


async def test_a_file_may_change_twice_and_what_an_added_one_replaces_is_shown(
    ctx: ToolContext, host: FakeHost, project: Path
) -> None:
    (project / "a").write_text("old\n")
    result = await patch(ctx, "*** Add File: a\n+one\n*** Update File: a\n@@\n-one\n+two")
    assert tree(project) == {"a": "two\n"}
    assert [entry["before"] for entry in result.metadata["files"]] == ["old\n", "one\n"]
    assert "-old\n+one\n" in host.asks[0].metadata["diff"]


async def test_bytes_and_mode_move_along(ctx: ToolContext, project: Path) -> None:
    source, target = project / "run.sh", project / "bin" / "run.sh"
    source.write_bytes(b"\xef\xbb\xbfcaf\xe9\r\nrun\r\n")
    source.chmod(0o755)
    await patch(ctx, "*** Update File: run.sh\n*** Move to: bin/run.sh\n@@\n-run\n+go")
    assert target.read_bytes() == b"\xef\xbb\xbfcaf\xe9\r\ngo\r\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    await patch(ctx, "*** Update File: bin/run.sh\n*** Move to: run.sh")
    assert source.read_bytes() == b"\xef\xbb\xbfcaf\xe9\r\ngo\r\n", "a move alone"
    assert not target.exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("*** Update File: none\n@@\n-a", "does not exist"),
        ("*** Delete File: none", "does not exist"),
        ("*** Update File: a\n@@\n-missing", "not found in"),
        ("*** Update File: a\n*** Move to: b", "exists already"),
        ("*** Delete File: src", "directory"),
        ("rubbish", "line 3"),
        ("*** Delete File: link", "symbolic link"),
        ("*** Update File: latin\n@@\n-caf\ufffd\n+tea", "not found in"),
        ("*** Add File: half\n+\ud83d", "UTF-8"),
    ],
)
async def test_what_cannot_be_applied_is_refused_before_anything_is_asked_or_changed(
    ctx: ToolContext, host: FakeHost, project: Path, lines: str, message: str
) -> None:
    (project / "a").write_text("a\n")
    (project / "b").write_text("b\n")
    (project / "src").mkdir()
    (project / "latin").write_bytes(b"caf\xe9\n")
    (project / "link").symlink_to(project / "a")
    error = await refusal(ctx, f"*** Add File: new/file\n+x\n{lines}")
    assert error.startswith("apply_patch verification failed: ")
    assert message in error
    assert host.asks == []
    assert sorted(os.listdir(project)) == ["a", "b", "latin", "link", "src"]


async def test_an_empty_patch_is_refused(ctx: ToolContext) -> None:
    assert await refusal(ctx, "") == "patch rejected: empty patch"
    with pytest.raises(ToolError, match="patchText is required"):
        await run(ApplyPatchTool(FileEditor(FileTimes(), ProcessLocks())), ctx, patchText=" ")


async def test_every_place_outside_is_asked_before_the_patch(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    (project / "a").write_text("x\n")

    def refuse_the_patch(ask: ToolPermission) -> None:
        host.refuse = PermissionRejected() if ask.permission == "edit" else None

    host.on_ask = refuse_the_patch
    with pytest.raises(PermissionRejected):
        await patch(ctx, "*** Update File: a\n*** Move to: ../else/b\n*** Add File: ../c\n+y")
    assert tree(project.parent) == {"project/a": "x\n"}
    assert host.permissions == ["external_directory", "external_directory", "edit"]
    outside = [str(project.parent / "else" / "b"), str(project.parent / "c")]
    assert [ask.metadata["filepath"] for ask in host.asks[:2]] == outside


async def test_a_file_that_changes_while_asking_is_left_alone(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    (project / "b").write_text("b\n")
    host.on_ask = lambda ask: (project / "b").write_text("someone else's")
    assert "changed by someone else" in await refusal(ctx, "*** Add File: a\n+x\n*** Update File: b\n@@\n-b\n+B")
    assert tree(project) == {"b": "someone else's"}


async def test_a_failing_write_undoes_the_others(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    (project / "a").write_bytes(b"\xef\xbb\xbfcaf\xe9\na\n")
    (project / "a").chmod(0o600)
    (project / "file").write_text("in the way\n")
    lines = "*** Update File: a\n@@\n-a\n+A\n*** Add File: new/folder/b\n+b\n*** Add File: file/below\n+c"
    assert "Could not write" in await refusal(ctx, lines)
    assert (project / "a").read_bytes() == b"\xef\xbb\xbfcaf\xe9\na\n"
    assert stat.S_IMODE((project / "a").stat().st_mode) == 0o600
    assert sorted(os.listdir(project)) == ["a", "file"]
    assert host.edited == []


def test_a_failing_delete_undoes_the_writes(project: Path) -> None:
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
    ctx = make_ctx(sandbox_workspace=SandboxWorkspace(project, project, held=hold(project, project)))
    lines = (
        "*** Add File: new/made.txt\n+x\n*** Delete File: gone.txt\n*** Update File: from.txt\n*** Move to: to.txt\n@@\n-a\n+b"
    )

    def replace(_: object) -> None:
        project.rename(project.with_name("aside"))
        project.symlink_to(outside) if kind == "link" else outside.rename(project)
        host.on_ask = lambda ask: None

    host.on_ask = replace
    assert "another directory" in await refusal(ctx, lines)
    assert tree(project.with_name("aside")) == tree(project) == {"from.txt": "a\n", "gone.txt": "a\n"}
    assert "another directory" in await refusal(ctx, lines)
    project.unlink() if kind == "link" else project.rename(outside)
    project.with_name("aside").rename(project)
    await patch(ctx, lines)
    assert tree(project) == {"new/made.txt": "x\n", "to.txt": "b\n"}
