"""What clients use for @-mentions and file views, in both APIs."""

import base64
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from git_files import put_file
from obstacles import endless_links
from running_app import RunningApp, make_workspace, running_app

from app.tools import search

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.email=a@b", "-c", "user.name=a", *arguments], cwd=directory, check=True)


def commit(directory: Path) -> None:
    git(directory, "add", "-A")
    git(directory, "commit", "-qm", "second")


async def content(app: RunningApp, path: str, *, expect: int = 200, **query: str) -> dict[str, Any]:
    return await app.get("/file/content", expect=expect, params={"path": path, **query})


async def listed(app: RunningApp, path: str, *, expect: int = 200, **query: str) -> Any:
    return await app.get("/file", expect=expect, params={"path": path, **query})


async def found_files(app: RunningApp, **query: str) -> list[str]:
    return await app.get("/find/file", params=query)


async def found_texts(app: RunningApp, pattern: str) -> list[dict[str, Any]]:
    return await app.get("/find", params={"pattern": pattern})


async def test_a_text_that_is_found_is_what_ripgrep_reports_up_to_a_bound(app: RunningApp) -> None:
    put_file(app.directory / "src/b.txt", "one\ntwo one\n")
    assert await found_texts(app, "o+ne") == [
        {
            "path": {"text": "src/b.txt"},
            "lines": {"text": line},
            "line_number": number,
            "absolute_offset": offset,
            "submatches": [{"match": {"text": "one"}, "start": start, "end": start + 3}],
        }
        for line, number, offset, start in (("one\n", 1, 0, 0), ("two one\n", 2, 4, 4))
    ]
    put_file(app.directory / "many.txt", "needle\n" * 30)
    put_file(app.directory / "more.txt", "needle\n")
    assert [match["path"]["text"] for match in await found_texts(app, "needle")] == ["many.txt"] * 10 + ["more.txt"]
    for number in range(110):
        put_file(app.directory / f"many/{number}.txt", "needle\n" * 10)
    assert len(await found_texts(app, "needle")) == 1000


async def test_odd_patterns_and_lines_are_found_and_nothing_behind_links(app: RunningApp) -> None:
    put_file(app.directory / "b.txt", "--files\n")
    put_file(app.directory / "latin.txt", b"caf\xe9 bar\n")
    put_file(app.directory / "bundle.js", "needle" + "x" * 50_000 + "needle\n")
    put_file(app.directory.parent / "secret/s.txt", "needle\n")
    for link, target in (("link", "secret"), ("s.txt", "secret/s.txt")):
        (app.directory / link).symlink_to(app.directory.parent / target)
    (dashed,), (latin,), (long,) = [await found_texts(app, pattern) for pattern in ("--files", "bar", "needle")]
    assert (dashed["path"]["text"], latin["lines"]["text"]) == ("b.txt", "caf\ufffd bar\n")
    assert (len(long["lines"]["text"]), [part["start"] for part in long["submatches"]]) == (8000, [0])


async def test_a_line_of_megabytes_is_found_and_keeps_no_other_from_it(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    put_file(app.directory / "b.txt", "needle\n")
    put_file(app.directory / "bundle.js", "needle" + "x" * 30_000_000)
    assert [match["path"]["text"] for match in await found_texts(app, "needle")] == ["b.txt", "bundle.js"]
    monkeypatch.setattr(search, "_MAX_PIECE_BYTES", 1_000_000)
    assert [match["path"]["text"] for match in await found_texts(app, "needle")] == ["b.txt"]


async def test_files_and_directories_are_found_best_first(app: RunningApp) -> None:
    put_file(app.directory / ".gitignore", "built/\n")
    for name in ("built/apple.txt", "apples/pear.txt", "deep/pineapple.txt"):
        put_file(app.directory / name)
    files = ["apples/pear.txt", "deep/pineapple.txt"]
    assert await found_files(app, query="apple") == ["apples/", *files]
    assert await found_files(app, query="apple", dirs="false") == files == await found_files(app, query="apple", type="file")
    for choice in ({"type": "directory"}, {"type": "directory", "dirs": "false"}, {"limit": "1"}):
        assert await found_files(app, query="apple", **choice) == ["apples/"], choice
    assert await found_files(app, query="") == ["apples/", "deep/", "a.txt", *files, ".gitignore"], "the first entries"
    for number in range(30):
        put_file(app.directory / "below" / f"plum{number}.txt")
    below = {"query": "plum", "directory": str(app.directory / "below")}
    assert [len(await found_files(app, **below, **limit)) for limit in ({}, {"limit": "200"})] == [10, 30]
    assert await app.get("/find/symbol", params={"query": "main"}) == []


async def test_directories_are_listed_first_then_by_name_with_paths_from_the_directory(app: RunningApp) -> None:
    for path in ("", ".", "/"):
        assert [node["path"] for node in await listed(app, path)] == ["a.txt"]
    for path in ("none", "a.txt"):
        assert await listed(app, path) == [], "it is no directory"
    put_file(app.directory / ".gitignore", "*.log\n/built/\n")
    for name in ("x.log", "built/y", "src/z.txt", ".DS_Store", ":(glob)odd", "README", "Src/z"):
        put_file(app.directory / name)
    assert [(node["name"], node["type"], node["ignored"]) for node in await listed(app, "")] == [
        ("built", "directory", True),
        ("Src", "directory", False),
        ("src", "directory", False),
        (".gitignore", "file", False),
        (":(glob)odd", "file", False),
        ("a.txt", "file", False),
        ("README", "file", False),
        ("x.log", "file", True),
    ]
    file = {"name": "z.txt", "path": "src/z.txt", "absolute": f"{app.directory}/src/z.txt", "type": "file", "ignored": False}
    for path in ("src", "src/", "./src", f"{app.directory}/src"):
        assert await listed(app, path) == [file]


async def test_of_many_entries_some_are_listed(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.workspace.browse.content.MAX_LISTED", 3)
    (app.directory / "many").mkdir()
    for number in range(5):
        (app.directory / "many" / str(number)).touch()
    assert len(await listed(app, "many")) == 3


async def test_links_count_as_what_they_lead_to_in_the_project_and_nothing_outside_is_shown(app: RunningApp) -> None:
    put_file(app.directory.parent / "secret.txt", "secret\n")
    put_file(app.directory / "src/z")
    for link, target in {"in": "src", "out": "/etc", "link": "../secret.txt", "folder": "..", "itself": "itself"}.items():
        (app.directory / link).symlink_to(target)
    endless_links(app.directory / "endless")
    types = {node["name"]: node["type"] for node in await listed(app, ".")}
    assert [types[link] for link in ("in", "out", "itself", "endless")] == ["directory", "file", "file", "file"]
    assert [node["path"] for node in await listed(app, "in")] == ["in/z"]
    for path in ("in/z", f"{app.directory}/in/z", "./in/../src/z"):
        assert (await content(app, path))["content"] == "x"
    assert await found_files(app, query="link") == await found_files(app, query="secret") == []
    for path in ("out", "..", "/etc", "src/../../.."):
        assert (await listed(app, path, expect=403))["name"] == "FileForbiddenError"
    for path in ("../secret.txt", "src/../../secret.txt", "/etc/passwd", "link", "folder/secret.txt", "../none"):
        assert (await content(app, path, expect=403))["name"] == "FileForbiddenError"
    for path in ("read/out/hostname", "list?path=out"):
        assert (await app.get(f"/api/fs/{path}", expect=403))["_tag"] == "ForbiddenError"
    with open(put_file(app.directory / "huge.txt"), "r+b") as file:
        file.truncate(10 * 1024 * 1024 + 1)
    assert "10 MiB" in (await content(app, "huge.txt", expect=413))["data"]["message"]


async def test_a_name_that_is_not_utf8_does_no_harm(app: RunningApp) -> None:
    Path(os.fsdecode(os.fsencode(app.directory) + b"/caf\xe9")).touch()
    assert "caf\ufffd" in [node["name"] for node in await listed(app, ".")]
    assert "caf\ufffd" in [file["path"] for file in await app.get("/file/status")]
    assert "caf\ufffd" in await found_files(app, query="caf")


async def test_a_changed_file_shows_its_difference_from_head(app: RunningApp) -> None:
    name, lines = ":(glob)b.txt", [f"{number}\n" for number in range(20)]
    put_file(app.directory / "src" / name, "".join(lines))
    commit(app.directory)
    put_file(app.directory / "src" / name, "".join(["first\n", *lines[:-1], "last"]))
    shown = await content(app, f"src/{name}")
    (hunk,) = shown["patch"].pop("hunks")
    told = hunk.pop("lines")
    assert hunk == {"oldStart": 1, "oldLines": 20, "newStart": 1, "newLines": 21}
    assert (told[:2], told[-3:], len(told)) == (["+first", " 0"], ["-19", "+last", "\\ No newline at end of file"], 23)
    assert shown["patch"]["oldFileName"] == shown["patch"]["newFileName"] == f"src/{name}"
    assert shown["diff"].startswith(f"Index: src/{name}\n=====") and "\n@@ -1,20 +1,21 @@\n+first\n 0\n" in shown["diff"]


async def test_a_staged_change_counts_too_and_what_git_does_not_know_has_no_difference(app: RunningApp) -> None:
    assert await content(app, "a.txt") == {"type": "text", "content": "hello\nworld"}, "without the white space around it"
    put_file(app.directory / "a.txt", "hello\nthere\n")
    git(app.directory, "add", "-A")
    assert (await content(app, "a.txt"))["patch"]["hunks"][0]["lines"] == [" hello", "-world", "+there"]
    put_file(app.directory / "new.txt", "new\n")
    assert await content(app, "new.txt") == {"type": "text", "content": "new"}
    os.mkfifo(app.directory / "pipe")
    (app.directory / "loop").symlink_to("loop")
    for name in ("none.txt", "none/none.txt", "none.png", "", "a.txt/b", "x" * 300, "pipe", "loop"):
        assert await content(app, name) == {"type": "text", "content": ""}, "it is no file"


FILES = (
    ("p.png", PNG, "image/png"),
    ("p.svg", b"<svg/>", "image/svg+xml"),
    ("p.pdf", b"%PDF-1.7 x", "application/pdf"),
    ("p.zip", b"PK\3\4", "application/zip"),
    ("p", b"a\0b", "application/octet-stream"),
)


async def test_images_and_binaries_are_shown_in_base64_or_as_bytes_with_which_no_page_speaks_to_the_server(
    app: RunningApp,
) -> None:
    for name, data, mime in FILES:
        put_file(app.directory / name, data)
        encoded = base64.b64encode(data).decode()
        assert await content(app, name) == {"type": "text", "content": encoded, "encoding": "base64", "mimeType": mime}
    put_file(app.directory / "a b/c d.txt", "hi\n")
    put_file(app.directory / "page.html", "<script>alert(1)</script>")
    put_file(app.directory / "data:text/\u4e2d,x", "of a hostile project")
    others = (("a%20b/c%20d.txt", b"hi\n", "text/plain"), ("page.html", b"<script>alert(1)</script>", "text/html"))
    others += (("data%3Atext/%E4%B8%AD%2Cx", b"of a hostile project", "application/octet-stream"),)
    for name, data, mime in (FILES[0], *others):
        response = await app.client.get(f"/api/fs/read/{name}")
        assert (response.status_code, response.content) == (200, data)
        assert response.headers["content-type"].partition(";")[0] == mime
        assert response.headers["content-security-policy"].startswith("sandbox")
        assert response.headers["x-content-type-options"] == "nosniff"


async def test_the_second_api_finds_and_lists_the_same(app: RunningApp) -> None:
    async def data(route: str, **query: Any) -> Any:
        return (await app.get(f"/api/fs/{route}", params=query))["data"]

    put_file(app.directory / "a b/c d.txt")
    file, folder = {"path": "a b/c d.txt", "type": "file"}, {"path": "a b/", "type": "directory"}
    assert await data("list") == [folder, {"path": "a.txt", "type": "file"}]
    for path in ("a b", "a b/", f"{app.directory}/a b"):
        assert await data("list", path=path) == [file]
    assert await data("find", query="cd") == [file]
    assert await data("find", query="a", type="directory") == [folder]
    assert len(await data("find", query="", limit=1)) == 1


async def test_what_differs_from_head(app: RunningApp) -> None:
    for name in ("gone.txt", "kept.txt", "src/x.bin"):
        put_file(app.directory / name, "1\n2\n\0" if name.endswith("bin") else "1\n2\n")
    commit(app.directory)
    (app.directory / "gone.txt").unlink()
    for name, text in {"a.txt": "hello\nthere\nworld\n", "src/x.bin": "\0changed", "src/sta\n\tged": "1\n"}.items():
        put_file(app.directory / name, text)
    git(app.directory, "add", "src/sta\n\tged")
    put_file(app.directory / "new.txt", "1\n2\n3")
    put_file(app.directory / "new.png", PNG)
    put_file(app.directory / "x.log")
    put_file(app.directory / ".git/info/exclude", "*.log\n")
    (app.directory / "out").symlink_to("/etc/passwd")
    changed = await app.get("/file/status")
    assert [(file["path"], file["added"], file["removed"], file["status"]) for file in changed] == [
        ("a.txt", 1, 0, "modified"),
        ("gone.txt", 0, 2, "deleted"),
        ("new.png", 0, 0, "added"),
        ("new.txt", 3, 0, "added"),
        ("out", 1, 0, "added"),
        ("src/sta\n\tged", 1, 0, "added"),
        ("src/x.bin", 0, 0, "modified"),
    ]
    there = await app.get("/file/status", params={"directory": str(app.directory / "src")})
    seen = {"../a.txt", "../gone.txt", "../new.png", "../new.txt", "../out", "sta\n\tged", "x.bin"}
    assert {file["path"] for file in there} == seen, "seen from the directory"


@pytest.mark.parametrize("is_git", [True, False], ids=["before the first commit", "outside git"])
async def test_where_there_is_no_commit(tmp_path: Path, is_git: bool) -> None:
    workspace = tmp_path.resolve() / "fresh"
    put_file(workspace / "src/staged.txt", "1\n2\n")
    if is_git:
        git(workspace, "init", "-q")
        git(workspace, "add", "-A")
    put_file(workspace / "new.txt", "1\n")
    async with running_app(tmp_path, workspace=workspace) as app:
        changed = [(file["path"], file["added"], file["status"]) for file in await app.get("/file/status")]
        assert changed == ([("new.txt", 1, "added"), ("src/staged.txt", 2, "added")] if is_git else [])
        assert [node["ignored"] for node in await listed(app, "src")] == [False]
        assert await content(app, "new.txt") == {"type": "text", "content": "1"}
        assert await found_files(app, query="staged") == ["src/staged.txt"]
        assert len(await found_texts(app, "2")) == 1


async def test_another_directory_has_its_own_files(tmp_path: Path) -> None:
    other = make_workspace(tmp_path / "other")
    put_file(other / "b.txt", "other\n")
    async with running_app(tmp_path, roots=str(other)) as app:
        where = {"directory": str(other)}
        assert "b.txt" in await found_files(app, query="b.txt", **where)
        assert (await content(app, "b.txt", **where))["content"] == "other"
        await listed(app, str(other), expect=403)
