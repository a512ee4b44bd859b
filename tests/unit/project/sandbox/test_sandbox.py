"""Commands in the sandbox of this machine."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from confined import SECRET, Confined
from git_files import put_file
from polling import until
from sandboxed import needs_sandbox

from app.project.sandbox.machine import SandboxUnusable
from app.project.sandbox.sandbox import OFF, open_sandbox, remove_unused
from app.project.sandbox.scope import SandboxWorkspace, Walls, private_directory
from app.settings import Settings

pytestmark = needs_sandbox

TOO_LONG = Path("/tmp", 300 * "x")
"""Looking it up fails, as of a path in a folder that this user may not enter."""


async def test_the_project_is_there_with_all_that_is_in_it(confined: Confined) -> None:
    (confined.project / "a").write_text("text")
    ended = await confined.run("cat a; echo made > b; pwd")
    assert ended.output == f"text{confined.project}\n" and ended.code == 0
    assert (confined.project / "b").read_text() == "made\n"


async def test_nothing_outside_is_read_or_written(confined: Confined) -> None:
    named = " ".join(f"'{path}'" for path in confined.secrets)
    ended = await confined.run(f"cat {named}; cd /; grep -rs {SECRET} {confined.base} ~ /tmp /var /srv /run; true")
    assert SECRET not in ended.output and ended.output.count("No such file") == len(confined.secrets)
    ended = await confined.run(f"echo x > /etc/made; echo x > /made; echo x > {confined.base}/made")
    assert ended.output.count("Read-only file system") + ended.output.count("No such file") == 3, ended.output
    assert not (confined.base / "made").exists() and not Path("/made").exists()


async def test_home_and_tmp_are_kept_from_call_to_call_and_are_not_the_users(confined: Confined) -> None:
    await confined.run("echo kept > ~/.rc; echo kept > /tmp/of_the_sandbox")
    assert (await confined.run("cat ~/.rc /tmp/of_the_sandbox")).output == "kept\nkept\n"
    assert not (confined.base / "home" / ".rc").exists() and not Path("/tmp/of_the_sandbox").exists()


async def test_links_in_the_own_home_lead_neither_a_mount_nor_the_server_outside(confined: Confined) -> None:
    """While bubblewrap makes its mounts, the machine's files are at /oldroot. The victim has links of the mounts' names."""
    home, victim = confined.base / "home", confined.base / "victim"
    for folder in (home / ".local" / "bin", home / ".config" / "git", victim):
        folder.mkdir(parents=True)
    (home / ".config" / "git" / "ignore").write_text("x\n")
    confined.open_again()
    script = "; ".join(f"mv ~/{name} ~/away{name}; ln -s {{}} ~/{name}" for name in (".local", ".config"))
    for name in ("bin", "git"):
        (victim / name).symlink_to("nowhere")
    for target in (victim, f"/oldroot{victim}", f"../../../../../../../../oldroot{victim}"):
        await confined.run(script.format(target, target))
        assert (await confined.run("echo runs; cat ~/.config/git/ignore")).output == "runs\nx\n"
        assert {path.name: str(path.readlink()) for path in victim.iterdir()} == {"bin": "nowhere", "git": "nowhere"}


async def test_what_is_granted_is_open_for_that_command_without_keys_and_the_servers_files(confined: Confined) -> None:
    notes, new, beside = (confined.base / name for name in ("home/notes", "home/new", "beside/file"))
    command = f"cat {notes}; echo more >> {notes}"
    assert SECRET in (await confined.run(command, granted=[notes])).output
    assert notes.read_text() == f"{SECRET}\nmore\n"
    assert SECRET not in (await confined.run(command)).output
    assert (await confined.run(f"sed -i s/{SECRET}/changed/ {beside}", granted=[beside])).code == 0
    assert beside.read_text() == "changed\n"
    ended = await confined.run(f"touch {new}; cat ~/.ssh/id_rsa", granted=[new])
    assert new.exists() and SECRET not in ended.output
    data = confined.base / "data"
    ended = await confined.run(f"cat {data}/auth.json; ls {data}/*", granted=[data, data / "auth.json", confined.base])
    assert SECRET not in ended.output and "auth.json\n" not in ended.output
    (data / "tool-output").mkdir()
    for name, text in (("tool_1", "long output\n"), ("tool_2", SECRET)):
        (data / "tool-output" / name).write_text(text)
    ended = await confined.run(f"cat {data}/tool-output/*", granted=[data / "tool-output" / "tool_1"])
    assert ended.output == "long output\n", "a kept output can be read, and no other"
    ended = await confined.run(f"cat {TOO_LONG} || echo ran", granted=[TOO_LONG])
    assert "File name too long" in ended.output and ended.output.endswith("ran\n"), "the command says what is wrong with a path"


async def test_directories_of_the_configuration_are_open(confined: Confined) -> None:
    for name in ("read", "write"):
        put_file(confined.base / name / "a", name)
    workspace = confined.workspace(read=[str(confined.base / "read")], write=[str(confined.base / "write")])
    script = f"cd {confined.base}; cat read/a write/a; touch write/b; touch read/b"
    ended = await confined.run(script, workspace=workspace)
    assert ended.output.startswith("readwrite") and "Read-only file system" in ended.output
    assert (confined.base / "write" / "b").exists()


@pytest.mark.parametrize("name", ["", "self", "deep/self"])
async def test_what_is_hidden_in_the_project_stays_so(confined: Confined, name: str) -> None:
    """Also when a folder on the way to it is renamed, and where the project is opened by a link to itself."""
    pool = confined.base / "pool"
    hidden, direct = pool / "users" / "of" / "ida", pool / "hugo"
    for place in (hidden, direct, pool / "deep"):
        put_file(place / "file", SECRET if place.name != "deep" else "shown")
    (pool / "self").symlink_to(".")
    (pool / "deep" / "self").symlink_to("..")
    workspace = SandboxWorkspace(pool / name, Path("/"), walls=Walls(lambda: [str(hidden), str(direct)]))
    for command in ("true", "mv users away", "mv users/of users/away; mv hugo away", "mv users/of/ida users/of/away"):
        await confined.run(command, workspace=workspace)
        ended = await confined.run(f"find -L . -type f | xargs cat; cat {pool}/*/file {pool}/*/*/*/file", workspace=workspace)
        assert "shown" in ended.output and SECRET not in ended.output
    assert (hidden / "file").exists() and (direct / "file").exists()


async def test_without_network_there_is_a_loopback_of_its_own(confined: Confined) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connect = f"(: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo connected || echo not"
    assert (await confined.run(connect)).output == "connected\n"
    alone = confined.workspace(network=False)
    assert (await confined.run(connect, workspace=alone)).output == "not\n"
    listen = "import socket as s; here = s.create_server(('127.0.0.1', 0)); s.create_connection(here.getsockname()); print('own')"
    assert (await confined.run(f'python3 -c "{listen}"', workspace=alone)).output == "own\n"
    server.close()


async def test_it_sees_no_process_of_others_and_has_no_right_to_mount(confined: Confined) -> None:
    script = "ls -d /proc/[0-9]* | wc -l; mount -t tmpfs x /tmp || echo refused; grep NoNewPrivs /proc/self/status"
    lines = (await confined.run(script)).output.splitlines()
    assert int(lines[0]) < 10 and "refused" in lines and "NoNewPrivs:\t1" in lines


async def test_what_left_the_group_ends_with_the_command(confined: Confined) -> None:
    await confined.run("setsid sh -c 'trap \"\" TERM HUP; exec sleep 3611' >/dev/null 2>&1 & touch up")
    assert (confined.project / "up").exists() and sleeping(3611) == []
    late = await confined.run("(sleep 0.02; echo late) & echo early")
    assert late.output == "early\nlate\n", "in the background it may write its last words"


async def test_a_command_may_clean_up_when_it_is_stopped(confined: Confined) -> None:
    ended = await confined.run("trap 'echo cleaned; exit 0' TERM; echo up; while :; do sleep 0.01; done", timeout=1)
    assert (ended.output == "up\ncleaned\n" and ended.code is None) or ended.code == 0


async def test_an_abort_ends_all_of_it(confined: Confined) -> None:
    script = "trap '' TERM; setsid sleep 3612 & touch up; while :; do sleep 0.05; done"
    running = asyncio.create_task(confined.run(script))
    await until((confined.project / "up").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sleeping(3612) == []


def sleeping(seconds: int) -> list[int]:
    wanted = ["sleep", str(seconds)]
    return [each.pid for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == wanted and each.status() != "zombie"]


def test_it_can_be_switched_off_and_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not open_sandbox(Settings(data_dir=tmp_path, sandbox="off")).is_on
    assert open_sandbox(Settings(data_dir=tmp_path, sandbox="require")).is_on
    assert not OFF.is_on
    monkeypatch.setenv("PATH", str(tmp_path))
    without = open_sandbox(Settings(data_dir=tmp_path))
    assert not without.is_on and "not installed" in without.state
    with pytest.raises(SandboxUnusable, match=r"OPENSESSION_SANDBOX=require.*not installed"):
        open_sandbox(Settings(data_dir=tmp_path, sandbox="require"))


def test_own_homes_that_nobody_has_used_for_a_week_are_removed_and_what_is_none_is_left(confined: Confined) -> None:
    data = confined.base / "data"
    used, unused = (confined.workspace_of(confined.base / name) for name in ("used", "unused"))
    for workspace in (used, unused):
        workspace.directory.mkdir()
        confined.sandbox.program(["true"], workspace, {})
    old = private_directory(data, unused.directory)
    subprocess.run(["mkdir", "-p", "/".join("d" * 1500)], cwd=old / "home", check=True)
    for path in (old / "home", old / "tmp", old):
        os.utime(path, (0, 0))
    for name in (".DS_Store", "0", "~"):
        (data / "sandbox" / name).touch()
        os.utime(data / "sandbox" / name, (0, 0))
    (data / "sandbox" / "dangling").symlink_to("nowhere")
    remove_unused(data, time.time())
    left = {path.name for path in (data / "sandbox").iterdir()}
    assert left == {private_directory(data, used.directory).name, ".DS_Store", "0", "~", "dangling"}


def test_a_configured_program_sees_what_it_is_made_of_and_no_keys(confined: Confined) -> None:
    beside, key = confined.base / "beside" / "file", confined.base / "home" / ".ssh" / "id_rsa"
    words = ["/bin/cat", *map(str, (beside, key, TOO_LONG))]
    program = confined.sandbox.program(words, confined.workspace(), {}, shows_named=True)
    ended = subprocess.run(program.argv, cwd=program.cwd, capture_output=True, text=True, check=False)
    assert ended.stdout.count(SECRET) == 1 and str(key) in ended.stderr
    write = confined.sandbox.program(["/bin/sh", "-c", 'echo x > "$0"', str(beside)], confined.workspace(), {}, shows_named=True)
    assert subprocess.run(write.argv, cwd=write.cwd, stderr=subprocess.DEVNULL, check=False).returncode != 0
