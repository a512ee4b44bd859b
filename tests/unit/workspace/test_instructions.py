"""The instructions that a project, its configuration and its user give."""

from pathlib import Path
from typing import Any

import pytest
from git_files import put_file
from obstacles import LINKS, OBSTACLES, SECRET, put
from web_page import web_page

from app.project.config.flags import Flags
from app.util.project_files import MAX_BYTES, ProjectBounds
from app.workspace.instructions import InstructionPages, InstructionScope, blocks, nearby


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "sub" / "deep").mkdir(parents=True)
    return directory


def write(path: Path, text: str) -> str:
    """Creates the file; returns the block that it makes."""
    put_file(path, text)
    return f"Instructions from: {path}\n{text}"


async def found(directory: Path, worktree: Path, *configured: str, **flags: Any) -> list[str]:
    return await blocks_of(InstructionScope(directory, worktree, Flags(**flags), configured))


async def blocks_of(scope: InstructionScope) -> list[str]:
    pages = InstructionPages()
    try:
        return await blocks(scope, pages)
    finally:
        await pages.close()


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md", "CONTEXT.md"])
async def test_each_of_the_known_names_is_read(project: Path, name: str) -> None:
    assert await found(project, project) == []
    block = write(project / name, "be kind")
    assert await found(project, project) == [block]


async def test_all_files_of_the_first_name_up_to_the_worktree_count_the_nearest_first(project: Path) -> None:
    outer = write(project / "AGENTS.md", "outer")
    inner = write(project / "sub" / "deep" / "AGENTS.md", "inner")
    write(project / "sub" / "CLAUDE.md", "not read")
    write(project.parent / "AGENTS.md", "someone else's")
    assert await found(project / "sub" / "deep", project) == [inner, outer]
    assert await found(project / "sub" / "deep", Path("/")) == [inner], "outside git the directory itself"


async def test_the_first_global_file_is_read_after_the_project_s(project: Path, home: Path, tmp_path: Path) -> None:
    local = write(project / "AGENTS.md", "local")
    everywhere = write(home / ".config" / "opencode" / "AGENTS.md", "everywhere")
    claude = write(home / ".claude" / "CLAUDE.md", "claude's")
    configured = {"config_dir": str(tmp_path / "config"), "disable_claude_code_prompt": True}
    directory = write(tmp_path / "config" / "AGENTS.md", "of a configuration directory")
    assert await found(project, project) == [local, everywhere]
    (home / ".config" / "opencode" / "AGENTS.md").unlink()
    assert await found(project, project) == [local, claude]
    assert await found(project, project, disable_claude_code_prompt=True) == [local]
    assert await found(project, project, **configured) == [local, directory]


async def test_project_configuration_can_be_switched_off(project: Path, tmp_path: Path) -> None:
    write(project / "AGENTS.md", "local")
    write(project / "rules.md", "local")
    configured = write(tmp_path / "config" / "rules.md", "the directory's")
    flags = {"disable_project_config": True}
    assert await found(project, project, "rules.md", **flags) == []
    assert await found(project, project, "rules.md", config_dir=str(tmp_path / "config"), **flags) == [configured]


async def test_configured_globs_are_searched_from_the_directory_up(project: Path, home: Path, tmp_path: Path) -> None:
    a = write(project / "sub" / "docs" / "a.md", "a")
    b = write(project / "docs" / "b.md", "b")
    hidden = write(project / ".rules" / "c.md", "c")
    mine = write(home / "mine.md", "mine")
    other = write(tmp_path / "other" / "x1.md", "other")
    assert await found(project / "sub", project, "docs/*.md") == [a, b]
    assert await found(project / "sub", project, ".rules/**/*.md") == [hidden]
    assert await found(project, project, "~/mine.md", str(tmp_path / "other" / "x*.md")) == [mine, other]


async def test_each_is_read_once_and_a_page_after_the_files(project: Path) -> None:
    block = write(project / "AGENTS.md", "once")
    async with web_page("from the net") as page:
        page_block = f"Instructions from: {page.url}\nfrom the net"
        assert await found(project, project, page.url, "AGENTS.md", str(project / "AGENTS.md")) == [block, page_block]


async def test_what_is_missing_empty_unreadable_or_huge_says_nothing(project: Path) -> None:
    write(project / "AGENTS.md", " \n")
    (project / "loop.md").symlink_to(project / "loop.md")
    write(project / "huge.md", "x" * (MAX_BYTES + 10))
    (project / "bytes.md").write_bytes(b"ok \xff")
    block = f"Instructions from: {project / 'bytes.md'}\nok \ufffd"
    assert await found(project, project, "missing.md", "loop.md", "sub", "*.md") == [block]


# What a hostile project has instead.


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "theirs" / "AGENTS.md"
    write(path, SECRET)
    return path


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md", "CONTEXT.md", "sub/AGENTS.md"])
@pytest.mark.parametrize("kind", OBSTACLES)
async def test_nothing_but_a_file_of_the_project_is_read_and_what_is_refused_is_named_once(
    project: Path, secret: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(project)
    put(kind, project / name, secret)
    for _ in range(2):
        assert await found(project / "sub", project) == []
    assert caplog.text.count(str(project / name)) == 1
    beside = InstructionScope(project, project, Flags())
    assert await nearby(project / "sub" / "deep" / "a.py", beside, set()) == {}, "nor beside a file that is read"


async def test_one_beside_a_file_that_is_read_is(project: Path) -> None:
    write(project / "sub" / "rules" / "AGENTS.md", "be kind")
    (project / "sub" / "AGENTS.md").symlink_to("rules/AGENTS.md")
    near = await nearby(project / "sub" / "deep" / "a.py", InstructionScope(project, project, Flags()), set())
    assert near == {str(project / "sub" / "AGENTS.md"): "be kind"}


@pytest.mark.parametrize(
    "pattern", ["rules/*.md", "rules/**/*.md", "rules/AGENTS.md", "**/AGENTS.md", "../theirs/*.md", "rules/.."]
)
@pytest.mark.parametrize("kind", LINKS)
async def test_patterns_of_a_distrusted_project_lead_nowhere(project: Path, secret: Path, kind: str, pattern: str) -> None:
    put(kind, project / "rules", secret.parent)
    put(kind, project / "file" / "AGENTS.md", secret)
    bounds = ProjectBounds(str(project), str(project), trusted=False)
    assert SECRET not in "".join(await blocks_of(InstructionScope(project, project, Flags(), [pattern], bounds)))


@pytest.mark.parametrize("kind", LINKS)
async def test_links_lead_out_of_no_project_and_a_trusted_one_may_name_what_is_above(
    project: Path, secret: Path, kind: str
) -> None:
    put(kind, project / "rules", secret.parent)
    put(kind, project / "file.md", secret)
    assert await found(project, project, "rules/*.md", "*.md", "**/AGENTS.md") == []
    assert SECRET in "".join(await found(project, project, "../theirs/*.md"))
    users = InstructionScope(project, project, Flags(), [str(secret)], may_read=lambda real: real.startswith(str(project)))
    assert await blocks_of(users) == [], "a user sees only what they may read"


async def test_links_within_the_project_are_followed_and_those_of_the_user_anywhere(
    project: Path, home: Path, secret: Path
) -> None:
    write(project / "AGENTS.md", "one")
    (project / "sub" / "AGENTS.md").symlink_to("../AGENTS.md")
    (project / "sub" / "more").symlink_to(project / "sub" / "deep")
    write(project / "sub" / "deep" / "b.md", "two")
    put("link", home / ".config" / "opencode" / "AGENTS.md", secret)
    put("link", home / "rules" / "mine.md", secret)
    texts = [block.split("\n")[1] for block in await found(project / "sub", project, "more/*.md", "~/rules/*.md")]
    assert texts == ["one", "one", SECRET, "two", SECRET]


async def test_a_search_is_bounded_and_so_is_all_that_is_found(project: Path) -> None:
    for number in range(10):
        (project / f"l{number}").symlink_to(project)
    write(project / "a.md", "x")
    assert 0 < len(await found(project, project, "**/**/*.md", "*/*/*/*/*/*/*.txt")) < 10_000
    for number in range(25):
        write(project / f"{number}.md", "x" * MAX_BYTES)
    assert sum(map(len, await found(project, project, "*.md"))) < 18 * MAX_BYTES
