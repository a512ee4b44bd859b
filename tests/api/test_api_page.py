"""The page's files: what is served, to whom, and with which headers."""

import json
import re
from pathlib import Path

import pytest
from running_app import RunningApp, running_app

PAGE = Path(__file__).parents[2] / "app" / "page"
VENDOR = PAGE / "vendor"
REFERENCE = re.compile(r"""(?:from |import |src=|href=|url\()['"]?(?P<target>(?:\.|/page/)[^'")\s]+)""")
UNSAFE = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\('style'|srcdoc")
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:")


def files(kind: str = "*") -> list[Path]:
    return sorted(file for file in PAGE.rglob(kind) if file.is_file())


def own_files(kind: str = "*") -> list[Path]:
    return [file for file in files(kind) if not file.is_relative_to(VENDOR)]


async def policy_of(app: RunningApp, path: str, status: int = 200) -> str:
    response = await app.client.get(path)
    assert response.status_code == status
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    return response.headers["content-security-policy"]


async def test_every_file_of_the_page_is_served_with_its_type_and_a_strict_policy(tmp_path: Path) -> None:
    types = {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".css": "text/css",
        ".html": "text/html",
        ".svg": "image/svg+xml",
        ".txt": "text/plain",
        ".json": "application/json",
    }
    async with running_app(tmp_path) as app:
        for file in files():
            path = f"/page/{file.relative_to(PAGE).as_posix()}"
            policy = await policy_of(app, path)
            assert "default-src 'none'" in policy and "unsafe" not in policy
            response = await app.client.get(path)
            assert response.content == file.read_bytes()
            assert response.headers["content-type"].partition(";")[0] == types[file.suffix]
        assert (await app.client.get("/")).content == (PAGE / "index.html").read_bytes()
        assert "frame-ancestors 'none'" in await policy_of(app, "/")


async def test_a_file_that_is_unchanged_is_not_sent_again_and_nothing_else_is_served(tmp_path: Path) -> None:
    others = ("../api/page.py", "..%2Fapi%2Fpage.py", "%2e%2e/main.py", "/etc/passwd", "views", "", "none.js")
    async with running_app(tmp_path) as app:
        tag = (await app.client.get("/page/main.js")).headers["etag"]
        again = await app.client.get("/page/main.js", headers={"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert [(await app.client.get(f"/page/{name}")).status_code for name in others] == [404] * len(others)
        assert "default-src 'none'" in await policy_of(app, f"/s/{'0' * 40}", status=404)
        assert "This link is no longer shared" in (await app.client.get("/s/nope")).text


async def test_what_the_page_reads_needs_the_password_and_a_shared_session_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    async with running_app(tmp_path, auth=("opencode", "right")) as app:
        session = await app.create_session()
        url = (await app.post(f"/session/{session['id']}/share"))["share"]["url"]
        app.client.auth = None
        assert (await app.client.get("/")).status_code == 200
        refused, asked_by_page = [await app.client.get("/session", headers=each) for each in ({}, {"x-opensession-page": "1"})]
        assert refused.status_code == asked_by_page.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic "), "so that a browser asks for it"
        assert asked_by_page.headers["www-authenticate"] == "Bearer", "so that it does not: the page does"
        shown = await app.client.get(url)
        assert shown.content == (PAGE / "share.html").read_bytes()
        assert shown.headers["cache-control"] == "no-store"
        for file in files():
            assert (await app.client.get(f"/page/{file.relative_to(PAGE).as_posix()}")).status_code == 200


def test_text_never_becomes_markup_and_documents_have_no_scripts_or_styles_of_their_own() -> None:
    assert [(file.name, found) for file in own_files("*.js") for found in UNSAFE.findall(file.read_text())] == []
    assert [(file.name, found) for file in files("*.html") for found in INLINE.findall(file.read_text())] == []


def test_every_reference_leads_to_a_file_of_the_page_and_every_file_is_reached() -> None:
    reached = {"index.html", "share.html", "not-shared.html"}
    for file in own_files():
        for found in REFERENCE.finditer(file.read_text()):
            target = found["target"]
            path = PAGE / target.removeprefix("/page/") if target.startswith("/page/") else file.parent / target
            assert path.is_file(), f"{file.name} refers to {target}"
            reached.add(path.resolve().relative_to(PAGE).as_posix())
    scripts = {file.relative_to(PAGE).as_posix() for file in VENDOR.glob("*js")}
    assert {file.relative_to(PAGE).as_posix() for file in own_files()} | scripts == reached


def test_every_library_has_its_licence_and_an_exact_version() -> None:
    pinned = json.loads((VENDOR / "package.json").read_text())["dependencies"]
    assert [version for version in pinned.values() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []
    libraries = sorted(file.stem for file in VENDOR.glob("*js"))
    assert sorted(name.replace("@highlightjs/cdn-assets", "highlight") for name in pinned) == libraries
    for name in libraries:
        assert "Copyright" in (VENDOR / f"{name}.LICENSE.txt").read_text()
