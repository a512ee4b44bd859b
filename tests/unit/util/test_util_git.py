import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.util.git import NOT_STARTED, TIMED_OUT, TOO_MUCH_OUTPUT, _GitProcess, git, git_at_most, overrides, safe_environment

# A git alias runs a shell, with git's own process waiting for it: a git command that takes as long as we like.
WAIT = ["-c", "alias.wait=!echo $$ > pid; exec sleep 60", "wait"]


async def test_output_exit_status_and_input(tmp_path: Path) -> None:
    result = await git(["hash-object", "--stdin"], tmp_path, stdin=b"x\n")
    assert (result.ok, result.text) == (True, "587be6b4c3f93f93c489c0111bba5596147a26cb")
    failed = await git(["rev-parse", "--verify", "nonsense"], tmp_path)
    assert not failed.ok
    assert failed.stderr.startswith("fatal:")


async def test_what_keeps_git_from_starting_is_reported(tmp_path: Path) -> None:
    result = await git(["version"], tmp_path / "missing")
    assert result.code == NOT_STARTED
    assert "missing" in result.stderr
    assert (await git(["version"], tmp_path, env={"PATH": str(tmp_path)})).code in (NOT_STARTED, 0)


async def test_a_time_limit(tmp_path: Path) -> None:
    result = await git(WAIT, tmp_path, timeout=0.3)
    assert result.code == TIMED_OUT
    assert "took longer than 0.3 s" in result.stderr
    await until(lambda: is_gone(tmp_path))


async def test_output_beyond_a_limit_is_cut_off(tmp_path: Path) -> None:
    endless = ["-c", "alias.endless=!echo $$ > pid; exec yes", "endless"]
    result = await git_at_most(9, endless, tmp_path)
    assert (result.code, result.stdout) == (TOO_MUCH_OUTPUT, b"y\ny\ny\ny\ny")
    await until(lambda: is_gone(tmp_path))


async def test_what_stays_below_the_limit_is_as_ever(tmp_path: Path) -> None:
    version = await git(["version"], tmp_path)
    assert await git_at_most(len(version.stdout), ["version"], tmp_path) == version
    failed = await git_at_most(10, ["rev-parse", "--verify", "nonsense"], tmp_path)
    assert failed.code == 128 and failed.stderr.startswith("fatal:")
    assert (await git_at_most(10, WAIT, tmp_path, timeout=0.3)).code == TIMED_OUT
    await until(lambda: is_gone(tmp_path))
    assert (await git_at_most(10, ["version"], tmp_path / "missing")).code == NOT_STARTED


async def test_a_cancelled_call_leaves_no_process(tmp_path: Path) -> None:
    running = asyncio.create_task(git(WAIT, tmp_path))
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    assert not is_gone(tmp_path)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: is_gone(tmp_path))


async def test_a_call_cancelled_before_it_starts(tmp_path: Path) -> None:
    running = asyncio.create_task(git(["init"], tmp_path))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not (tmp_path / ".git").exists()


async def test_a_call_cancelled_as_git_ends(tmp_path: Path) -> None:
    child = _GitProcess(["version"], tmp_path, safe_environment(), ())
    process = child._start()
    assert process is not None
    process.communicate()
    # The moment between the end of waiting and its being noted, in which the process is gone and `poll` says that it runs.
    process.returncode = None
    with process._waitpid_lock:
        child.kill()


async def test_variables_that_point_elsewhere_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    await git(["init", "--quiet"], tmp_path)
    assert (await git(["rev-parse", "--git-dir"], tmp_path)).text == ".git"


def test_the_environment_is_safe() -> None:
    inherited = {
        "HOME": "/h",
        "OPENAI_API_KEY": "k",
        "GIT_INDEX_FILE": "x",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_GLOBAL": "/g",
        "LC_ALL": "de_DE.UTF-8",
    }
    safe = safe_environment(inherited)
    plain = {"HOME": "/h", "GIT_CONFIG_GLOBAL": "/g", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    plain["GIT_ALLOW_PROTOCOL"] = "none"
    assert safe == {**plain, **overrides()}


def test_no_program_of_a_repository_is_run() -> None:
    settings = overrides([("filter.a=b.clean", "")])
    names = [settings[f"GIT_CONFIG_KEY_{at}"] for at in range(int(settings["GIT_CONFIG_COUNT"]))]
    assert names == ["core.fsmonitor", "core.hooksPath", "filter.a=b.clean"]
    assert settings["GIT_CONFIG_VALUE_0"] == "false" and settings["GIT_CONFIG_VALUE_2"] == ""


def is_gone(tmp_path: Path) -> bool:
    try:
        os.kill(int((tmp_path / "pid").read_text()), 0)
    except ProcessLookupError:
        return True
    return False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
