from pathlib import Path

import pytest
from tool_host import FakeHost, MakeContext

from app.tools.base import ToolContext, ToolError
from app.tools.boundary import ask_if_outside, locate, relative_name


def test_relative_names_start_at_the_directory(ctx: ToolContext, project: Path) -> None:
    assert locate(ctx, "src/../a.txt") == project / "a.txt"
    assert locate(ctx, str(project / "b")) == project / "b"


def test_symlinks_are_followed(ctx: ToolContext, project: Path) -> None:
    (project.parent / "secret").mkdir()
    (project / "link").symlink_to(project.parent / "secret")
    assert locate(ctx, "link/key") == project.parent / "secret" / "key"


def test_a_project_under_a_symlink_keeps_its_spelling(make_ctx: MakeContext, project: Path) -> None:
    alias = project.parent / "alias"
    alias.symlink_to(project)
    ctx = make_ctx(directory=alias, worktree=alias)
    assert locate(ctx, str(project / "a.txt")) == alias / "a.txt"
    assert relative_name(ctx, locate(ctx, "src/a.txt")) == "src/a.txt"


def test_names_are_relative_to_the_worktree(make_ctx: MakeContext, project: Path) -> None:
    (project / "pkg").mkdir()
    ctx = make_ctx(directory=project / "pkg", worktree=project)
    assert relative_name(ctx, locate(ctx, "a.txt")) == "pkg/a.txt"
    assert relative_name(ctx, project.parent / "x") == "../x"


def test_a_nul_character_is_refused(ctx: ToolContext) -> None:
    with pytest.raises(ToolError, match="NUL"):
        locate(ctx, "a\0b")


async def test_inside_nothing_is_asked(make_ctx: MakeContext, host: FakeHost, project: Path) -> None:
    (project / "pkg").mkdir()
    ctx = make_ctx(directory=project / "pkg", worktree=project)
    await ask_if_outside(ctx, locate(ctx, "a.txt"))
    await ask_if_outside(ctx, locate(ctx, "../other/a.txt"))
    assert host.asks == []


async def test_outside_is_asked(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    path = locate(ctx, "../else/a.txt")
    await ask_if_outside(ctx, path)
    [ask] = host.asks
    folder = str(project.parent / "else")
    assert (ask.permission, ask.patterns, ask.always) == ("external_directory", [folder + "/*"], [folder + "/*"])
    assert ask.metadata == {"filepath": folder + "/a.txt", "parentDir": folder}


async def test_always_opens_no_more_than_the_folder(ctx: ToolContext, host: FakeHost) -> None:
    for path, asked, always in (("/file", ["/file"], ["/file"]), ("/srv/a*/b", ["/srv/a*/*"], [])):
        await ask_if_outside(ctx, Path(path))
        assert (host.asks[-1].patterns, host.asks[-1].always) == (asked, always)


async def test_a_folder_is_asked_for_itself(ctx: ToolContext, host: FakeHost) -> None:
    await ask_if_outside(ctx, Path("/srv/data"), is_directory=True)
    assert host.asks[0].patterns == ["/srv/data/*"]


async def test_a_worktree_of_root_opens_nothing(make_ctx: MakeContext, host: FakeHost) -> None:
    await ask_if_outside(make_ctx(worktree=Path("/")), Path("/srv/data/x"))
    assert host.permissions == ["external_directory"]


async def test_a_file_that_the_user_named_is_not_asked_for(make_ctx: MakeContext, host: FakeHost) -> None:
    await ask_if_outside(make_ctx(bypass_directory_check=True), Path("/srv/data/x"))
    assert host.asks == []
