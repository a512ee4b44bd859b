"""A project that has links, FIFOs, devices and huge files where the server looks for its configuration, instructions and git's
files: nothing of another's is shown, nobody waits, memory stays, and a server that was killed starts again."""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import pytest
from figures import Figure
from git_files import put_file
from hostile_repositories import flipping
from killable import Client, Servers
from long_form import LONG
from obstacles import LINKS, SECRET, put
from real_server import peak_memory
from running_app import RunningApp, make_workspace, running_app
from turns import assert_finished, bash, call, say, states_after
from user_logins import user

FLIP_SECONDS, LEAST_LOOKS = 20.0 if LONG else 1.0, 5
MAX_SECONDS = 10.0
MAX_MEMORY = 100 * 2**20
"""More than before: a file that is read has at most one MiB."""
FILES = [
    *(
        "opencode.json",
        "opencode.jsonc",
        "AGENTS.md",
        ".opencode/opencode.json",
        ".opencode/command/x.md",
        ".opencode/agent/x.md",
    ),
    *(".opencode/mode/x.md", ".opencode/skill/x/SKILL.md", ".claude/skills/y/SKILL.md", "sub/AGENTS.md"),
]
TOPS = sorted({Path(name).parts[0] for name in FILES})
SKILL = f"---\nname: x\ndescription: {SECRET}\n---\n{SECRET}"
ROUTES = ["/command", "/agent", "/skill", "/config", "/config/providers", "/api/agent", "/api/command", "/api/skill"]


def clear(project: Path) -> None:
    for path in project.iterdir():
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.name != ".git":
            shutil.rmtree(path)


def fill(place: Path) -> Path:
    """With each kind of file, of which none says anything but SECRET."""
    for name in FILES:
        put_file(place / name, json.dumps({"username": SECRET, "instructions": ["*"]}) if "json" in name else SKILL)
    return place


@asynccontextmanager
async def anna(base: Path) -> AsyncIterator[tuple[RunningApp, Path, list[Path]]]:
    """A member with a project in a root of her own; what is not hers: another's root, the data directory, the machine."""
    roots = [base / name for name in ("anna", "bert")]
    for root in roots:
        root.mkdir()
    project = make_workspace(roots[0] / "project")
    async with running_app(base) as app, user(app, "bert", roots=[roots[1]]), user(app, "anna", roots=[roots[0]]) as member:
        yield member, project, [fill(roots[1] / "theirs"), fill(app.data_dir / "theirs"), fill(base / "elsewhere")]


async def seen(app: RunningApp, project: Path) -> str:
    """All that the member is shown of the project, and all that the model is sent."""
    answers = [await app.client.get(route, params={"directory": str(project)}) for route in ROUTES]
    answers.append(await app.client.post("/session", json={}, params={"directory": str(project)}))
    if answers[-1].is_success:
        prompt = {"parts": [{"type": "text", "text": "Hi"}]}
        answers.append(await app.client.post(f"/session/{answers[-1].json()['id']}/message", json=prompt))
    requests = [str(request) for request in app.provider.requests]
    return "".join([*(answer.text for answer in answers), *requests])


@pytest.mark.parametrize("kind", LINKS)
async def test_links_show_a_member_nothing_that_is_not_theirs(tmp_path: Path, kind: str) -> None:
    async with anna(tmp_path) as (app, project, others):
        for theirs in others:
            for name in FILES:
                put(kind, project / name, theirs / name)
            assert SECRET not in await seen(app, project)
            clear(project)
            for name in TOPS:
                put(kind, project / name, theirs / name)
            assert SECRET not in await seen(app, project)
            clear(project)
        fill(project)
        assert SECRET in await seen(app, project)


async def test_what_a_member_s_configuration_names_shows_nothing_that_is_not_theirs(tmp_path: Path) -> None:
    async with anna(tmp_path) as (app, project, others):
        for theirs in others:
            put("link", project / "named", theirs)
            named = [str(theirs / "*.md"), "named/*.md", "named/**/*", f"../../{theirs.name}/*.md", "/**/AGENTS.md", "~/*"]
            paths = [str(theirs / ".opencode/skill"), "named/.opencode/skill"]
            (project / "opencode.json").write_text(json.dumps({"instructions": named, "skills": {"paths": paths}}))
            assert SECRET not in await seen(app, project)
            for file in (str(theirs / "AGENTS.md"), "named/AGENTS.md", "named/opencode.json"):
                (project / "opencode.json").write_text(json.dumps({"username": f"{{file:{file}}}"}))
                assert SECRET not in await seen(app, project)
            (project / "named").unlink()


async def test_what_a_member_changes_is_written_to_their_own_file(tmp_path: Path) -> None:
    async with anna(tmp_path) as (app, project, others):
        for theirs in others:
            for name in ("opencode.json", "opencode.jsonc"):
                put("link", project / name, theirs / name)
                before = (theirs / name).read_text()
                await app.client.patch("/config", params={"directory": str(project)}, json={"theme": "mine"})
                assert (theirs / name).read_text() == before
                (project / name).unlink()
            put("link", project / "opencode.json", theirs / "new.json")
            await app.client.patch("/config", params={"directory": str(project)}, json={"theme": "mine"})
            assert not (theirs / "new.json").exists()
            (project / "opencode.json").unlink()


@pytest.mark.parametrize("place", [".opencode/command/x.md", ".opencode/agent", ".opencode", "AGENTS.md", "."])
async def test_nor_do_links_that_are_exchanged_all_the_time(tmp_path: Path, place: str, figure: Figure) -> None:
    async with anna(tmp_path) as (app, project, (theirs, *_)):
        honest = fill(project.parent / "honest")
        for name in FILES:
            (honest / name).write_text((honest / name).read_text().replace(SECRET, "honest"))
        target = project if place == "." else project / place
        if place == ".":
            project.rename(project.with_name("moved"))
        target.parent.mkdir(parents=True, exist_ok=True)
        to_honest, to_theirs = tmp_path / "to honest", tmp_path / "to theirs"
        to_honest.symlink_to(honest / place)
        to_theirs.symlink_to(theirs / place)
        target.symlink_to(honest / place)
        looks, end = 0, time.monotonic() + FLIP_SECONDS
        with flipping(target, to_honest, to_theirs):
            while looks < LEAST_LOOKS or time.monotonic() < end:
                looks += 1
                assert SECRET not in await seen(app, project)
        figure(f"{looks} looks at a project whose {place} is exchanged meanwhile: nothing of another's")


MARKERS = ("ruff.toml", "pyproject.toml", "package.json", "biome.json", ".venv", "node_modules", "opencode.json", "sub/.git")


async def test_links_that_cannot_be_followed_are_in_nobodys_way(tmp_path: Path) -> None:
    """Whether they lead anywhere cannot even be asked: the name is too long, as a folder that may not be entered is closed."""
    project = make_workspace(tmp_path / "project")
    (project / "sub").mkdir()
    for name in MARKERS:
        (project / name).symlink_to("a" * 300)
    put_file(project / "other" / ".git", f"gitdir: {'a' * 300}")
    calls = [[call("write", filePath=name, content="x = 1\n")] for name in ("x.py", "x.ts")]
    async with running_app(tmp_path, workspace=project) as app:
        states = await states_after(app, *calls, [call("read", filePath="x.py")], [say()])
        assert [state["status"] for state in states] == ["completed"] * 3, states
        assert await app.get("/formatter")
        for name in ("sub", "other"):
            assert (await app.get("/path", params={"directory": str(project / name)}))["directory"] == str(project / name)
        refused = await app.client.patch("/config", json={"theme": "mine"})
        assert refused.json()["name"] == "ConfigInvalidError"


# Nothing waits, and memory stays.


KINDS = ["fifo", "endless"]
GIT_FILES = [".git/info/exclude", ".git/HEAD", ".git/config", ".git/commondir", ".gitignore", ".git/index"]


async def answers(client: Client) -> None:
    async with asyncio.timeout(MAX_SECONDS):
        await client.get("/global/health")


@pytest.mark.parametrize(("name", "kind"), [*product(GIT_FILES, KINDS)] if LONG else [*zip(GIT_FILES, KINDS * 3, strict=True)])
async def test_git_files_that_hold_up_a_turn_hold_up_neither_the_server_nor_its_next_start(
    tmp_path: Path, name: str, kind: str
) -> None:
    servers = Servers(tmp_path)
    path = servers.workspace / name
    written = servers.workspace / "n.md"
    servers.play([[call("write", filePath=str(written), content="# x")], [bash("sleep 60")]])
    async with servers.start() as client:
        session = await client.session()
        await client.get("/vcs")
        path.unlink(missing_ok=True)
        put(kind, path, tmp_path)
        await client.prompt(session, path="prompt_async")
        await client.condition(f"/session/{session}/message", lambda found: "sleep 60" in json.dumps(found))
        assert written.exists()
        await answers(client)
    servers.play([[say("Done.")]] * 3)
    began = time.monotonic()
    async with servers.start() as client:
        assert time.monotonic() - began < 2 * MAX_SECONDS
        await answers(client)
        async with asyncio.timeout(MAX_SECONDS):
            await client.idle()
        assert_finished(await client.get(f"/session/{session}/message"))
        client.process.terminate()
        await client.ended(MAX_SECONDS)


async def test_a_directory_that_does_not_open_holds_up_no_start(tmp_path: Path) -> None:
    """Git waits for an object: nobody looks at thousands of them before."""
    servers = Servers(tmp_path)
    servers.play([[say("I wait."), bash("sleep 60")]])
    async with servers.start() as client:
        session = await client.session()
        await client.prompt(session, path="prompt_async")
        await client.condition(f"/session/{session}/message", lambda found: "sleep 60" in json.dumps(found))
    git = ["git", "-C", str(servers.workspace)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    path = servers.workspace / ".git/objects" / commit[:2] / commit[2:]
    path.unlink()
    os.mkfifo(path)
    began = time.monotonic()
    async with servers.start() as client:
        assert time.monotonic() - began < 2 * MAX_SECONDS
        await answers(client)
        client.process.terminate()
        await client.ended(MAX_SECONDS)


@pytest.mark.parametrize("kind", ["endless", "huge", "fifo"])
async def test_files_without_an_end_take_no_memory(tmp_path: Path, kind: str, figure: Figure) -> None:
    servers = Servers(tmp_path)
    named = "docs/a.md"
    async with servers.start() as client:
        session = await client.session()
        await client.prompt(session, "long 1")
        before = peak_memory(client.process)
        (servers.workspace / ".git/info").mkdir()
        (servers.workspace / ".git/info/exclude").write_text("*")  # what lies in the project itself is snapshots' business
        for name in [*FILES, *GIT_FILES, named]:
            path = servers.workspace / name
            held = path.read_bytes() if path.exists() else None
            path.unlink(missing_ok=True)
            put(kind, path, tmp_path)
            for route in [*ROUTES, "/vcs", "/vcs/status", "/file/status"]:
                async with asyncio.timeout(MAX_SECONDS):
                    await client.http.get(route)
            async with asyncio.timeout(MAX_SECONDS):
                assert (await client.prompt(session, "read sub/a.txt"))["info"].get("error") is None
            path.unlink()
            if held is not None:
                path.write_bytes(held)
        put(kind, servers.workspace / "AGENTS.md", tmp_path)
        put(kind, servers.workspace / named, tmp_path)
        (servers.workspace / "opencode.json").write_text(json.dumps({"instructions": ["docs/*.md", "**/x"]}))
        assert (await client.prompt(session, "long 1"))["info"].get("error") is None
        (servers.workspace / "opencode.json").write_text(json.dumps({"username": f"{{file:{named}}}"}))
        await client.http.get("/config")
        more = peak_memory(client.process) - before
        figure(f"{kind} in place of {len(FILES) + len(GIT_FILES) + 2} files: {more / 2**20:.0f} MiB more")
        assert more < MAX_MEMORY
    assert str(servers.workspace / "AGENTS.md") in servers.log


# Honest projects.


async def test_links_within_the_project_and_the_user_s_own_anywhere_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, dotfiles = tmp_path / "home", fill(tmp_path / "dotfiles")
    (home / ".config").mkdir(parents=True)
    (home / ".config" / "opencode").symlink_to(dotfiles / ".opencode")
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    project = make_workspace(tmp_path / "workspace")
    put_file(project / "docs" / "rules.md", "the rules of the project")
    (project / "AGENTS.md").symlink_to("docs/rules.md")
    (project / ".opencode").mkdir()
    (project / ".opencode" / "command").symlink_to("../docs")
    async with running_app(tmp_path, workspace=project) as app:
        commands = {command["name"]: command["template"] for command in await app.get("/command")}
        assert commands["rules"] == "the rules of the project" and SECRET in commands["x"]
        assert "the rules of the project" in await seen(app, project)
