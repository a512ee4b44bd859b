import asyncio
import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confined import SECRET, Confined
from sandboxed import needs_sandbox
from search_places import search_place
from tool_host import FakeHost, MakeContext

from app.permissions.service import PermissionRejected
from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import Program, SandboxWorkspace, hold
from app.tools import process, search
from app.tools.base import ToolContext, ToolError
from app.tools.builtin.find import GlobParameters, GlobTool, GrepParameters, GrepTool, ListParameters, ListTool


def write(path: Path, text: str = "x\n", modified: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if modified is not None:
        os.utime(path, (modified, modified))
    return path


async def run_glob(ctx: ToolContext, pattern: str, path: str | None = None):
    return await GlobTool(OFF).execute(GlobParameters(pattern=pattern, path=path), ctx)


async def run_grep(ctx: ToolContext, pattern: str, **more: str):
    return await GrepTool(OFF).execute(GrepParameters(pattern=pattern, **more), ctx)


async def run_list(ctx: ToolContext, **arguments: object):
    return await ListTool(OFF).execute(ListParameters.model_validate(arguments), ctx)


class TestGlob:
    async def test_newest_first_with_absolute_paths(self, ctx: ToolContext, project: Path) -> None:
        old = write(project / "a.py", modified=100)
        new = write(project / "deep/er/b.py", modified=200)
        write(project / "c.txt")
        result = await run_glob(ctx, "**/*.py")
        assert result.output == f"{new}\n{old}"
        assert result.metadata == {"count": 2, "truncated": False}

    async def test_hidden_files_are_found_and_git_is_not(self, ctx: ToolContext, project: Path) -> None:
        hidden = write(project / ".config/x.json")
        write(project / ".git/x.json")
        write(project / "sub/.git/x.json")
        assert (await run_glob(ctx, "*.json")).output == str(hidden)

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
        for number in range(105):
            write(project / f"f{number}.txt")
        result = await run_glob(ctx, "*.txt")
        assert result.metadata == {"count": 100, "truncated": True}
        assert result.output.count(".txt") == 100
        assert "first 100" in result.output

    async def test_exactly_the_limit_is_not_cut(self, ctx: ToolContext, project: Path) -> None:
        for number in range(100):
            write(project / f"f{number}.txt")
        assert (await run_glob(ctx, "*.txt")).metadata == {"count": 100, "truncated": False}

    async def test_the_title_is_the_place_relative_to_the_worktree(self, ctx: ToolContext, project: Path) -> None:
        (project / "sub").mkdir()
        checkout = replace(ctx, sandbox_workspace=SandboxWorkspace(project, project))
        assert [(await run_glob(checkout, "*", path)).title for path in (None, "sub")] == ["", "sub"]

    async def test_nothing_found(self, ctx: ToolContext) -> None:
        result = await run_glob(ctx, "*.none")
        assert (result.output, result.metadata) == ("No files found", {"count": 0, "truncated": False})

    async def test_asks_with_the_pattern(self, ctx: ToolContext, host, project: Path) -> None:
        (project / "sub").mkdir()
        await run_glob(ctx, "*.py", "sub")
        assert [(ask.permission, ask.patterns, ask.always, ask.metadata) for ask in host.asks] == [
            ("glob", ["*.py"], ["*"], {"pattern": "*.py", "path": "sub"})
        ]

    async def test_outside_the_project_its_own_ask_comes_first(self, ctx: ToolContext, host, project: Path) -> None:
        outside = write(project.parent / "elsewhere/a.py").parent
        result = await run_glob(ctx, "*.py", str(outside))
        assert host.permissions == ["glob", "external_directory"]
        assert host.asks[1].patterns == [f"{outside}/*"]
        assert result.output == str(outside / "a.py")

    async def test_a_refusal_reads_nothing(self, ctx: ToolContext, host) -> None:
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

    async def test_a_file_or_nothing_is_no_directory(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.py")
        with pytest.raises(ToolError, match="not a directory"):
            await run_glob(ctx, "*", "a.py")
        with pytest.raises(ToolError, match="no such path"):
            await run_glob(ctx, "*", "none")

    async def test_a_bad_pattern_is_reported(self, ctx: ToolContext) -> None:
        with pytest.raises(ToolError, match="glob"):
            await run_glob(ctx, "{a")

    async def test_names_that_are_not_utf8_can_be_shown(self, ctx: ToolContext, project: Path) -> None:
        with open(os.fsencode(project) + b"/bad\xff.txt", "w"):
            pass
        assert (await run_glob(ctx, "*.txt")).output.encode() == f"{project}/bad\ufffd.txt".encode()


class TestGrep:
    async def test_matches_by_file_newest_first(self, ctx: ToolContext, project: Path) -> None:
        old = write(project / "a.txt", "no\nneedle one\nneedle: two\n", modified=100)
        new = write(project / "b.txt", "needle three\r\n", modified=200)
        result = await run_grep(ctx, r"needle\W")
        assert result.output == (
            f"Found 3 matches\n{new}:\n  Line 1: needle three\n\n{old}:\n  Line 2: needle one\n  Line 3: needle: two"
        )
        assert result.metadata == {"matches": 3, "truncated": False}
        assert result.title == r"needle\W"

    async def test_include_limits_the_files(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.py", "needle\n")
        write(project / "src/b.ts", "needle\n")
        result = await run_grep(ctx, "needle", include="*.{ts,tsx}")
        assert result.metadata["matches"] == 1
        assert "b.ts" in result.output

    async def test_the_path_may_be_one_file(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.txt", "needle\n")
        write(project / "b.txt", "needle\n")
        assert (await run_grep(ctx, "needle", path="b.txt")).output == f"Found 1 matches\n{project}/b.txt:\n  Line 1: needle"

    async def test_more_than_the_limit_shows_the_newest(self, ctx: ToolContext, project: Path) -> None:
        write(project / "old.txt", "needle\n" * 150, modified=100)
        write(project / "new.txt", "needle\n", modified=200)
        result = await run_grep(ctx, "needle")
        assert result.metadata == {"matches": 100, "truncated": True}
        assert result.output.index("new.txt") < result.output.index("old.txt")
        assert "100 of 151 matches" in result.output

    async def test_a_long_line_is_cut(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.txt", "needle" + "é" * 2_000_000 + "\nneedle again\n")
        lines = (await run_grep(ctx, "needle")).output.split("\n")
        assert lines[2] == "  Line 1: needle" + "é" * 1994 + "..."
        assert lines[3] == "  Line 2: needle again"

    async def test_nothing_found(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.txt")
        result = await run_grep(ctx, "needle")
        assert (result.output, result.metadata) == ("No files found", {"matches": 0, "truncated": False})

    async def test_a_bad_expression_is_reported(self, ctx: ToolContext) -> None:
        with pytest.raises(ToolError, match="unclosed group"):
            await run_grep(ctx, "(a")
        with pytest.raises(ToolError, match="empty"):
            await run_grep(ctx, "")

    async def test_a_pattern_is_never_an_option(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.txt", "--files is an option\n")
        assert (await run_grep(ctx, "--files")).metadata["matches"] == 1

    async def test_what_links_lead_out_to_is_not_read(self, ctx: ToolContext, project: Path) -> None:
        write(project.parent / "secret/key.txt", "needle\n")
        (project / "out").symlink_to(project.parent / "secret")
        result = await run_grep(ctx, "needle")
        assert result.metadata["matches"] == 0
        assert "key.txt" not in result.output

    async def test_a_link_named_as_the_path_needs_permission(self, ctx: ToolContext, host, project: Path) -> None:
        write(project.parent / "secret/key.txt", "needle\n")
        (project / "out").symlink_to(project.parent / "secret")
        result = await run_grep(ctx, "needle", path="out")
        assert host.permissions == ["grep", "external_directory"]
        assert host.asks[1].patterns == [f"{project.parent}/secret/*"]
        assert result.metadata["matches"] == 1

    async def test_paths_that_lead_nowhere_are_noted(self, ctx: ToolContext, project: Path) -> None:
        write(project / "a.txt", "needle\n")
        (project / "broken").symlink_to(project / "none")
        output = (await run_grep(ctx, "needle")).output
        assert "Line 1: needle" in output
        assert "could not be read" in output

    async def test_binary_files_do_not_disturb(self, ctx: ToolContext, project: Path) -> None:
        (project / "a.bin").write_bytes(b"needle\0\xff needle\n")
        write(project / "b.txt", "needle\n")
        assert (await run_grep(ctx, "needle")).metadata["matches"] == 1

    async def test_own_ripgrep_configuration_is_not_read(
        self, ctx: ToolContext, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(project / "a.txt", "needle\n")
        monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(write(project / "rc", "--invert-match\n")))
        assert "needle" in (await run_grep(ctx, "needle", include="a.txt")).output


class TestList:
    async def test_tree_with_directories_first(self, ctx: ToolContext, project: Path) -> None:
        for name in ("b.txt", "a.txt", "src/main.py", "src/deep/er/x.py", "lib/y.py"):
            write(project / name)
        result = await run_list(ctx)
        assert result.output == (
            f"{project}/\n  lib/\n    y.py\n  src/\n    deep/\n      er/\n        x.py\n    main.py\n  a.txt\n  b.txt"
        )
        assert result.metadata == {"count": 5, "truncated": False}

    async def test_usual_and_named_globs_are_left_out(self, ctx: ToolContext, project: Path) -> None:
        for name in ("node_modules/x.js", "dist/y.js", "keep.js", "drop.log", ".venv/z.py", "distinct/w.js"):
            write(project / name)
        assert (await run_list(ctx, ignore=["*.log"])).output == f"{project}/\n  distinct/\n    w.js\n  keep.js"

    async def test_the_first_hundred_by_path(self, ctx: ToolContext, project: Path) -> None:
        for number in range(120):
            write(project / f"f{number:03}.txt")
        result = await run_list(ctx)
        assert result.metadata == {"count": 100, "truncated": True}
        assert "f099.txt" in result.output
        assert "f100.txt" not in result.output

    async def test_asks_outside_first(self, ctx: ToolContext, host, project: Path) -> None:
        outside = write(project.parent / "elsewhere/a.py").parent
        await run_list(ctx, path=str(outside))
        assert [(ask.permission, ask.patterns) for ask in host.asks] == [
            ("external_directory", [f"{outside}/*"]),
            ("list", [str(outside)]),
        ]
        assert host.asks[1].metadata == {"path": str(outside)}

    async def test_an_empty_directory(self, ctx: ToolContext, project: Path) -> None:
        assert (await run_list(ctx)).output == f"{project}/"


class TestRipgrep:
    async def test_the_shipped_program_is_used(self) -> None:
        assert search.binary().name == "rg"
        chunks: list[bytes] = []
        await process.run(Program([str(search.binary()), "--version"], Path("/")), timeout=10, on_output=chunks.append)
        assert b"".join(chunks).startswith(b"ripgrep")

    async def test_stops_when_it_has_enough(self, tmp_path: Path) -> None:
        write(tmp_path / "big.txt", "needle\n" * 1_000_000)
        found = await search.grep("needle", search_place(tmp_path), ".", None, 5, lambda path: True)
        assert (len(found.items), found.truncated) == (5, True)

    async def test_a_search_that_takes_too_long_is_stopped(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "endless")
        with pytest.raises(ToolError, match=r"longer than 0\.1 seconds"):
            await search.grep("x", search_place(tmp_path), "endless", None, 5, lambda path: True, timeout=0.1)
        assert running_rg() == []

    async def test_abort_ends_the_search(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "endless")
        task = asyncio.create_task(search.grep("x", search_place(tmp_path), "endless", None, 5, lambda path: True))
        async with asyncio.timeout(60):
            while not running_rg():
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert running_rg() == []


@needs_sandbox
class TestConfined:
    """What a search sees where the sandbox is on."""

    @pytest.fixture
    def confined(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Confined:
        return Confined.make(tmp_path, monkeypatch)

    def ctx_in(self, confined: Confined, make_ctx: MakeContext, directory: Path) -> ToolContext:
        held = hold(directory, confined.project)
        return make_ctx(sandbox_workspace=SandboxWorkspace(directory, confined.project, held=held))

    async def grep(self, confined: Confined, ctx: ToolContext, pattern: str, path: str | None = None) -> str:
        return (await GrepTool(confined.sandbox).execute(GrepParameters(pattern=pattern, path=path), ctx)).output

    async def test_the_project_is_found_by_its_names(self, confined: Confined, make_ctx: MakeContext) -> None:
        write(confined.project / "sub/a.txt", "needle\n")
        write(confined.project / ".gitignore", "no.txt\n")
        write(confined.project / "sub/no.txt", "needle\n")
        (confined.project / "sub/way").symlink_to("../beside")
        write(confined.project / "beside/b.txt", "needle\n")
        ctx = self.ctx_in(confined, make_ctx, confined.project / "sub")
        found = await self.grep(confined, ctx, "needle")
        assert {line for line in found.split("\n") if line.endswith(":")} == {
            f"{confined.project}/sub/a.txt:",
            f"{confined.project}/sub/way/b.txt:",
        }
        listed = await ListTool(confined.sandbox).execute(ListParameters(), ctx)
        assert listed.output.startswith(f"{confined.project}/sub/\n") and "a.txt" in listed.output
        assert (
            await self.grep(confined, ctx, "needle", "a.txt")
            == f"Found 1 matches\n{confined.project}/sub/a.txt:\n  Line 1: needle"
        )

    async def test_a_project_behind_a_link_keeps_its_spelling(self, confined: Confined, make_ctx: MakeContext) -> None:
        write(confined.project / "a.txt", "needle\n")
        alias = confined.base / "alias"
        alias.symlink_to(confined.project)
        ctx = self.ctx_in(confined, make_ctx, alias)
        assert f"{alias}/a.txt:" in await self.grep(confined, ctx, "needle")
        found = await GlobTool(confined.sandbox).execute(GlobParameters(pattern="*.txt"), ctx)
        assert found.output == f"{alias}/a.txt"

    async def test_a_link_that_leads_out_shows_nothing(self, confined: Confined, make_ctx: MakeContext) -> None:
        (confined.project / "out").symlink_to(confined.base / "beside")
        (confined.project / "key").symlink_to(confined.secrets[0])
        assert SECRET not in await self.grep(confined, self.ctx_in(confined, make_ctx, confined.project), SECRET[:6])

    async def test_outside_what_was_allowed_is_searched(self, confined: Confined, make_ctx: MakeContext, host: FakeHost) -> None:
        ctx = self.ctx_in(confined, make_ctx, confined.project)
        for path in (confined.base / "beside", confined.base / "beside" / "file"):
            assert SECRET in await self.grep(confined, ctx, SECRET[:6], str(path))
        kept = write(confined.base / "data/tool-output/tool_1", "needle\n")
        assert str(kept) in await self.grep(confined, ctx, "needle", str(kept))
        assert host.permissions.count("external_directory") == 3

    async def test_of_the_home_directory_the_keys_are_not_found(self, confined: Confined, make_ctx: MakeContext) -> None:
        found = await self.grep(
            confined, self.ctx_in(confined, make_ctx, confined.project), SECRET[:6], str(confined.base / "home")
        )
        assert f"{confined.base}/home/notes" in found and ".ssh" not in found


def running_rg() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.name() == "rg" and child.status() != psutil.STATUS_ZOMBIE]
