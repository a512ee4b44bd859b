import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from confined import SECRET, Confined
from git_files import put_file
from polling import until
from sandboxed import needs_sandbox
from search_places import search_place
from tool_host import FakeHost, MakeContext, run

from app.permissions.service import PermissionRejected
from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import Program, SandboxWorkspace, hold
from app.tools import process, search
from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin.find import GlobTool, GrepTool, ListTool


def write(path: Path, text: str = "x\n", modified: int | None = None) -> Path:
    put_file(path, text)
    if modified is not None:
        os.utime(path, (modified, modified))
    return path


async def run_glob(ctx: ToolContext, pattern: str, path: str | None = None) -> ToolResult:
    return await run(GlobTool(OFF), ctx, pattern=pattern, path=path)


async def run_grep(ctx: ToolContext, pattern: str, **more: str) -> ToolResult:
    return await run(GrepTool(OFF), ctx, pattern=pattern, **more)


class TestGlob:
    async def test_newest_first_with_absolute_paths(self, make_ctx: MakeContext, host: FakeHost, project: Path) -> None:
        """Hidden files, too, but nothing of git's own."""
        ctx = make_ctx(worktree=project)
        old = write(project / ".config/a.py", modified=100)
        new = write(project / "deep/er/b.py", modified=200)
        for other in ("c.txt", ".git/x.py", "sub/.git/x.py"):
            write(project / other)
        result = await run_glob(ctx, "**/*.py")
        assert (result.output, result.title) == (f"{new}\n{old}", "")
        assert result.metadata == {"count": 2, "truncated": False}
        nothing = await run_glob(ctx, "*.none", "deep")
        assert (nothing.output, nothing.title, nothing.metadata["count"]) == ("No files found", "deep", 0)
        assert (host.asks[1].permission, host.asks[1].patterns, host.asks[1].always) == ("glob", ["*.none"], ["*"])
        assert host.asks[1].metadata == {"pattern": "*.none", "path": "deep"}

    @pytest.mark.parametrize("pattern", ["*", "**", "**/*", "**/*.js"])
    async def test_ignore_files_are_honoured(self, ctx: ToolContext, project: Path, pattern: str) -> None:
        (project / ".git").mkdir()
        write(project / ".gitignore", "node_modules/\n")
        write(project / "node_modules/lib.js")
        kept = write(project / "own.js")
        output = (await run_glob(ctx, pattern)).output
        assert str(kept) in output
        assert "node_modules" not in output

    async def test_more_than_the_limit_is_cut_with_a_note(self, ctx: ToolContext, project: Path) -> None:
        for number in range(100):
            write(project / f"f{number}.txt")
        assert (await run_glob(ctx, "*.txt")).metadata == {"count": 100, "truncated": False}
        write(project / "f100.txt")
        result = await run_glob(ctx, "*.txt")
        assert result.metadata == {"count": 100, "truncated": True}
        assert result.output.count(".txt") == 100
        assert "first 100" in result.output

    async def test_outside_the_project_its_own_ask_comes_first(self, ctx: ToolContext, host: FakeHost, project: Path) -> None:
        outside = write(project.parent / "elsewhere/a.py").parent
        result = await run_glob(ctx, "*.py", str(outside))
        assert host.permissions == ["glob", "external_directory"]
        assert host.asks[1].patterns == [f"{outside}/*"]
        assert result.output == str(outside / "a.py")
        host.refuse = PermissionRejected()
        with pytest.raises(PermissionRejected):
            await run_glob(ctx, "*")

    async def test_links_are_followed_inside_but_not_out(self, ctx: ToolContext, project: Path) -> None:
        write(project.parent / "secret/a.py")
        inside = write(project / "real/b.py")
        (project / "out").symlink_to(project.parent / "secret")
        (project / "also").symlink_to(project / "real")
        output = (await run_glob(ctx, "*.py")).output
        assert str(inside) in output
        assert str(project / "also/b.py") in output
        assert "out/a.py" not in output
        assert "1 more found through symbolic links" in output

    async def test_what_cannot_be_looked_for_is_told(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.py")
        for pattern, path, message in (("*", "a.py", "not a directory"), ("*", "none", "no such path"), ("{a", None, "glob")):
            with pytest.raises(ToolError, match=message):
                await run_glob(ctx, pattern, path)

    async def test_names_that_are_not_utf8_can_be_shown(self, ctx: ToolContext, project: Path) -> None:
        with open(os.fsencode(project) + b"/bad\xff.txt", "w"):
            pass
        assert (await run_glob(ctx, "*.txt")).output.encode() == f"{project}/bad\ufffd.txt".encode()


class TestGrep:
    async def test_matches_are_shown_by_file_newest_first(self, ctx: ToolContext, project: Path) -> None:
        old = write(project / "a.txt", "no\nneedle one\nneedle: two\n", modified=100)
        new = write(project / "b.txt", "needle three\r\n", modified=200)
        (project / "a.bin").write_bytes(b"needle \0\xff needle \n")
        result = await run_grep(ctx, r"needle\W")
        assert result.output == (
            f"Found 3 matches\n{new}:\n  Line 1: needle three\n\n{old}:\n  Line 2: needle one\n  Line 3: needle: two"
        )
        assert result.metadata == {"matches": 3, "truncated": False}
        assert result.title == r"needle\W"

    @pytest.mark.parametrize(
        ("given", "found"), [({"include": "*.{ts,tsx}"}, ["src/b.ts"]), ({"path": "a.txt"}, ["a.txt"]), ({"include": "*.no"}, [])]
    )
    async def test_a_glob_or_a_path_limits_the_files(
        self, ctx: ToolContext, project: Path, given: dict[str, str], found: Sequence[str]
    ) -> None:
        for name in ("a.txt", "b.txt", "src/b.ts"):
            write(project / name, "needle\n")
        result = await run_grep(ctx, "needle", **given)
        shown = [f"\n{project}/{name}:\n  Line 1: needle" for name in found]
        assert result.output == (f"Found {len(found)} matches" + "".join(shown) if found else "No files found")
        assert result.metadata == {"matches": len(found), "truncated": False}

    async def test_a_name_with_a_newline_is_not_taken_for_another_file(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.txt")
        odd = write(project / f"odd\n{project}/a.txt", "needle\n", modified=100)
        for binary in (b"needle\0", b"needle\n" + b"x" * 70_000 + b"\0"):
            (project / "a.bin").write_bytes(binary)
            assert (await run_grep(ctx, "needle")).output.endswith(f"{odd}:\n  Line 1: needle")

    async def test_more_than_the_limit_shows_the_newest_and_a_long_line_is_cut(self, ctx: ToolContext, project: Path) -> None:
        write(project / "old.txt", "needle\n" * 150, modified=100)
        write(project / "new.txt", "needle" + "é" * 2_000_000 + "\nneedle again\n", modified=200)
        result = await run_grep(ctx, "needle")
        lines = result.output.split("\n")
        assert lines[1:4] == [f"{project}/new.txt:", "  Line 1: needle" + "é" * 1994 + "...", "  Line 2: needle again"]
        assert result.metadata == {"matches": 100, "truncated": True}
        assert "old.txt" in result.output and "100 of 152 matches" in result.output

    async def test_an_expression_is_never_an_option_and_a_bad_one_is_told(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.txt", "--files is an option\n")
        assert (await run_grep(ctx, "--files")).metadata["matches"] == 1
        for pattern, message in (("(a", "unclosed group"), ("", "empty"), ("a\0", "cannot be searched for")):
            with pytest.raises(ToolError, match=message):
                await run_grep(ctx, pattern)

    async def test_where_links_lead_out_to_is_read_only_with_permission(
        self, ctx: ToolContext, host: FakeHost, project: Path
    ) -> None:
        write(project.parent / "secret/key.txt", "needle\n")
        (project / "out").symlink_to(project.parent / "secret")
        result = await run_grep(ctx, "needle")
        assert result.metadata["matches"] == 0
        assert "key.txt" not in result.output
        result = await run_grep(ctx, "needle", path="out")
        assert host.permissions == ["grep", "grep", "external_directory"]
        assert host.asks[2].patterns == [f"{project.parent}/secret/*"]
        assert result.metadata["matches"] == 1

    async def test_paths_that_lead_nowhere_are_noted(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.txt", "needle\n")
        (project / "broken").symlink_to(project / "none")
        output = (await run_grep(ctx, "needle")).output
        assert "Line 1: needle" in output
        assert "could not be read" in output

    async def test_own_ripgrep_configuration_is_not_read(
        self, ctx: ToolContext, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(project / "a.txt", "needle\n")
        monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(write(project / "rc", "--invert-match\n")))
        assert "needle" in (await run_grep(ctx, "needle", include="a.txt")).output


class TestList:
    async def test_tree_with_directories_first_without_the_usual_and_the_named_globs(
        self, ctx: ToolContext, project: Path
    ) -> None:
        assert (await run(ListTool(OFF), ctx)).output == f"{project}/"
        for name in ("b.txt", "a.txt", "src/main.py", "src/deep/er/x.py", "distinct/y.py"):
            write(project / name)
        for left_out in ("node_modules/x.js", "dist/y.js", "drop.log", ".venv/z.py"):
            write(project / left_out)
        result = await run(ListTool(OFF), ctx, ignore=["*.log"])
        assert result.output == (
            f"{project}/\n  distinct/\n    y.py\n  src/\n    deep/\n      er/\n        x.py\n    main.py\n  a.txt\n  b.txt"
        )
        assert result.metadata == {"count": 5, "truncated": False}

    async def test_folders_of_any_depth(self, ctx: ToolContext, project: Path) -> None:
        deep = str(project)
        for _ in range(600):
            os.mkdir(deep := f"{deep}/d")
        write(Path(deep, "a.txt"), "needle")
        listed = await run(ListTool(OFF), ctx)
        assert [line.strip() for line in listed.output.splitlines()[1:]] == [*["d/"] * 600, "a.txt"]
        assert f"{deep}/a.txt" in (await run_glob(ctx, "*.txt")).output

    async def test_the_first_hundred_by_path(self, ctx: ToolContext, project: Path) -> None:
        for number in range(120):
            write(project / f"f{number:03}.txt")
        result = await run(ListTool(OFF), ctx)
        assert result.metadata == {"count": 100, "truncated": True}
        assert "f099.txt" in result.output and "f100.txt" not in result.output

    async def test_asks_outside_first(self, ctx: ToolContext, host: FakeHost, project: Path) -> None:
        outside = str(write(project.parent / "elsewhere/a.py").parent)
        await run(ListTool(OFF), ctx, path=outside)
        asked = [("external_directory", [f"{outside}/*"]), ("list", [outside])]
        assert [(ask.permission, ask.patterns) for ask in host.asks] == asked
        assert host.asks[1].metadata == {"path": outside}


class TestRipgrep:
    async def test_the_shipped_program_is_used(self) -> None:
        assert search.binary().name == "rg"
        chunks: list[bytes] = []
        await process.run(Program([str(search.binary()), "--version"], Path("/")), timeout=10, on_output=chunks.append)
        assert b"".join(chunks).startswith(b"ripgrep")

    async def test_what_could_not_be_started_is_not_nothing_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        failing = write(tmp_path / "rg", "#!/bin/sh\necho 'bwrap: no such thing' >&2\nexit 1\n")
        failing.chmod(0o755)
        monkeypatch.setattr(search, "binary", lambda: failing)
        with pytest.raises(ToolError, match="no such thing"):
            await search.list_files(search_place(tmp_path), [], 5, lambda path: True)

    async def test_stops_when_it_has_enough(self, tmp_path: Path) -> None:
        write(tmp_path / "big.txt", "needle\n" * 1_000_000)
        found = await search.grep("needle", search_place(tmp_path), ".", None, 5, lambda path: True)
        assert (len(found.items), found.truncated) == (5, True)

    async def test_a_search_that_takes_too_long_or_is_aborted_is_stopped(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "endless")
        looked_through = ("x", search_place(tmp_path), "endless", None, 5, lambda path: True)
        with pytest.raises(ToolError, match=r"longer than 0\.1 seconds"):
            await search.grep(*looked_through, timeout=0.1)
        assert running_rg() == []
        task = asyncio.create_task(search.grep(*looked_through))
        await until(running_rg)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert running_rg() == []


def running_rg() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.name() == "rg" and child.status() != psutil.STATUS_ZOMBIE]


@needs_sandbox
class TestConfined:
    """What a search sees where the sandbox is on."""

    @pytest.fixture
    def confined(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Confined:
        return Confined.make(tmp_path, monkeypatch)

    async def run(self, tool: Any, confined: Confined, make_ctx: MakeContext, directory: Path, **arguments: Any) -> str:
        workspace = SandboxWorkspace(directory, confined.project, held=hold(directory, confined.project))
        return (await run(tool(confined.sandbox), make_ctx(sandbox_workspace=workspace), **arguments)).output

    async def test_the_project_is_found_by_its_names(self, confined: Confined, make_ctx: MakeContext) -> None:
        top = confined.project
        write(top / ".gitignore", "no.txt\n")
        for name in ("sub/a.txt", "sub/no.txt", "beside/b.txt"):
            write(top / name, "needle\n")
        (top / "sub/way").symlink_to("../beside")
        found = await self.run(GrepTool, confined, make_ctx, top / "sub", pattern="needle")
        files = {f"{top}/sub/a.txt:", f"{top}/sub/way/b.txt:"}
        assert {line for line in found.split("\n") if line.endswith(":")} == files
        listed = await self.run(ListTool, confined, make_ctx, top / "sub")
        assert listed.startswith(f"{top}/sub/\n") and "a.txt" in listed
        found = await self.run(GrepTool, confined, make_ctx, top / "sub", pattern="needle", path="a.txt")
        assert found == f"Found 1 matches\n{top}/sub/a.txt:\n  Line 1: needle"

    async def test_a_project_behind_a_link_keeps_its_spelling(self, confined: Confined, make_ctx: MakeContext) -> None:
        write(confined.project / "a.txt", "needle\n")
        alias = confined.base / "alias"
        alias.symlink_to(confined.project)
        assert f"{alias}/a.txt:" in await self.run(GrepTool, confined, make_ctx, alias, pattern="needle")
        assert await self.run(GlobTool, confined, make_ctx, alias, pattern="*.txt") == f"{alias}/a.txt"

    async def test_secrets_are_not_found_through_links_or_in_the_home_directory(
        self, confined: Confined, make_ctx: MakeContext
    ) -> None:
        (confined.project / "out").symlink_to(confined.base / "beside")
        (confined.project / "key").symlink_to(confined.secrets[0])
        assert SECRET not in await self.run(GrepTool, confined, make_ctx, confined.project, pattern=SECRET[:6])
        home = str(confined.base / "home")
        found = await self.run(GrepTool, confined, make_ctx, confined.project, pattern=SECRET[:6], path=home)
        assert f"{home}/notes" in found and ".ssh" not in found

    async def test_outside_what_was_allowed_is_searched(self, confined: Confined, make_ctx: MakeContext, host: FakeHost) -> None:
        kept = write(confined.base / "data/tool-output/tool_1", f"{SECRET}\n")
        for path in (confined.base / "beside", confined.base / "beside" / "file", kept):
            found = await self.run(GrepTool, confined, make_ctx, confined.project, pattern=SECRET[:6], path=str(path))
            assert SECRET in found
        assert "/etc/passwd" in await self.run(GlobTool, confined, make_ctx, confined.project, pattern="passwd", path="/etc")
        assert host.permissions.count("external_directory") == 4
