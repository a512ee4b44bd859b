"""A disk that is full, then has space again; a data directory that cannot be written."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from figures import Figure
from full_disk import fill, small_disk
from killable import Client, Servers
from long_form import SLACK
from running_server import ROOT, clean_environment, free_port
from turns import assert_finished, bash, call, say, texts

FINISHED_WITHIN = 5.0 * SLACK


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Their data lies on a disk of 8 MB."""
    servers = Servers(tmp_path)
    with small_disk(servers.data):
        yield servers


async def messages(client: Client, session: str) -> list[dict[str, Any]]:
    return await client.get(f"/session/{session}/message")


async def test_a_full_disk_loses_nothing_and_work_goes_on_after_it(servers: Servers, figure: Figure) -> None:
    long = [bash("echo shown; while [ ! -e go ]; do sleep 0.05; done; seq 30000")]
    servers.play([[say("First.")], long, [say("After the command.")], *[[say("Again.")]] * 9])
    async with servers.start() as client:
        kept, cut, other = [await client.session() for _ in range(3)]
        acknowledged = await client.prompt(kept)
        before = await client.condition(
            f"/session/{kept}/message", lambda found: found[0]["info"].get("summary", {}).get("title")
        )
        answering = asyncio.create_task(client.prompt(cut))
        await client.condition(f"/session/{cut}/message", lambda found: "shown" in str(found))
        filler = fill(servers.data)

        refused = [await client.http.post(path, json=body) for path, body in writes(kept)]
        (servers.workspace / "go").touch()
        answer = await answering
        assert {(response.status_code, response.json()["name"]) for response in refused} == {(503, "StorageError")}
        assert answer["name"] == "NoAnswerError", answer
        assert await messages(client, kept) == before
        assert {listed["id"] for listed in await client.get("/session")} == {kept, cut, other}

        filler.unlink()
        began = asyncio.get_running_loop().time()
        await client.condition(f"/session/{cut}/message", lambda found: "error" in found[-1]["info"])
        await client.idle()
        took = asyncio.get_running_loop().time() - began
        assert took < FINISHED_WITHIN
        for session in (cut, kept, other):
            assert_finished(await messages(client, session))
            assert texts(await client.prompt(session))
        assert (await messages(client, kept))[: len(before)] == before and before[-1] == acknowledged
        all_of_it = [await messages(client, session) for session in (kept, cut, other)]
    async with servers.start() as client:
        assert [await messages(client, session) for session in (kept, cut, other)] == all_of_it
    figure(f"{len(refused)} writes refused with 503, 0 acknowledged lost; finished {took:.1f} s after there was space")


async def test_a_tool_whose_call_does_not_fit_on_the_disk_is_not_run(servers: Servers, figure: Figure) -> None:
    written = servers.workspace / "written"
    large = call("write", filePath=str(written), content="x" * 1_000_000)
    servers.play([[say("shown " * 10, chunks=10, delay=0.2), large], [say("Again.")]])
    async with servers.start() as client:
        session = await client.session()
        answering = asyncio.create_task(client.prompt(session))
        await client.condition(f"/session/{session}/message", lambda found: "shown" in str(found))
        filler = fill(servers.data)
        assert (await answering)["name"] == "NoAnswerError"
        filler.unlink()
        await client.condition(f"/session/{session}/message", lambda found: "error" in found[-1]["info"])
        await client.idle()
        assert not written.exists()
        assert_finished(await messages(client, session))
        assert texts(await client.prompt(session)) == ["Again."]
    figure("the model's call did not fit: its file was not written, the turn ended with an error once there was space")


def writes(session: str) -> list[tuple[str, Any]]:
    parts = {"parts": [{"type": "text", "text": "x" * 100_000}]}
    creating = [("/session", {"title": "x" * 20_000})] * 3
    return [
        *[(f"/session/{session}/{way}", parts) for way in ("message", "prompt_async")],
        *creating,
        (f"/session/{session}/fork", {}),
    ]


async def test_what_is_no_row_and_does_not_fit_on_the_disk_is_refused_and_leaves_nothing(servers: Servers) -> None:
    async with servers.start() as client:
        await client.session()
        filler = fill(servers.data)
        key = await client.http.put("/auth/openai", json={"type": "api", "key": "k"})
        worktree = await client.http.post("/experimental/worktree", json={"name": "full"})
        assert (key.status_code, key.json()["name"]) == (503, "StorageError")
        assert (worktree.status_code, worktree.json()["name"]) == (400, "WorktreeCreateFailedError")
        filler.unlink()
        assert (await client.post("/experimental/worktree", {"name": "full"}))["name"] == "full"
    assert "Traceback" not in servers.log


async def test_a_full_disk_is_named_where_the_database_cannot_even_be_read(servers: Servers) -> None:
    """SQLite needs room to read what a killed server has left."""
    servers.play([[say("First.")]])
    async with servers.start() as client:
        await client.prompt(await client.session())
    (servers.data / "opensession.db-shm").unlink()
    filler = fill(servers.data)
    environment = clean_environment(servers.base / "home", OPENSESSION_DATA_DIR=str(servers.data), PYTHONPATH=str(ROOT))
    for arguments in (["serve", "--port", str(free_port())], ["doctor"]):
        command = [sys.executable, "-m", "app.cli", *arguments]
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "check": False}
        failed = subprocess.run(command, cwd=servers.workspace, env=environment, **options)
        assert failed.returncode == 1 and "is its disk full?" in failed.stdout + failed.stderr
        assert "backup" not in failed.stdout + failed.stderr
    filler.unlink()
    async with servers.start() as client:
        assert len(await client.get("/session")) == 1


@pytest.mark.parametrize("kind", ["read-only file system", "not a directory"])
async def test_a_data_directory_that_cannot_be_written_is_reported_at_the_start(
    tmp_path: Path, figure: Figure, kind: str, request: pytest.FixtureRequest
) -> None:
    data, home = tmp_path / "data", tmp_path / "home"
    home.mkdir()
    if kind == "not a directory":
        data.write_text("")
    else:
        data.mkdir()
        if os.geteuid():
            data.chmod(0o500)
        elif subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", data], capture_output=True, check=False).returncode:
            pytest.skip("a read-only disk can be mounted by root alone")
        else:
            request.addfinalizer(lambda: subprocess.run(["umount", "-l", data], check=True))
    environment = clean_environment(home, OPENSESSION_DATA_DIR=str(data), PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(free_port())]
    failed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert failed.returncode == 1
    (line,) = failed.stderr.strip().splitlines()
    assert str(data) in line and "cannot be written" in line and "OPENSESSION_DATA_DIR" in line
    figure(f"{kind}: {line.replace(str(data), 'DIR')}")
    for arguments in (["token", "create", "ci"], ["user", "add", "ann", "--role", "admin"], ["secret", "rotate"]):
        command = [sys.executable, "-m", "app.cli", *arguments]
        failed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (failed.returncode, failed.stdout, failed.stderr.strip()) == (1, "", line)
