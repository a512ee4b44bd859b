"""The second API: files found, listed and read."""

from typing import Any

import pytest
from running_app import RunningApp


@pytest.fixture(autouse=True)
def files(app: RunningApp) -> None:
    below = app.directory / "a b"
    below.mkdir()
    (below / "c d.txt").write_text("hi\n")
    (app.directory / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n123")
    (app.directory / "page.html").write_text("<script>alert(1)</script>")
    (app.directory / "out").symlink_to("/etc")


async def data(app: RunningApp, route: str, **query: Any) -> Any:
    return (await app.get(f"/api/fs/{route}", params=query))["data"]


async def test_what_is_in_the_directory_and_in_one_below(app: RunningApp) -> None:
    found = await data(app, "list")
    assert found[0] == {"path": "a b/", "type": "directory"}
    assert {"path": "a.txt", "type": "file"} in found
    for path in ("a b", "a b/", f"{app.directory}/a b"):
        assert await data(app, "list", path=path) == [{"path": "a b/c d.txt", "type": "file"}]


async def test_names_are_found(app: RunningApp) -> None:
    assert {"path": "a b/c d.txt", "type": "file"} in await data(app, "find", query="cd")
    assert await data(app, "find", query="a", type="directory") == [{"path": "a b/", "type": "directory"}]
    assert len(await data(app, "find", query="", limit=1)) == 1


async def test_a_files_bytes_with_which_no_page_speaks_to_the_server(app: RunningApp) -> None:
    for path, kind, content in (
        ("a.txt", "text/plain", b"hello\nworld\n"),
        ("a%20b/c%20d.txt", "text/plain", b"hi\n"),
        ("picture.png", "image/png", b"\x89PNG\r\n\x1a\n123"),
        ("page.html", "text/html", b"<script>alert(1)</script>"),
    ):
        response = await app.client.get(f"/api/fs/read/{path}")
        assert (response.status_code, response.content) == (200, content)
        assert response.headers["content-type"].partition(";")[0] == kind
    assert response.headers["content-security-policy"].startswith("sandbox")
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_nothing_outside_the_project_is_shown(app: RunningApp) -> None:
    for path in ("read/out/hostname", "list?path=out"):
        assert (await app.get(f"/api/fs/{path}", expect=403))["_tag"] == "ForbiddenError"
