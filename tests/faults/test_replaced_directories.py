"""A directory that is another one by the time it is used: a link stands there, another directory, or a folder above it is one.

Commands of a member can do that at any time, between two steps of a turn and between a check and what follows it. Whatever comes
then, nothing of others is read or written.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from exchanging import exchanges, exchanging
from git_files import put_file
from long_form import LONG
from running_app import RunningApp, make_workspace, running_app, text_part
from sandboxed import needs_sandbox
from turns import call, requests, say, task, tools, until
from user_logins import logged_in, user

from app.project.sandbox.scope import private_directory

SECRET = "marked-secret"
ALLOW_ALL = [{"permission": "*", "pattern": "*", "action": "allow"}]
FLIP_SECONDS, LEAST_TRIES = 20.0 if LONG else 1.0, 10


@dataclass
class Ground:
    """Of anna: a project `y` in her root, with a directory below it. Not hers: `victim`, which has the same names in it."""

    base: Path
    victim: Path

    @property
    def root(self) -> Path:
        return self.base / "anna"

    @property
    def project(self) -> Path:
        return self.root / "deep" / "y"

    @property
    def aside(self) -> Path:
        return self.root / "aside"

    def swap(self, place: Path) -> None:
        """A link to the victim stands there, or the victim itself if that is anna's other directory."""
        place.rename(self.aside)
        if self.victim == self.root / "other":
            self.victim.rename(place)
        else:
            place.symlink_to(self.victim)

    def put_back(self, place: Path) -> None:
        if place.is_symlink():
            place.unlink()
        else:
            place.rename(self.root / "other")
        self.aside.rename(place)

    def seen(self) -> dict[str, str]:
        """What the victim has that the calls below would read or write."""
        return {str(path): path.read_text() for name in ("planted*", "unt.txt") for path in self.victim.rglob(name)}


def make_ground(base: Path, *, victim: str, in_git: bool) -> Ground:
    ground = Ground(base, base / victim)
    if in_git:
        make_workspace(ground.project)
    (ground.project / "sub").mkdir(parents=True)
    for folder in (ground.victim, ground.victim / "y", ground.victim / "sub", ground.root / "other"):
        put_file(folder / "unt.txt", f"{SECRET}\n")
    for folder in (ground.project, ground.project / "sub"):
        (folder / "own.txt").write_text("own words\n")
    return ground


@asynccontextmanager
async def anna_in(ground: Ground, turns: Any, **settings: Any) -> AsyncIterator[tuple[RunningApp, RunningApp]]:
    """The server, and anna's view of it."""
    async with running_app(ground.base, turns=turns, **settings) as app:
        async with user(app, "anna", roots=[ground.root]) as anna, user(app, "bert", roots=[ground.base / "bert"]):
            yield app, anna


async def session_in(anna: RunningApp, directory: Path) -> str:
    session = await anna.post(f"/session?directory={directory}", {"title": "T", "permission": ALLOW_ALL})
    return str(session["id"])


REACHING = [
    call("read", filePath="unt.txt"),
    call("write", filePath="planted.md", content="x"),
    call("write", filePath="new/planted.md", content="x"),
    call("edit", filePath="unt.txt", oldString=SECRET, newString="changed"),
    call("edit", filePath="planted2.md", oldString="", newString="x"),
    call("multiedit", filePath="planted3.md", edits=[{"oldString": "", "newString": "x"}]),
    call("glob", pattern="**/*.txt"),
    call("grep", pattern="marked"),
    call("grep", pattern="marked", path="unt.txt"),
    call("list"),
    call("bash", command="cat unt.txt; echo x > planted4.md", description="Looks"),
]
HONEST = [call("read", filePath="own.txt"), call("glob", pattern="*.txt"), call("grep", pattern="own words"), call("list")]


LINKED = [
    ("deep/y", "deep/y", "bert", True),
    ("deep/y", "deep/y", "data", False),
    ("deep/y", "deep", "bert", True),
    ("deep/y", "deep", "bert", False),
    ("deep/y/sub", "deep/y/sub", "bert", True),
    ("deep/y/sub", "deep/y", "bert", False),
]
OTHER = [("deep/y", "deep/y", "anna/other", in_git, "auto") for in_git in (True, False)]
REPLACED = [*((*row, sandbox) for row in LINKED for sandbox in ("auto", "off")), *OTHER]


@pytest.mark.parametrize(("where", "replaced", "victim", "in_git", "sandbox"), REPLACED)
async def test_later_steps_of_a_turn_reach_nothing_in_what_stands_in_place_of_the_directory(
    tmp_path: Path, where: str, replaced: str, victim: str, in_git: bool, sandbox: str
) -> None:
    """A link, or another directory of that name."""
    ground, gate = make_ground(tmp_path, victim=victim, in_git=in_git), asyncio.Event()
    turns = [[{"wait": gate}, *REACHING], [say("Read: none.")], HONEST, [say()]]
    async with anna_in(ground, turns, sandbox=sandbox) as (app, anna):
        session, before = await session_in(anna, ground.root / where), ground.seen()
        await swapped(ground, app, anna, session, gate, ground.root / replaced, requested=2)
        messages = await anna.messages(session)
        assert len(tools(messages)) == len(REACHING)
        assert SECRET not in outputs(messages) and SECRET not in str(await anna.get(f"/session/{session}/diff"))
        assert ground.seen() == before
        await honest_use(anna, session)
        assert SECRET not in str(await anna.get(f"/session/{session}/diff"))


async def swapped(
    ground: Ground, app: RunningApp, anna: RunningApp, session: str, gate: asyncio.Event, place: Path, *, requested: int
) -> None:
    """A turn with so many requests to the model, from whose first on another directory stands in that place."""
    await anna.prompt_async(session, "go")
    await until(lambda: requests(app))
    ground.swap(place)
    gate.set()
    await until(lambda: len(requests(app)) == requested)
    async with asyncio.timeout(60):
        while (await anna.get("/session/status")).get(session, {"type": "idle"})["type"] != "idle":
            await asyncio.sleep(0.02)
    ground.put_back(place)


async def honest_use(anna: RunningApp, session: str) -> None:
    await anna.prompt(session, "again")
    again = tools(await anna.messages(session))[-len(HONEST) :]
    assert [part["state"]["status"] for part in again] == ["completed"] * len(HONEST), again
    assert all("own" in part["state"]["output"] for part in again)


def outputs(messages: list[dict[str, Any]]) -> str:
    """What tools told, without what they were asked."""
    return str([{**part["state"], "input": None} for part in tools(messages)])


async def test_a_subagent_reaches_nothing_either(tmp_path: Path) -> None:
    ground, gate = make_ground(tmp_path, victim="bert", in_git=True), asyncio.Event()
    async with anna_in(ground, [[{"wait": gate}, task()], REACHING, [say("Read: none.")], [say()]]) as (app, anna):
        session, before = await session_in(anna, ground.project), ground.seen()
        await swapped(ground, app, anna, session, gate, ground.project, requested=4)
        told = [await anna.messages(one["id"]) for one in await anna.get(f"/session/{session}/children")]
        assert len(tools(told[0])) == len(REACHING)
        assert SECRET not in outputs(told[0]) and ground.seen() == before


@pytest.mark.parametrize("victim", ["bert", "anna/other"])
async def test_a_queued_prompt_is_not_answered_in_another_directory(tmp_path: Path, victim: str) -> None:
    ground, gate = make_ground(tmp_path, victim=victim, in_git=True), asyncio.Event()
    async with anna_in(ground, [[{"wait": gate}, say("One.")], REACHING, [say("Read: none.")]]) as (app, anna):
        session, before = await session_in(anna, ground.project), ground.seen()
        await anna.prompt_async(session, "one")
        await until(lambda: requests(app))
        await anna.prompt_async(session, "two", whenBusy="queue")
        ground.swap(ground.project)
        gate.set()
        messages = await answered(anna, session, 4)
        ground.put_back(ground.project)
        assert messages[-1]["info"]["error"]["data"]["message"]
        assert len(requests(app)) == 1
        assert ground.seen() == before and SECRET not in outputs(messages)


async def test_what_a_stopped_server_left_is_not_gone_on_with_in_what_is_not_its_users(tmp_path: Path) -> None:
    """A turn that was interrupted, and a prompt that waited behind it."""
    ground, gate = make_ground(tmp_path, victim="bert", in_git=True), asyncio.Event()
    async with anna_in(ground, [[{"wait": gate}, say("One.")]]) as (app, anna):
        session, before = await session_in(anna, ground.project), ground.seen()
        await anna.prompt_async(session, "one")
        await until(lambda: requests(app))
        await anna.prompt_async(session, "two", whenBusy="queue")
        token = anna.client.headers["authorization"].removeprefix("Bearer ")
    ground.swap(ground.project)
    async with running_app(tmp_path, turns=[REACHING] * 4) as app, logged_in(app, token) as anna:
        messages = await answered(anna, session, 4)
        assert [bool(message["info"].get("error")) for message in messages] == [False, True, False, True]
        assert not requests(app) and ground.seen() == before and SECRET not in outputs(messages)


async def answered(anna: RunningApp, session: str, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(60):
        while len(messages := await anna.messages(session)) < count or "completed" not in messages[-1]["info"]["time"]:
            await asyncio.sleep(0.02)
    return messages


Answer = TypeVar("Answer")


async def raced(ask: Callable[[], Awaitable[Answer]], place: Path, target: Path, pause: float = 0.001) -> list[Answer]:
    """What came of it while the place was by turns itself and a link to the target."""
    answers, end = list[Answer](), time.monotonic() + FLIP_SECONDS
    with exchanging(place, target, pause):
        while time.monotonic() < end or len(answers) < LEAST_TRIES:
            answers.append(await ask())
    return answers


RACED: dict[str, tuple[dict[str, str], str]] = {
    "/find": ({"pattern": "marked"}, SECRET),
    "/find/file": ({"query": "unt"}, '["unt.txt"'),
    "/api/fs/find": ({"query": "unt"}, '"path":"unt.txt"'),
    "/file/content": ({"path": "unt.txt"}, SECRET),
    "/file": ({"path": "."}, '"name":"unt.txt"'),
    "shell": ({"command": "cat unt.txt", "agent": "build"}, SECRET),
}
"""Ways to look, and what of the answer tells of a file."""


@exchanges
@pytest.mark.parametrize("way", RACED)
async def test_a_race_wins_nothing(tmp_path: Path, way: str) -> None:
    ground = make_ground(tmp_path, victim="bert", in_git=False)
    (asked, leaked), where = RACED[way], {"location[directory]" if "/api" in way else "directory": str(ground.project)}
    async with anna_in(ground, []) as (_, anna):
        session = await session_in(anna, ground.project)

        async def look() -> str:
            if way == "shell":
                return (await anna.client.post(f"/session/{session}/shell", params=where, json=asked)).text
            return (await anna.client.get(way, params={**where, **asked})).text

        assert not [text for text in await raced(look, ground.project, ground.victim) if leaked in text]
        (ground.project / "unt.txt").write_text(f"{SECRET}\n")  # now it is anna's
        async with asyncio.timeout(60):
            while leaked not in await look():
                await asyncio.sleep(0.2)


@exchanges
async def test_a_patch_is_applied_where_it_was_allowed(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, victim="bert", in_git=True)
    body, params = {"patch": "--- /dev/null\n+++ b/planted.md\n@@ -0,0 +1 @@\n+x\n"}, {"directory": str(ground.project)}
    async with anna_in(ground, []) as (_, anna):
        before = ground.seen()
        await anna.post("/vcs/apply", body, params=params)
        (ground.project / "planted.md").unlink()
        await raced(lambda: anna.client.post("/vcs/apply", params=params, json=body), ground.project, ground.victim)
        assert ground.seen() == before


@exchanges
async def test_a_repository_is_made_where_it_was_allowed(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, victim="bert", in_git=False)
    made, params = ground.project / ".git", {"directory": str(ground.project)}
    async with anna_in(ground, []) as (_, anna):

        async def make() -> None:
            await anna.client.post("/project/git/init", params=params)
            assert not (ground.victim / ".git").exists()
            shutil.rmtree(made, ignore_errors=True)

        await raced(make, ground.project, ground.victim)
        shutil.rmtree(made, ignore_errors=True)
        assert (await anna.post("/project/git/init", {}, params=params))["worktree"] == str(ground.project)
        assert (made / "HEAD").exists()


@needs_sandbox
@exchanges
async def test_a_command_has_no_other_ones_home(tmp_path: Path) -> None:
    """Nor its /tmp: what is put into a home is obeyed by the next shell there."""
    ground = make_ground(tmp_path, victim="bert", in_git=False)
    (ground.project / "look.sh").write_text("cat ~/canary /tmp/canary; touch ~/planted /tmp/planted\n")
    async with anna_in(ground, []) as (_, anna):
        session, of_bert = await session_in(anna, ground.project), private_directory(tmp_path / "data", ground.victim)
        for name in ("home", "tmp"):
            put_file(of_bert / name / "canary", SECRET)
        path, command = f"/session/{session}/shell", {"agent": "build", "command": "sh look.sh"}
        said = await raced(lambda: anna.client.post(path, json=command), ground.project, ground.victim, pause=0.004)
        assert not [each.text for each in said if SECRET in each.text]
        assert not list(of_bert.glob("*/planted"))
        await anna.client.post(path, json=command)
        assert (private_directory(tmp_path / "data", ground.project) / "home" / "planted").exists()


@exchanges
async def test_tools_show_nothing_through_a_link_that_comes_and_goes(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, victim="bert", in_git=True)
    looks = [
        call("grep", pattern="marked|own"),
        call("grep", pattern="marked|own", path="ff.txt"),
        call("grep", pattern="marked|own", path="folder"),
        call("read", filePath="ff.txt"),
        call("read", filePath="folder/unt.txt"),
        call("list", path="folder"),
    ]
    file, folder = ground.project / "ff.txt", ground.project / "folder"
    file.write_text("own words\n")
    folder.mkdir()
    async with anna_in(ground, [looks * 5, [say()]]) as (_, anna):
        session = await session_in(anna, ground.project)
        with exchanging(file, ground.victim / "unt.txt"), exchanging(folder, ground.victim):
            await anna.prompt(session, "go")
        told = outputs(await anna.messages(session))
        assert "own words" in told and SECRET not in told


@exchanges
@pytest.mark.parametrize("mime", ["application/octet-stream", "text/plain", "image/png"])
async def test_an_attached_file_is_the_one_that_was_judged(tmp_path: Path, mime: str) -> None:
    ground = make_ground(tmp_path, victim="bert", in_git=False)
    place = ground.project / "ff.txt"
    place.write_text("own words\n")
    async with anna_in(ground, []) as (_, anna):
        session = await session_in(anna, ground.project)
        file = {"type": "file", "mime": mime, "url": f"file://{place}", "filename": "ff.txt"}
        path, body = f"/session/{session}/message", {"parts": [text_part("look"), file], "noReply": True}
        answers = await raced(lambda: anna.client.post(path, json=body), place, ground.victim / "unt.txt")
        assert not [each.text for each in answers if SECRET in each.text or "bWFya2VkLXNlY3JldA" in each.text]
        honest = str(await anna.post(path, body))
        assert "own words" in honest or "b3duIHdvcmRz" in honest


@asynccontextmanager
async def pool(
    tmp_path: Path, turns: Any, sandbox: str = "auto"
) -> AsyncIterator[tuple[Path, RunningApp, RunningApp, RunningApp]]:
    """hugo has a root in the pool; zoe, who has none, may work in the pool; adam sees everything."""
    place = tmp_path / "pool"
    (place / "hugo" / "deep").mkdir(parents=True)
    (place / "hugo" / "h.txt").write_text(f"{SECRET}\n")
    (place / "own.txt").write_text("own words of the pool\n")
    (place / "way").symlink_to("hugo")
    async with running_app(tmp_path, turns=turns, roots=str(place), sandbox=sandbox) as app:
        async with user(app, "hugo", roots=[place / "hugo"]), user(app, "zoe") as zoe, user(app, "adam", "admin") as adam:
            yield place, app, zoe, adam


BELOW = [
    call("read", filePath="hugo/h.txt"),
    call("read", filePath="way/h.txt"),
    call("read", filePath="hugo/g.txt"),
    call("write", filePath="hugo/planted.md", content="x"),
    call("write", filePath="way/deep/planted.md", content="x"),
    call("edit", filePath="hugo/h.txt", oldString="marked", newString="changed"),
    call("glob", pattern="**/h.txt"),
    call("glob", pattern="h.txt", path="hugo"),
    call("grep", pattern="marked"),
    call("grep", pattern="marked", path="way"),
    call("list", path="hugo"),
    call("list"),
    call("bash", command="cat hug?/h.txt way/h.txt; echo x > hugo/planted.md", description="Looks"),
]


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_a_member_without_roots_reaches_no_root_of_another(tmp_path: Path, sandbox: str) -> None:
    calls = BELOW if sandbox == "auto" else BELOW[:-1]  # without a sandbox a command reaches what the server's user reaches
    turns = [calls, [say()], [call("read", filePath="own.txt"), call("grep", pattern="own words")], [say()]]
    async with pool(tmp_path, turns, sandbox) as (place, _, zoe, adam):
        session = await session_in(zoe, place)
        await zoe.prompt(session, "go")
        told = outputs(await zoe.messages(session))
        assert SECRET not in told and f"{place}/hugo/h.txt" not in completed(await zoe.messages(session))
        assert not list(place.rglob("planted*")) and (place / "hugo" / "h.txt").read_text() == f"{SECRET}\n"
        for way in (place / "hugo" / "h.txt", place / "way" / "h.txt", place / "hugo"):
            for mime in ("text/plain", "application/octet-stream"):
                file = {"type": "file", "mime": mime, "url": f"file://{way}"}
                await zoe.post(f"/session/{session}/message", {"parts": [file], "noReply": True}, expect=400)
        await finds_nothing(place, zoe, adam)
        if sandbox == "auto":
            await sees_nothing_in_a_terminal(place, zoe)
        await zoe.prompt(session, "again")
        assert completed(await zoe.messages(session)).count("own words of the pool") == 2


async def sees_nothing_in_a_terminal(place: Path, zoe: RunningApp) -> None:
    command = "cat hugo/h.txt way/h.txt > got.txt; cat own.txt >> got.txt; echo x > hugo/planted.md; mv got.txt ended.txt"
    await zoe.post(f"/pty?directory={place}", {"command": "/bin/sh", "args": ["-c", command]})
    await until(lambda: (place / "ended.txt").exists())
    assert (place / "ended.txt").read_text() == "own words of the pool\n"
    assert not list(place.rglob("planted*"))
    (place / "ended.txt").unlink()


def completed(messages: list[dict[str, Any]]) -> str:
    return str([part["state"]["output"] for part in tools(messages) if part["state"]["status"] == "completed"])


async def finds_nothing(place: Path, zoe: RunningApp, adam: RunningApp) -> None:
    """Also not what was listed for an admin just before."""
    where = {"directory": str(place)}
    for reader, sees in ((adam, True), (zoe, False), (adam, True)):
        found = await reader.get("/find/file", params={**where, "query": "h.txt"})
        assert ("hugo/h.txt" in found) is sees
        listed = await reader.get("/api/fs/find", params={"location[directory]": str(place), "query": "h.txt"})
        assert ("hugo/h.txt" in str(listed)) is sees
        matches = await reader.get("/find", params={**where, "pattern": "marked"})
        assert (SECRET in str(matches)) is sees
    assert "own.txt" in await zoe.get("/find/file", params={**where, "query": "own"})


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_the_servers_own_files_are_no_part_of_a_project_around_them(tmp_path: Path, sandbox: str) -> None:
    """On a server without users, and for a member and an admin."""
    calls = [call("read", filePath="data/secret.txt"), call("grep", pattern="marked"), call("write", filePath="data/x")]
    async with running_app(tmp_path, turns=[calls, [say()]] * 3, roots=str(tmp_path), sandbox=sandbox) as app:
        (app.data_dir / "secret.txt").write_text(f"{SECRET}\n")
        await sees_nothing_of_the_server(app, tmp_path)
        async with user(app, "zoe") as zoe, user(app, "adam", "admin") as adam:
            for reader in (zoe, adam):
                await sees_nothing_of_the_server(reader, tmp_path)


async def sees_nothing_of_the_server(reader: RunningApp, place: Path) -> None:
    session, data = await session_in(reader, place), reader.data_dir
    await reader.prompt(session, "go")
    messages = await reader.messages(session)
    assert len(tools(messages)) == 3 and SECRET not in outputs(messages) and not (data / "x").exists()
    file = {"type": "file", "mime": "text/plain", "url": f"file://{data}/secret.txt"}
    await reader.post(f"/session/{session}/message", {"parts": [file], "noReply": True}, expect=400)
    assert (await reader.client.get("/file", params={"directory": str(data), "path": "."})).status_code == 403
    ways = {"/file/content": {"path": "data/secret.txt"}, "/find": {"pattern": "marked"}, "/find/file": {"query": "secret.txt"}}
    for path, query in ways.items():
        found = await reader.client.get(path, params={"directory": str(place), **query})
        assert SECRET not in found.text and '"data/secret.txt"' not in found.text.replace('"path":"data/secret.txt"', "")
