"""The walls between members, and around the server: variables and words of programs that a project configures, links, and roots
that others got after the start. By what stands in answers and files, and what was made outside."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from itertools import product
from pathlib import Path

import pytest
from figures import Figure
from git_files import git, put_file
from hostile_ground import Ground, at, hostile_ground, leaks, make_repository
from hostile_repositories import flipping
from long_form import LONG
from polling import until
from running_app import RunningApp, running_app
from sandboxed import needs_sandbox
from user_logins import add_user, user

pytestmark = needs_sandbox
LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
unsigned int la_version(unsigned int version) { return version; }
__attribute__((constructor)) static void begin(void) {
  char path[512];
  snprintf(path, sizeof path, "%s/ran-library", OUTSIDE);
  FILE *file = fopen(path, "a");
  if (file) fclose(file);
}
"""
PRINT = "env > seen.txt"
TRIES = 60 if LONG else 10


@pytest.fixture
async def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    async with hostile_ground(tmp_path, monkeypatch) as made:
        yield made


# Variables.


def variables_of(ground: Ground) -> dict[str, dict[str, str]]:
    """Each makes a file outside if what starts the sandbox obeys it."""
    tools = ground.root / "tools"
    tools.mkdir()
    script = tools / "script"
    script.write_text(f"#!/bin/sh\ntouch {ground.outside}/ran-script\nexec sleep 1\n")
    script.chmod(0o755)
    for name in ("bwrap", "sh", "env", "stat", "bash", "setsid", "python3"):
        shutil.copy(script, tools / name)
    (tools / "sitecustomize.py").write_text(f"open('{ground.outside}/ran-python', 'w')\n")
    library = tools / "evil.so"
    flags = ["-shared", "-fPIC", f'-DOUTSIDE="{ground.outside}"', "-o", str(library), "-x", "c", "-"]
    subprocess.run(["gcc", *flags], input=LIBRARY, text=True, check=True)
    for name in ("libcap.so.2", "libselinux.so.1", "libc.so.6", "libtinfo.so.6", "libpcre2-8.so.0"):
        shutil.copy(library, tools / name)
    return {
        "preload": {"LD_PRELOAD": str(library)},
        "audit": {"LD_AUDIT": str(library)},
        "library path": {"LD_LIBRARY_PATH": str(tools)},
        "debug": {"LD_DEBUG": "all", "LD_DEBUG_OUTPUT": f"{ground.outside}/debug"},
        "profile": {"LD_PROFILE": "libc.so.6", "LD_PROFILE_OUTPUT": str(ground.outside)},
        "trace": {"MALLOC_TRACE": f"{ground.outside}/trace", "LD_PRELOAD": "libc_malloc_debug.so.0"},
        "shell": {
            "BASH_ENV": str(script),
            "ENV": str(script),
            "SHELLOPTS": "xtrace",
            "PS4": f"$(touch {ground.outside}/ran-ps4)",
        },
        "path": {"PATH": f"{tools}:/usr/bin:/bin"},
        "python": {"PYTHONPATH": str(tools), "PYTHONSTARTUP": str(tools / "sitecustomize.py"), "PYTHONHOME": str(tools)},
        "numbers": {"OPENSESSION_INSIDE_0": f"LD_PRELOAD={library}", "OPENSESSION_INSIDE_1": "x", "n": "7"},
        "git": {"GIT_SSH_COMMAND": str(script), "GIT_EXEC_PATH": str(tools), "GIT_CONFIG_GLOBAL": str(script)},
    }


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
async def test_variables_of_mcp_servers_and_terminals_are_obeyed_inside_alone(ground: Ground) -> None:
    """Those of a project's configuration, which a member or a repository writes, what an admin adds, and terminals."""
    async with user(ground.app, "adam", "admin") as adam:
        for (name, variables), way in product(variables_of(ground).items(), ("configured", "added", "terminal")):
            place = ground.root / f"{name} {way}"
            place.mkdir()
            server = {"type": "local", "command": ["/bin/sh", "-c", PRINT], "environment": variables}
            if way == "configured":
                (place / "opencode.json").write_text(json.dumps({"mcp": {"x": server}}))
                await ground.get(place, "/mcp")
            else:
                terminal = {"command": "/bin/sh", "args": ["-c", PRINT], "env": variables}
                path, body = ("/mcp", {"name": "x", "config": server}) if way == "added" else ("/pty", terminal)
                answer = await (adam if way == "added" else ground.anna).client.post(path, json=body, headers=at(place))
                assert answer.status_code == 200, answer.text
            await begun(place, variables)
            assert ground.changed() == [], (name, way)
            await ground.app.client.post("/instance/dispose", headers=at(place))


async def begun(place: Path, variables: Mapping[str, str]) -> None:
    """The program has its variables. One that these keep from working has not; it has had its time."""
    wanted = [f"{name}={value}" for name, value in variables.items() if name not in ("SHELLOPTS", "n")]
    seen, until = "", time.monotonic() + 1.5
    while time.monotonic() < until:
        if (place / "seen.txt").exists() and all(line in (seen := (place / "seen.txt").read_text()) for line in wanted):
            return
        await asyncio.sleep(0.02)
    assert seen == ""


# The kernel's settings.

OPENS = """
for file in $(find /proc/sys /proc/sysrq-trigger /proc/irq /proc/bus /proc/fs /proc/acpi /proc/scsi -type f 2>/dev/null); do
  if [ -w "$file" ]; then echo "writable $file"; fi
done
for file in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/kernel/modprobe; do
  if [ -e "$file" ] && (exec 3>>"$file") 2>/dev/null; then echo "opened $file"; fi
done
mount -o remount,rw /proc/sys 2>/dev/null && echo remounted; umount /proc/sys 2>/dev/null && echo unmounted
echo looked
"""


async def test_the_kernels_settings_cannot_be_opened(ground: Ground) -> None:
    """Nothing is written to them."""
    (ground.root / "look.sh").write_text(OPENS)
    said = await shell(ground, ground.root, "sh look.sh")
    assert "looked" in said and "writable" not in said and "opened" not in said and "mounted" not in said, said


# What an MCP server's command names.


async def test_an_mcp_server_sees_nothing_of_others_by_its_words(ground: Ground, figure: Figure) -> None:
    late = await late_root(ground)
    words = {**outer_words(ground), "late root": str(late), "late file": f"{late}/f.txt"}
    cases = words | {f"link to {name}": str(link(ground, number, word)) for number, (name, word) in enumerate(words.items())}
    said = await asyncio.gather(*(seen_by_mcp(ground, name, ["/bin/sh", "-c", SHOW, "x", word]) for name, word in cases.items()))
    assert {name: leaks(text) for name, text in zip(cases, said, strict=True) if leaks(text)} == {}
    figure(f"{len(cases)} words of MCP servers: 0 texts or names of others")


async def test_an_mcp_server_sees_what_is_its_users_and_is_no_program_of_others(ground: Ground) -> None:
    """Its program's directory is shown: not where that is another's."""
    own = make_repository(ground.root / "own", "mine")
    for word in (own, own / "f.txt", link(ground, "own", str(own))):
        assert "mine 2" in await seen_by_mcp(ground, f"{word.parent.name} {word.name}", ["/bin/sh", "-c", SHOW, "x", str(word)])
    for number, target in enumerate((ground.bert / "tool", ground.base / "home" / "tool", ground.base / "data" / "tool")):
        shutil.copy("/bin/sh", target)
        ground.before = ground.around()
        for program in (target, link(ground, f"program{number}", str(target))):
            name = f"{target.parent.name} {program.parent.name}"
            assert leaks(await seen_by_mcp(ground, name, [str(program), "-c", SHOW, "x", str(target.parent)])) == []


async def test_words_that_lead_elsewhere_when_it_starts_are_refused(ground: Ground) -> None:
    """A link that is exchanged between the look at it and the start."""
    own = make_repository(ground.root / "own", "mine")
    word = ground.root / "word"
    states = [link(ground, f"state{number}", str(target)) for number, target in enumerate((own, ground.bert))]
    word.symlink_to(own)
    command = ["/bin/sh", "-c", SHOW, "x", str(word)]
    with flipping(word, *states):
        said = [await seen_by_mcp(ground, f"try {number}", command, 0.3) for number in range(TRIES)]
    assert leaks("".join(said)) == []


SHOW = '{ ls -ad "$1" "$1"/* "$1"/*/*; cat "$1" "$1"/*.txt "$1"/HEAD "$1"/*/*.txt; } > seen.txt 2>&1; echo shown > shown.txt'


def outer_words(ground: Ground) -> dict[str, str]:
    home, data = ground.base / "home", ground.base / "data"
    return {
        "root": str(ground.bert), "file": f"{ground.bert}/f.txt", "folder": f"{ground.bert}/.git",
        "linked": f"{ground.bert}/linked",
        "dots": f"{ground.root}/../bert/f.txt", "dotted root": f"{ground.root}/../bert", "all roots": str(ground.root.parent),
        "everything": "/", "base": str(ground.base), "home": str(home), "keys": f"{home}/.ssh", "key": f"{home}/.ssh/id",
        "notes": f"{home}/notes.txt", "data": str(data), "kept": f"{data}/kept", "kept file": f"{data}/kept/f.txt",
        "victim": str(ground.victim), "proc": f"/proc/{os.getpid()}/cwd", "proc root": f"/proc/self/root{ground.bert}",
    }  # fmt: skip


def link(ground: Ground, name: object, target: str) -> Path:
    path = ground.root / f"link{name}"
    path.symlink_to(target)
    return path


async def late_root(ground: Ground) -> Path:
    """Of a user who was added after the start."""
    late = make_repository(ground.base / "late", "canary-of-victim")
    await add_user(ground.app, "late", roots=[late])
    return late


async def seen_by_mcp(ground: Ground, name: str, command: list[str], patience: float = 5) -> str:
    place = ground.root / f"mcp {name}".replace("/", " ")
    put_file(place / "opencode.json", json.dumps({"mcp": {"x": {"type": "local", "command": command}}}))
    answer = await ground.get(place, "/mcp")
    until = time.monotonic() + patience
    while not (place / "shown.txt").exists() and time.monotonic() < until and "failed" not in answer:
        await asyncio.sleep(0.02)
        answer = await ground.get(place, "/mcp")
    await ground.app.client.post("/instance/dispose", headers=at(place))
    return answer + "".join(path.read_text(errors="replace") for path in place.glob("*.txt"))


# Commands.


async def test_commands_reach_no_root_of_others(ground: Ground) -> None:
    late = await late_root(ground)
    hidden = [*outer_words(ground).values(), str(late)]
    session = await started(ground.anna, ground.root)
    for word in hidden:
        path = "".join(f"\\{ord(letter):03o}" for letter in word)
        for command in (f"P=$(printf '{path}'); cat $P $P/*", f"cat {word} {word}/*", f"ln -sfn {word} l; cat l l/*"):
            assert leaks(await shell(ground, ground.root, command, session)) == [], (word, command)
    assert ground.changed() == []


async def test_a_link_that_comes_and_goes_opens_nothing(ground: Ground) -> None:
    """A user's own line opens what it names, if that is theirs."""
    own, word = make_repository(ground.root / "own", "mine"), ground.root / "word"
    states = [link(ground, f"state{number}", str(target)) for number, target in enumerate((own, ground.bert))]
    word.symlink_to(own)
    place = ground.root / "place"
    place.mkdir()
    session, command = await started(ground.anna, place), f"cat {word}/f.txt; ls {word}; touch {word}/made"
    with flipping(word, *states):
        said = [await shell(ground, place, command, session) for _ in range(TRIES)]
    assert leaks("".join(said)) == [] and ground.changed() == []


async def test_a_member_without_roots_reaches_no_root_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was given after the start, and by git where the directory around becomes a repository."""
    pool = tmp_path / "pool"
    pool.mkdir()
    async with hostile_ground(tmp_path, monkeypatch, roots=str(pool)) as ground, user(ground.app, "zoe") as zoe:
        hugo = make_repository(pool / "hugo", "canary-of-victim")
        await add_user(ground.app, "hugo", roots=[hugo])
        session = await started(zoe, pool)
        into_git = "git init -q; git add -A; git diff --cached; git status"
        for command in ("cat hug?/f.txt; ls -a h*", "find . -name 'f*' | xargs cat", into_git):
            assert leaks(await shell(ground, pool, command, session, zoe)) == [], command
        config = {"mcp": {"x": {"type": "local", "command": ["/bin/sh", "-c", SHOW, "x", str(pool)]}}}
        (pool / "opencode.json").write_text(json.dumps(config))
        for path in ("/mcp", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff/raw", "/file/status"):
            assert leaks((await zoe.client.get(path, headers=at(pool))).text) == [], path
        for wanted in ({"cwd": str(hugo)}, {"cwd": "hugo"}):
            assert (await zoe.client.post("/pty", json=wanted, headers=at(pool))).status_code in (400, 403)
        assert (await zoe.client.get("/vcs", headers=at(hugo))).status_code == 403
        assert git(hugo, "status", "--porcelain").splitlines() == ["M f.txt", "?? unknown.txt"]


async def test_the_start_command_of_a_worktree_reaches_no_root_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it lies, as in a directory of PATH."""
    tools = tmp_path / "tools"
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    tools.mkdir()
    async with hostile_ground(tmp_path, monkeypatch) as ground:
        ivan = make_repository(tools / "ivan", "canary-of-victim")
        await add_user(ground.app, "ivan", roots=[ivan])
        wanted = {"startCommand": f"(cat {ivan}/f.txt; ls {ivan}; touch ended) > seen 2>&1"}
        status, text = await ground.ask("POST", ground.repository(), "/experimental/worktree", wanted)
        assert status == 200, text
        worktree = Path(json.loads(text)["directory"])
        await until((worktree / "ended").exists)
        assert "No such file" in (seen := (worktree / "seen").read_text()) and leaks(seen) == [] and "\nf.txt" not in seen


async def test_a_checkout_around_the_roots_is_not_theirs(ground: Ground) -> None:
    """Who works in a part of a checkout reaches the part."""
    whole = make_repository(ground.base / "whole", "canary-of-victim")
    part = whole / "part"
    part.mkdir()
    async with user(ground.app, "gina", roots=[part]) as gina:
        for path in ("/vcs", "/vcs/diff?mode=git", "/vcs/status", "/file/status"):
            assert leaks((await gina.client.get(path, headers=at(part))).text) == [], path
        session = await started(gina, part)
        assert leaks(await shell(ground, part, "cat ../f.txt; git log -p; touch ../made", session, gina)) == []
        assert not (whole / "made").exists()


async def test_the_data_directory_is_nobodys_to_work_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the server was started above it, as in a home directory."""
    data = tmp_path / "work" / ".local" / "data"
    async with hostile_ground(tmp_path, monkeypatch, workspace=tmp_path / "work", data_dir=data) as ground:
        make_repository(data / "kept", "canary-of-data")
        async with user(ground.app, "zoe") as zoe, user(ground.app, "adam", "admin") as adam:
            for place in (data, data / "kept", data / "worktree"):
                place.mkdir(exist_ok=True)
                for path in ("/session", "/vcs/diff?mode=git", "/file?path=.", "/file/content?path=f.txt", "/mcp"):
                    for app in (zoe, adam):
                        assert (await app.client.get(path, headers=at(place))).status_code == 403, (place, path)
                assert (await zoe.client.post("/session", json={}, headers=at(place))).status_code == 403
            for path in (".local/data", ".local/data/kept/f.txt"):
                assert leaks((await zoe.client.get(f"/file/content?path={path}", headers=at(tmp_path / "work"))).text) == []
            session = await started(zoe, tmp_path / "work")
            (tmp_path / "work" / "self").symlink_to(".")
            by_link = await started(zoe, tmp_path / "work" / "self")
            for opened, command in ((session, "cat .local/*/*/*.txt; ls .local/data; mv .local away"), (by_link, "true")):
                await shell(ground, tmp_path / "work", command, opened, zoe)
                said = await shell(ground, tmp_path / "work", "cat */*/*/*.txt .*/*/*/*.txt; ls */data .*/data", opened, zoe)
                assert leaks(said) == [] and "opensession.db" not in said


async def test_a_command_does_not_make_another_repository_the_projects(tmp_path: Path) -> None:
    """On a server without users, too: `.git` is what it was, or nothing that leads out of the server's directories."""
    other = make_repository(tmp_path / "other", "canary-of-victim")
    async with running_app(tmp_path, sandbox="require") as app:
        sub = app.directory / "sub"
        sub.mkdir()
        for directory in (sub, app.directory):
            shutil.rmtree(directory / ".git", ignore_errors=True)
            (directory / ".git").write_text(f"gitdir: {other}/.git\n")
            await app.post("/instance/dispose", headers=at(directory))
            for path in ("/vcs", "/vcs/diff?mode=git", "/vcs/status"):
                assert leaks((await app.client.get(path, headers=at(directory))).text) == []
            session = (await app.post("/session", {}, headers=at(directory)))["id"]
            wanted = {"agent": "build", "command": "O=$(cut -c 9- .git); echo x > $O/made; cat $O/../f.txt"}
            ran = await app.client.post(f"/session/{session}/shell", json=wanted, headers=at(directory))
            assert leaks(ran.text) == [] and not (other / ".git" / "made").exists()


async def started(app: RunningApp, directory: Path) -> str:
    response = await app.client.post("/session", json={}, headers=at(directory))
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


async def shell(ground: Ground, directory: Path, command: str, session: str = "", app: RunningApp | None = None) -> str:
    """What a command of anna's prints, or of `app`'s."""
    asked = app or ground.anna
    session = session or await started(asked, directory)
    wanted = {"agent": "build", "command": command}
    response = await asked.client.post(f"/session/{session}/shell", json=wanted, headers=at(directory))
    assert response.status_code == 200, response.text
    states = [part["state"] for part in response.json()["parts"] if part["type"] == "tool"]
    return "".join(state.get("output") or state.get("error") or "" for state in states)


# A server of an ordinary user, where the tests are run by root.

ORDINARY = 12345
PYTHONS = (sys.executable, "/usr/bin/python3")
AS_ORDINARY = ("setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "env", "-i", "PATH=/usr/bin:/bin")
SAME = "variables_of or by_its_words or elsewhere_when or comes_and_goes or never_was or another_members"


@pytest.mark.skipif(os.geteuid() != 0, reason="the tests above were run by one")
def test_the_same_holds_for_a_server_of_an_ordinary_user(figure: Figure) -> None:
    root = Path(__file__).parents[2]
    paths = f"PYTHONPATH={root}:{Path(pytest.__file__).parents[1]}"
    with tempfile.TemporaryDirectory(prefix="opensession-ordinary-") as home:
        os.chown(home, ORDINARY, ORDINARY)
        start = [*AS_ORDINARY, f"HOME={home}", "PYTHONDONTWRITEBYTECODE=1", paths]
        python = next((each for each in PYTHONS if runs([*start, each, "-c", "import app.main, pytest"], root)), None)
        if python is None:
            pytest.skip("an ordinary user can't read this checkout and its environment")
        files = [f"tests/faults/{name}.py" for name in ("test_walls", "test_hostile_repositories")]
        options = ["-q", "-rs", "-p", "no:cacheprovider", f"--basetemp={home}/tests", "-k", SAME]
        ended = subprocess.run([*start, python, "-m", "pytest", *files, *options], cwd=root, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-5000:]
    if " passed" not in ended.stdout:
        pytest.skip(ended.stdout[-300:])
    figure(f"as an ordinary user: {ended.stdout.splitlines()[-1]}")


def runs(command: list[str], cwd: Path) -> bool:
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False).returncode == 0
