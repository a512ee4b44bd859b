"""What clients use for @-mentions and file views."""

import base64
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, make_workspace, running_app

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.email=a@b", "-c", "user.name=a", *arguments], cwd=directory, check=True)


def write(path: Path, text: str | bytes = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path.resolve()) as app:
        yield app


async def refused(app: RunningApp, route: str, status: int = 403, /, **query: str) -> dict[str, Any]:
    body: dict[str, Any] = await app.get(route, expect=status, params=query)
    assert isinstance(body["name"], str) and "data" in body
    return body


async def content(app: RunningApp, path: str) -> dict[str, Any]:
    shown: dict[str, Any] = await app.get("/file/content", params={"path": path})
    return shown


async def found_files(app: RunningApp, **query: str) -> list[str]:
    found: list[str] = await app.get("/find/file", params=query)
    return found


class TestFindText:
    async def test_a_match_is_what_ripgrep_reports(self, app: RunningApp) -> None:
        write(app.directory / "src/b.txt", "one\ntwo one\n")
        assert await app.get("/find", params={"pattern": "o+ne"}) == [
            {
                "path": {"text": "src/b.txt"},
                "lines": {"text": line},
                "line_number": number,
                "absolute_offset": offset,
                "submatches": [{"match": {"text": "one"}, "start": start, "end": start + 3}],
            }
            for line, number, offset, start in (("one\n", 1, 0, 0), ("two one\n", 2, 4, 4))
        ]

    async def test_ten_of_a_file_and_a_thousand_in_all_at_most(self, app: RunningApp) -> None:
        write(app.directory / "many.txt", "needle\n" * 30)
        write(app.directory / "more.txt", "needle\n")
        found = await app.get("/find", params={"pattern": "needle"})
        assert [match["path"]["text"] for match in found] == ["many.txt"] * 10 + ["more.txt"]
        for number in range(110):
            write(app.directory / f"many/{number}.txt", "needle\n" * 10)
        assert len(await app.get("/find", params={"pattern": "needle"})) == 1000

    async def test_odd_patterns_lines_and_links(self, app: RunningApp) -> None:
        write(app.directory / "b.txt", "--files\n")
        write(app.directory / "latin.txt", b"caf\xe9 bar\n")
        write(app.directory / "bundle.js", "needle" + "x" * 50_000 + "needle\n")
        write(app.directory.parent / "secret/s.txt", "needle\n")
        (app.directory / "link").symlink_to(app.directory.parent / "secret")
        (app.directory / "s.txt").symlink_to(app.directory.parent / "secret/s.txt")
        patterns = ("--files", "bar", "needle")
        (dashed,), (latin,), (long,) = [await app.get("/find", params={"pattern": pattern}) for pattern in patterns]
        assert (dashed["path"]["text"], latin["lines"]["text"]) == ("b.txt", "caf\ufffd bar\n")
        assert (len(long["lines"]["text"]), [part["start"] for part in long["submatches"]]) == (8000, [0])


async def test_files_and_directories_are_found_best_first(app: RunningApp) -> None:
    write(app.directory / ".gitignore", "built/\n")
    for name in ("built/apple.txt", "apples/pear.txt", "deep/pineapple.txt"):
        write(app.directory / name)
    files = ["apples/pear.txt", "deep/pineapple.txt"]
    assert await found_files(app, query="apple") == ["apples/", *files]
    assert await found_files(app, query="apple", dirs="false") == files == await found_files(app, query="apple", type="file")
    for choice in ({"type": "directory"}, {"type": "directory", "dirs": "false"}, {"limit": "1"}):
        assert await found_files(app, query="apple", **choice) == ["apples/"], choice
    assert await found_files(app, query="") == ["apples/", "deep/", "a.txt", *files, ".gitignore"], "the first entries"
    for number in range(30):
        write(app.directory / "below" / f"plum{number}.txt")
    below = {"query": "plum", "directory": str(app.directory / "below")}
    assert [len(await found_files(app, **below, **limit)) for limit in ({}, {"limit": "200"})] == [10, 30]
    assert await app.get("/find/symbol", params={"query": "main"}) == []


class TestList:
    async def test_directories_first_then_by_name(self, app: RunningApp) -> None:
        write(app.directory / ".gitignore", "*.log\n/built/\n")
        for name in ("x.log", "built/y", "src/z", ".DS_Store", ":(glob)odd"):
            write(app.directory / name)
        nodes = await app.get("/file", params={"path": ""})
        assert [(node["name"], node["type"], node["ignored"]) for node in nodes] == [
            ("built", "directory", True),
            ("src", "directory", False),
            (".gitignore", "file", False),
            (":(glob)odd", "file", False),
            ("a.txt", "file", False),
            ("x.log", "file", True),
        ]

    async def test_paths_are_relative_to_the_directory(self, app: RunningApp) -> None:
        for path in ("", ".", "/"):
            assert [node["path"] for node in await app.get("/file", params={"path": path})] == ["a.txt"]
        for path in ("none", "a.txt"):
            assert await app.get("/file", params={"path": path}) == [], "it is no directory"
        file = write(app.directory / "src/z.txt")
        expected = {"name": "z.txt", "path": "src/z.txt", "absolute": str(file), "type": "file", "ignored": False}
        for path in ("src", "src/", "./src", str(file.parent)):
            assert await app.get("/file", params={"path": path}) == [expected]

    async def test_links_count_as_what_they_lead_to_in_the_project(self, app: RunningApp) -> None:
        write(app.directory / "src/z")
        (app.directory / "in").symlink_to("src")
        (app.directory / "out").symlink_to("/etc")
        types = {node["name"]: node["type"] for node in await app.get("/file", params={"path": "."})}
        assert (types["in"], types["out"]) == ("directory", "file")
        assert [node["path"] for node in await app.get("/file", params={"path": "in"})] == ["in/z"]
        for outside in ("out", "..", "/etc", "src/../../.."):
            await refused(app, "/file", path=outside)

    async def test_a_name_that_is_not_utf8_does_no_harm(self, app: RunningApp) -> None:
        Path(os.fsdecode(os.fsencode(app.directory) + b"/caf\xe9")).touch()
        assert "caf\ufffd" in [node["name"] for node in await app.get("/file", params={"path": "."})]
        assert "caf\ufffd" in [file["path"] for file in await app.get("/file/status")]
        assert "caf\ufffd" in await found_files(app, query="caf")


class TestContent:
    async def test_a_changed_file_shows_its_difference_from_head(self, app: RunningApp) -> None:
        write(app.directory / "src/:(glob)b.txt", "".join(f"{number}\n" for number in range(20)))
        git(app.directory, "add", "-A")
        git(app.directory, "commit", "-qm", "second")
        write(app.directory / "src/:(glob)b.txt", "first\n" + "".join(f"{number}\n" for number in range(19)) + "last")
        shown = await content(app, "src/:(glob)b.txt")
        (hunk,) = shown["patch"].pop("hunks")
        lines = hunk.pop("lines")
        assert hunk == {"oldStart": 1, "oldLines": 20, "newStart": 1, "newLines": 21}
        assert lines[:2] == ["+first", " 0"]
        assert lines[-3:] == ["-19", "+last", "\\ No newline at end of file"]
        assert len(lines) == 23
        assert shown["patch"]["oldFileName"] == shown["patch"]["newFileName"] == "src/:(glob)b.txt"
        assert shown["diff"].startswith("Index: src/:(glob)b.txt\n=====")
        assert "\n@@ -1,20 +1,21 @@\n+first\n 0\n" in shown["diff"]

    async def test_a_staged_change_counts_too_and_what_git_does_not_know_has_no_difference(self, app: RunningApp) -> None:
        assert await content(app, "a.txt") == {"type": "text", "content": "hello\nworld"}, "without the white space around it"
        write(app.directory / "a.txt", "hello\nthere\n")
        git(app.directory, "add", "-A")
        assert (await content(app, "a.txt"))["patch"]["hunks"][0]["lines"] == [" hello", "-world", "+there"]
        write(app.directory / "new.txt", "new\n")
        assert await content(app, "new.txt") == {"type": "text", "content": "new"}
        for name in ("none.txt", "none/none.txt", "none.png", "", "a.txt/b"):
            assert await content(app, name) == {"type": "text", "content": ""}, "it is no file"

    async def test_images_and_binaries_in_base64(self, app: RunningApp) -> None:
        for name, data, mime in (
            ("p.png", PNG, "image/png"),
            ("p.svg", b"<svg/>", "image/svg+xml"),
            ("p.pdf", b"%PDF-1.7 x", "application/pdf"),
            ("p.zip", b"PK\3\4", "application/zip"),
            ("p", b"a\0b", "application/octet-stream"),
        ):
            write(app.directory / name, data)
            encoded = base64.b64encode(data).decode()
            assert await content(app, name) == {"type": "text", "content": encoded, "encoding": "base64", "mimeType": mime}

    async def test_nothing_outside_is_shown_and_nothing_huge(self, app: RunningApp) -> None:
        write(app.directory.parent / "secret.txt", "secret\n")
        (app.directory / "link").symlink_to("../secret.txt")
        (app.directory / "folder").symlink_to("..")
        for name in ("../secret.txt", "/etc/passwd", "link", "folder/secret.txt"):
            assert (await refused(app, "/file/content", path=name))["name"] == "FileForbiddenError"
        with open(write(app.directory / "huge.txt"), "r+b") as file:
            file.truncate(10 * 1024 * 1024 + 1)
        assert "10 MiB" in (await refused(app, "/file/content", 413, path="huge.txt"))["data"]["message"]


class TestStatus:
    async def test_what_differs_from_head(self, app: RunningApp) -> None:
        for name in ("gone.txt", "kept.txt", "src/x.bin"):
            write(app.directory / name, "1\n2\n\0" if name.endswith("bin") else "1\n2\n")
        git(app.directory, "add", "-A")
        git(app.directory, "commit", "-qm", "second")
        (app.directory / "gone.txt").unlink()
        write(app.directory / "a.txt", "hello\nthere\nworld\n")
        write(app.directory / "src/x.bin", "\0changed")
        write(app.directory / "src/staged.txt", "1\n")
        git(app.directory, "add", "src/staged.txt")
        write(app.directory / "new.txt", "1\n2\n3")
        write(app.directory / "new.png", PNG)
        (app.directory / "out").symlink_to("/etc/passwd")
        assert await app.get("/file/status") == [
            {"path": "a.txt", "added": 1, "removed": 0, "status": "modified"},
            {"path": "gone.txt", "added": 0, "removed": 2, "status": "deleted"},
            {"path": "new.png", "added": 0, "removed": 0, "status": "added"},
            {"path": "new.txt", "added": 3, "removed": 0, "status": "added"},
            {"path": "out", "added": 1, "removed": 0, "status": "added"},
            {"path": "src/staged.txt", "added": 1, "removed": 0, "status": "added"},
            {"path": "src/x.bin", "added": 0, "removed": 0, "status": "modified"},
        ]

    async def test_paths_are_seen_from_the_directory_without_what_is_ignored(self, app: RunningApp) -> None:
        write(app.directory / ".git/info/exclude", "*.log\n")
        write(app.directory / "x.log")
        assert await app.get("/file/status") == []
        write(app.directory / "sub/new.txt")
        write(app.directory / "a.txt", "changed\n")
        changed = await app.get("/file/status", params={"directory": str(app.directory / "sub")})
        assert [file["path"] for file in changed] == ["../a.txt", "new.txt"]

    async def test_before_the_first_commit(self, tmp_path: Path) -> None:
        workspace = tmp_path.resolve() / "fresh"
        write(workspace / "staged.txt", "1\n2\n")
        git(workspace, "init", "-q")
        git(workspace, "add", "-A")
        write(workspace / "new.txt", "1\n")
        async with running_app(tmp_path, workspace=workspace) as app:
            changed = await app.get("/file/status")
        assert [(file["path"], file["added"], file["status"]) for file in changed] == [
            ("new.txt", 1, "added"),
            ("staged.txt", 2, "added"),
        ]


async def test_outside_git_files_are_shown_and_nothing_has_changed(tmp_path: Path) -> None:
    workspace = tmp_path.resolve() / "plain"
    write(workspace / "src/a.txt", "plain\n")
    async with running_app(tmp_path, workspace=workspace) as app:
        assert await app.get("/file/status") == []
        assert [node["ignored"] for node in await app.get("/file", params={"path": "src"})] == [False]
        assert await content(app, "src/a.txt") == {"type": "text", "content": "plain"}
        assert await found_files(app, query="a.txt") == ["src/a.txt"]
        assert len(await app.get("/find", params={"pattern": "plain"})) == 1


async def test_another_directory_has_its_own_files(tmp_path: Path) -> None:
    other = make_workspace(tmp_path / "other")
    write(other / "b.txt", "other\n")
    async with running_app(tmp_path, roots=str(other)) as app:
        where = {"directory": str(other)}
        assert "b.txt" in await found_files(app, query="b.txt", **where)
        assert (await app.get("/file/content", params={"path": "b.txt", **where}))["content"] == "other"
        await refused(app, "/file", path=str(other))
