"""Lists of sessions page by page: of a project, and of all that a client may see."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from running_app import RunningApp, make_workspace, running_app
from user_logins import user

ALL = "/experimental/session"


@pytest.fixture
async def app(tmp_path: Path, database: dict[str, str]) -> AsyncIterator[RunningApp]:
    """Clients may work in all that is below `tmp_path`."""
    async with running_app(tmp_path, roots=str(tmp_path), **database) as running:
        yield running


def titles(sessions: list[dict[str, Any]]) -> list[str]:
    return [session["title"] for session in sessions]


async def asked(app: RunningApp, route: str, /, **query: Any) -> httpx2.Response:
    response = await app.client.get(route, params=query)
    assert response.status_code == 200, response.text
    return response


async def pages(app: RunningApp, route: str, /, **query: Any) -> list[list[str]]:
    """The titles of each page, up to the one without a cursor."""
    found, cursor = [], {}
    while True:
        response = await asked(app, route, **query, **cursor)
        found.append(titles(response.json()))
        if "x-next-cursor" not in response.headers:
            return found
        cursor = {"cursor": response.headers["x-next-cursor"]}


async def created(app: RunningApp, title: str, directory: Path | None = None, **fields: Any) -> dict[str, Any]:
    query = {"directory": str(directory)} if directory else {}
    session: dict[str, Any] = await app.post("/session", {"title": title, **fields}, params=query)
    return session


async def updated_at(app: RunningApp, session: str, time: int) -> None:
    """As if it was updated then."""

    def edit(stored: Any) -> Any:
        return stored.model_copy(update={"time": stored.time.model_copy(update={"updated": time})})

    await app.services.store.write(session, str(app.directory), lambda tx: tx.edit(edit, touch=False))


def below(app: RunningApp, path: str) -> Path:
    directory = app.directory / path
    directory.mkdir(parents=True)
    return directory


async def test_a_project_s_sessions_are_paged(app: RunningApp) -> None:
    for title in "12345":
        await created(app, title)
    assert await pages(app, "/session", limit=2) == [["5", "4"], ["3", "2"], ["1"]]
    assert await pages(app, "/session", limit=5) == [list("54321")]
    assert await pages(app, "/session") == [list("54321")]
    for number in range(97):
        await created(app, str(number))
    page = await asked(app, "/session", limit=1)
    rest = await asked(app, "/session", cursor=page.headers["x-next-cursor"])
    assert len(rest.json()) == 100 and "x-next-cursor" in rest.headers, "without a limit"


async def test_what_is_changed_between_two_pages_is_on_neither_twice_and_not_lost(app: RunningApp) -> None:
    first, *_ = [await created(app, title) for title in "1234"]
    page = await asked(app, "/session", limit=2)
    await app.prompt(first["id"], "touched", noReply=True)
    await created(app, "5")
    rest = await asked(app, "/session", limit=2, cursor=page.headers["x-next-cursor"])
    assert [titles(page.json()), titles(rest.json())] == [["4", "3"], ["2", "1"]]


async def test_a_path_selects_what_is_there_and_below(app: RunningApp) -> None:
    await created(app, "top")
    for path in ("src", "src/deep", "srcs", "Src", "a_b", "axb/c"):
        await created(app, path, below(app, path))
    assert titles((await asked(app, "/session", path="src")).json()) == ["src/deep", "src"]
    assert titles((await asked(app, "/session", path="src/")).json()) == ["src/deep", "src"]
    assert titles((await asked(app, "/session", path="a_b")).json()) == ["a_b"]
    assert titles((await asked(app, "/session", path="src/deep", directory=str(app.directory))).json()) == ["src/deep"]
    assert titles((await asked(app, "/session", path="nowhere")).json()) == []
    assert len((await asked(app, "/session", path="")).json()) == 7


async def test_the_scope_of_a_project_is_all_its_directories(app: RunningApp) -> None:
    deep = below(app, "deep")
    await created(app, "top")
    await created(app, "deep", deep)
    assert titles((await asked(app, "/session", directory=str(deep))).json()) == ["deep"]
    assert titles((await asked(app, "/session", directory=str(deep), scope="project")).json()) == ["deep", "top"]


async def test_all_sessions_are_those_of_all_projects_with_theirs(app: RunningApp, tmp_path: Path) -> None:
    other = make_workspace(tmp_path / "other")
    (other / "b.txt").write_text("another project")
    outside = tmp_path / "no repository"
    outside.mkdir()
    for title, directory in (("here", None), ("there", other), ("outside", outside)):
        await created(app, title, directory)
    found = await app.get(ALL)
    assert titles(found) == ["outside", "there", "here"]
    for session in found:
        project = await app.get("/project/current", params={"directory": session["directory"]})
        assert session["project"] == {"id": project["id"], "worktree": project["worktree"]}
        assert session == {**await app.get(f"/session/{session['id']}"), "project": session["project"]}
    assert titles((await asked(app, ALL, directory=str(other))).json()) == ["there"]


async def test_all_sessions_are_paged_by_when_they_were_updated(app: RunningApp) -> None:
    """Also those that were updated in the same millisecond."""
    for title, time in zip("abcdefgh", (5, 9, 7, 7, 7, 3, 1, 5), strict=True):
        await updated_at(app, (await created(app, title))["id"], time)
    assert await pages(app, ALL, limit=1) == [["b"], ["e", "d", "c"], ["h", "a"], ["f"], ["g"]]
    assert await pages(app, ALL, limit=2) == [["b"], ["e", "d", "c"], ["h", "a"], ["f", "g"]]
    assert await pages(app, ALL, limit=4) == [["b", "e", "d", "c"], ["h", "a", "f", "g"]]
    assert await pages(app, ALL) == [["b", "e", "d", "c", "h", "a", "f", "g"]]
    assert titles((await asked(app, ALL, start=7)).json()) == ["b", "e", "d", "c"]
    assert titles((await asked(app, ALL, cursor=5)).json()) == ["f", "g"]


async def test_all_sessions_are_filtered(app: RunningApp) -> None:
    parent = await created(app, "Parent")
    await created(app, "Child", parentID=parent["id"])
    assert titles((await asked(app, ALL, roots="true")).json()) == ["Parent"]
    assert titles((await asked(app, ALL, roots="false")).json()) == ["Child", "Parent"]
    assert titles((await asked(app, ALL, search="CHILD")).json()) == ["Child"]


async def test_archived_sessions_are_shown_to_who_asks_for_them(app: RunningApp) -> None:
    session = await created(app, "Old")
    await created(app, "New")
    path = f"/session/{session['id']}"
    assert (await app.call("PATCH", path, {"time": {"archived": 1234}}))["time"]["archived"] == 1234
    assert titles(await app.get(ALL)) == ["New"]
    assert titles((await asked(app, ALL, archived="true")).json()) == ["New", "Old"]
    await app.call("PATCH", path, {"title": "Renamed"})
    assert titles(await app.get(ALL)) == ["New"], "still archived"
    await app.call("PATCH", path, {"time": {"archived": 0}})
    assert titles(await app.get(ALL)) == ["New", "Renamed"]


async def test_members_see_their_own(app: RunningApp) -> None:
    async with user(app, "root", "admin") as root, user(app, "anna") as anna, user(app, "bert") as bert:
        for who, title in ((anna, "Anna's"), (bert, "Bert's"), (anna, "Anna's other")):
            await created(who, title)
        assert titles(await anna.get(ALL)) == ["Anna's other", "Anna's"]
        assert titles(await bert.get(ALL)) == ["Bert's"]
        assert titles(await root.get(ALL)) == ["Anna's other", "Bert's", "Anna's"]
        assert await pages(anna, "/session", limit=1) == [["Anna's other"], ["Anna's"]]


async def test_sessions_of_directories_that_the_server_may_not_enter_are_not_shown(app: RunningApp, tmp_path: Path) -> None:
    await created(app, "here")
    other = tmp_path / "other"
    other.mkdir()
    await created(app, "there", other)
    assert titles(await app.get(ALL)) == ["there", "here"]
    async with running_app(tmp_path, database_url=app.services.settings.database_url) as narrow:
        assert titles(await narrow.get(ALL)) == ["here"]
        assert titles((await asked(narrow, ALL, directory=str(other))).json()) == []
