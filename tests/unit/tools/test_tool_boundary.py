from pathlib import Path

import pytest
from tool_host import FakeHost, MakeContext

from app.tools.base import ToolContext, ToolError
from app.tools.boundary import ask_if_outside, locate, relative_name


@pytest.mark.parametrize(
    ("directory", "worktree", "given", "path", "name"),
    [
        ("project/pkg", "project", "src/../a.txt", "project/pkg/a.txt", "pkg/a.txt"),
        ("project/pkg", "project", "@/project/b", "project/b", "b"),
        ("project/pkg", "project", "@/x", "x", "../x"),
        ("project", "project", "link/key", "secret/key", "../secret/key"),
        ("alias", "alias", "@/project/src/a.txt", "alias/src/a.txt", "src/a.txt"),
    ],
    ids=["relative", "absolute", "outside", "behind a link", "of a project under a link"],
)
def test_a_path_is_located_and_named_from_the_worktree(
    make_ctx: MakeContext, project: Path, directory: str, worktree: str, given: str, path: str, name: str
) -> None:
    top = project.parent
    (project / "pkg").mkdir()
    (top / "secret").mkdir()
    (project / "link").symlink_to(top / "secret")
    (top / "alias").symlink_to(project)
    ctx = make_ctx(directory=top / directory, worktree=top / worktree)
    found = locate(ctx, given.replace("@", str(top)))
    assert (found, relative_name(ctx, found)) == (top / path, name)


def test_what_can_be_no_path_is_refused(ctx: ToolContext) -> None:
    with pytest.raises(ToolError, match="NUL"):
        locate(ctx, "a\0b")
    with pytest.raises(ToolError, match="at most 4096 characters"):
        locate(ctx, "a/" * 3_000)


async def test_what_is_inside_or_was_named_by_the_user_is_not_asked_for(
    make_ctx: MakeContext, host: FakeHost, project: Path
) -> None:
    (project / "pkg").mkdir()
    ctx = make_ctx(directory=project / "pkg", worktree=project)
    for name in ("a.txt", "../other/a.txt"):
        await ask_if_outside(ctx, locate(ctx, name))
    await ask_if_outside(make_ctx(bypass_directory_check=True), Path("/srv/data/x"))
    assert host.asks == []


@pytest.mark.parametrize(
    ("path", "is_directory", "asked", "always"),
    [
        ("/srv/else/a.txt", False, "/srv/else/*", ["/srv/else/*"]),
        ("/file", False, "/file", ["/file"]),
        ("/srv/a*/b", False, "/srv/a*/*", []),
        ("/srv/data", True, "/srv/data/*", ["/srv/data/*"]),
    ],
)
async def test_outside_the_folder_is_asked_for_and_opened_alone(
    make_ctx: MakeContext, host: FakeHost, path: str, is_directory: bool, asked: str, always: list[str]
) -> None:
    await ask_if_outside(make_ctx(worktree=Path("/")), Path(path), is_directory=is_directory)
    [ask] = host.asks
    assert (ask.permission, ask.patterns, ask.always) == ("external_directory", [asked], always)
    assert ask.metadata == {"filepath": path, "parentDir": path if is_directory else str(Path(path).parent)}
