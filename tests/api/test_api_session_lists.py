"""Lists of sessions page by page: of a project, and of all that a client may see."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from obstacles import endless_links
from running_app import RunningApp, make_workspace, running_app

ALL = "/experimental/session"


@pytest.fixture
async def app(tmp_path: Path, database: dict[str, str]) -> AsyncIterator[RunningApp]:
    """Clients may work in all that is below `tmp_path`."""
    async with running_app(tmp_path, roots=str(tmp_path), **database) as running:
        yield running


async def asked(app: RunningApp, route: str, /, **query: Any) -> httpx2.Response:
    response = await app.client.get(route, params=query)
    assert response.status_code == 200, response.text
    return response


async def titles(app: RunningApp, route: str = "/session", /, **query: Any) -> list[str]:
    return [session["title"] for session in (await asked(app, route, **query)).json()]


async def pages(app: RunningApp, route: str, /, **query: Any) -> list[list[str]]:
    """The titles of each page, up to the one without a cursor."""
    found, cursor = [], {}
    while True:
        response = await asked(app, route, **query, **cursor)
        found.append([session["title"] for session in response.json()])
        if "x-next-cursor" not in response.headers:
            return found
        cursor = {"cursor": response.headers["x-next-cursor"]}


async def created(app: RunningApp, title: str, directory: Path | None = None, **fields: Any) -> dict[str, Any]:
    query = {"directory": str(directory)} if directory else {}
    return await app.post("/session", {"title": title, **fields}, params=query)


async def updated_at(app: RunningApp, session: str, time: int) -> None:
    """As if it was updated then."""

    def edit(stored: Any) -> Any:
        return stored.model_copy(update={"time": stored.time.model_copy(update={"updated": time})})

    await app.services.store.write(session, str(app.directory), lambda tx: tx.edit(edit, touch=False))


def directory(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


async def test_a_project_s_sessions_are_paged(app: RunningApp) -> None:
    first, *_ = [await created(app, title) for title in "12345"]
    assert await pages(app, "/session", limit=2) == [["5", "4"], ["3", "2"], ["1"]]
    assert await pages(app, "/session", limit=5) == await pages(app, "/session") == [list("54321")]
    page = await asked(app, "/session", limit=2)
    await app.prompt(first["id"], "touched", noReply=True)
    await created(app, "6")
    rest = await titles(app, limit=3, cursor=page.headers["x-next-cursor"])
    assert rest == ["3", "2", "1"], "what is changed between two pages is on neither twice and not lost"
    for number in range(96):
        await created(app, str(number))
    page = await asked(app, "/session", limit=1)
    rest_of_all = await asked(app, "/session", cursor=page.headers["x-next-cursor"])
    assert len(rest_of_all.json()) == 100 and "x-next-cursor" in rest_of_all.headers, "without a limit"


async def test_a_path_selects_what_is_there_and_below_and_a_scope_all_directories(app: RunningApp) -> None:
    await created(app, "top")
    for path in ("src", "src/deep", "srcs", "Src", "a_b", "axb/c"):
        await created(app, path, directory(app.directory / path))
    for path, found in {"src": ["src/deep", "src"], "src/": ["src/deep", "src"], "a_b": ["a_b"], "nowhere": []}.items():
        assert await titles(app, path=path) == found
    assert await titles(app, path="src/deep", directory=str(app.directory)) == ["src/deep"]
    assert len(await titles(app, path="")) == 7
    deep = str(app.directory / "src/deep")
    assert await titles(app, directory=deep) == ["src/deep"]
    assert len(await titles(app, directory=deep, scope="project")) == 7


async def test_a_directory_may_be_written_otherwise_than_its_sessions_name_it(app: RunningApp, tmp_path: Path) -> None:
    deep, link = directory(app.directory / "src"), tmp_path / "link"
    link.symlink_to(app.directory)
    session = await created(app, "src", deep)
    for written in (f"{deep}/", f"{deep}/../src", f"{deep}/."):
        assert [await titles(app, route, directory=written) for route in ("/session", ALL)] == [["src"], ["src"]], written
        found = await app.get("/api/session", params={"directory": written})
        assert [each["id"] for each in found["data"]] == [session["id"]], written
    linked = [await created(app, "by a link", place) for place in (link, link / "src")]
    assert [(await app.get(f"/session/{each['id']}"))["path"] for each in linked] == ["", "src"]
    assert await titles(app, directory=str(link)) == ["by a link"]


async def test_all_sessions_are_those_of_all_projects_with_theirs_that_the_server_may_enter(
    app: RunningApp, tmp_path: Path
) -> None:
    other, outside = make_workspace(tmp_path / "other"), directory(tmp_path / "no repository")
    for title, place in (("here", None), ("there", other), ("outside", outside)):
        await created(app, title, place)
    found = await app.get(ALL)
    assert [session["title"] for session in found] == ["outside", "there", "here"]
    for session in found:
        project = await app.get("/project/current", params={"directory": session["directory"]})
        assert session["project"] == {"id": project["id"], "worktree": project["worktree"]}
        assert session == {**await app.get(f"/session/{session['id']}"), "project": session["project"]}
    assert await titles(app, ALL, directory=str(other)) == ["there"]
    assert await titles(app, ALL, directory=f"{other}\0") == []
    outside.rmdir()
    endless_links(outside)
    assert await titles(app, ALL) == ["there", "here"], "one directory that cannot be resolved hides no other"
    async with running_app(tmp_path, database_url=app.services.settings.database_url) as narrow:
        assert await titles(narrow, ALL) == ["here"]
        assert await titles(narrow, ALL, directory=str(other)) == []


async def test_all_sessions_are_paged_by_when_they_were_updated(app: RunningApp) -> None:
    """Also those that were updated in the same millisecond."""
    for title, time in zip("abcdefgh", (5, 9, 7, 7, 7, 3, 1, 5), strict=True):
        await updated_at(app, (await created(app, title))["id"], time)
    assert await pages(app, ALL, limit=1) == [["b"], ["e", "d", "c"], ["h", "a"], ["f"], ["g"]]
    assert await pages(app, ALL, limit=2) == [["b"], ["e", "d", "c"], ["h", "a"], ["f", "g"]]
    assert await pages(app, ALL, limit=4) == [["b", "e", "d", "c"], ["h", "a", "f", "g"]]
    assert await pages(app, ALL) == [["b", "e", "d", "c", "h", "a", "f", "g"]]
    assert await titles(app, ALL, start=7) == ["b", "e", "d", "c"]
    assert await titles(app, ALL, cursor=5) == ["f", "g"]


async def test_all_sessions_are_filtered_and_archived_ones_shown_to_who_asks_for_them(app: RunningApp) -> None:
    old = await created(app, "Old")
    await created(app, "New", parentID=old["id"])
    for query, found in (({"roots": "true"}, ["Old"]), ({"roots": "false"}, ["New", "Old"]), ({"search": "NEW"}, ["New"])):
        assert await titles(app, ALL, **query) == found, query
    path = f"/session/{old['id']}"
    assert (await app.call("PATCH", path, {"time": {"archived": 1234}}))["time"]["archived"] == 1234
    assert await titles(app, ALL) == ["New"]
    assert await titles(app, ALL, archived="true") == ["New", "Old"]
    await app.call("PATCH", path, {"title": "Renamed"})
    assert await titles(app, ALL) == ["New"], "still archived"
    await app.call("PATCH", path, {"time": {"archived": 0}})
    assert await titles(app, ALL) == ["New", "Renamed"]


async def test_members_see_their_own(anna: RunningApp, bert: RunningApp, root: RunningApp) -> None:
    for who, title in ((anna, "Anna's"), (bert, "Bert's"), (anna, "Anna's other")):
        await created(who, title)
    assert await titles(anna, ALL) == ["Anna's other", "Anna's"] and await titles(bert, ALL) == ["Bert's"]
    assert await titles(root, ALL) == ["Anna's other", "Bert's", "Anna's"]
    assert await pages(anna, "/session", limit=1) == [["Anna's other"], ["Anna's"]]
