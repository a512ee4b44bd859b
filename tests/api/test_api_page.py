"""The page's files: what is served, to whom, and with which headers."""

import json
import re
from pathlib import Path

from running_app import RunningApp

PAGE = Path(__file__).parents[2] / "app" / "page"
VENDOR = PAGE / "vendor"
FILES = sorted(file for file in PAGE.rglob("*") if file.is_file())
OWN = [file for file in FILES if not file.is_relative_to(VENDOR)]
REFERENCE = re.compile(r"""(?:from |import |src=|href=|url\()['"]?(?P<target>(?:\.|/page/)[^'")\s]+)""")
UNSAFE = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\('style'|srcdoc")
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:")
TYPES = {
    **dict.fromkeys((".js", ".mjs"), "text/javascript"),
    **{suffix: f"text/{kind}" for suffix, kind in ((".css", "css"), (".html", "html"), (".txt", "plain"))},
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


def name(file: Path) -> str:
    return file.relative_to(PAGE).as_posix()


async def policy_of(app: RunningApp, path: str, status: int = 200) -> str:
    response = await app.client.get(path)
    assert response.status_code == status
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    return response.headers["content-security-policy"]


async def test_every_file_is_served_to_everybody_with_its_type_and_a_strict_policy(password: None, app: RunningApp) -> None:
    for file in FILES:
        policy = await policy_of(app, f"/page/{name(file)}")
        assert "default-src 'none'" in policy and "unsafe" not in policy
        response = await app.client.get(f"/page/{name(file)}")
        assert response.content == file.read_bytes()
        assert response.headers["content-type"].partition(";")[0] == TYPES[file.suffix]
    assert (await app.client.get("/")).content == (PAGE / "index.html").read_bytes()
    assert "frame-ancestors 'none'" in await policy_of(app, "/")


async def test_a_file_that_is_unchanged_is_not_sent_again_and_nothing_else_is_served(app: RunningApp) -> None:
    tag = (await app.client.get("/page/main.js")).headers["etag"]
    again = await app.client.get("/page/main.js", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    for other in ("../api/page.py", "..%2Fapi%2Fpage.py", "%2e%2e/main.py", "/etc/passwd", "views", "", "none.js"):
        assert (await app.client.get(f"/page/{other}")).status_code == 404, other
    assert "default-src 'none'" in await policy_of(app, f"/s/{'0' * 40}", status=404)
    assert "This link is no longer shared" in (await app.client.get("/s/nope")).text


async def test_what_the_page_reads_needs_the_password_and_a_shared_session_does_not(password: None, app: RunningApp) -> None:
    path = f"/session/{(await app.post('/session', auth=('opencode', 'right')))['id']}/share"
    url = (await app.post(path, auth=("opencode", "right")))["share"]["url"]
    refused, asked_by_page = [await app.client.get("/session", headers=each) for each in ({}, {"x-opensession-page": "1"})]
    assert refused.status_code == asked_by_page.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Basic "), "so that a browser asks for it"
    assert asked_by_page.headers["www-authenticate"] == "Bearer", "so that it does not: the page does"
    shown = await app.client.get(url)
    assert shown.content == (PAGE / "share.html").read_bytes()
    assert shown.headers["cache-control"] == "no-store"


def test_text_never_becomes_markup_and_documents_have_no_scripts_or_styles_of_their_own() -> None:
    for pattern, kind, among in ((UNSAFE, ".js", OWN), (INLINE, ".html", FILES)):
        assert [file.name for file in among if file.suffix == kind and pattern.search(file.read_text())] == []


def test_every_reference_leads_to_a_file_of_the_page_and_every_file_is_reached() -> None:
    reached = {"index.html", "share.html", "not-shared.html"}
    for file in OWN:
        for found in REFERENCE.finditer(file.read_text()):
            target = found["target"]
            path = PAGE / target.removeprefix("/page/") if target.startswith("/page/") else file.parent / target
            assert path.is_file(), f"{file.name} refers to {target}"
            reached.add(name(path.resolve()))
    assert set(map(name, (*OWN, *VENDOR.glob("*js")))) == reached


def test_every_library_has_its_licence_and_an_exact_version() -> None:
    pinned = json.loads((VENDOR / "package.json").read_text())["dependencies"]
    assert [version for version in pinned.values() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []
    libraries = sorted(file.stem for file in VENDOR.glob("*js"))
    assert sorted(library.replace("@highlightjs/cdn-assets", "highlight") for library in pinned) == libraries
    for library in libraries:
        assert "Copyright" in (VENDOR / f"{library}.LICENSE.txt").read_text()
