"""Git as the server runs it: in the sandbox, and where there is none."""

import asyncio
from pathlib import Path

import psutil
import pytest
from polling import until
from sandboxed import needs_sandbox, sandbox_of

from app.project.sandbox.git import NOT_STARTED, TIMED_OUT, TOO_MUCH_OUTPUT, Git, _GitProcess, overrides, safe_environment
from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import Program
from app.settings import Settings
from app.util.project_files import HeldDirectory

# A git alias runs a shell, with git's own process waiting for it: a git command that takes as long as we like.
WAIT = ("-c", "alias.wait=!touch up; exec sleep 3671", "wait")
ENDLESS = ("-c", "alias.endless=!touch up; exec yes 3672", "endless")


@pytest.fixture(params=[pytest.param(True, marks=needs_sandbox, id="sandbox"), pytest.param(False, id="plain")])
def git(request: pytest.FixtureRequest, tmp_path: Path) -> Git:
    place = tmp_path / "place"
    place.mkdir()
    return Git(sandbox_of(Settings(data_dir=tmp_path / "data")) if request.param else OFF, HeldDirectory(place))


async def test_output_exit_status_and_input(git: Git) -> None:
    result = await git.run("hash-object", "--stdin", stdin=b"x\n")
    assert (result.ok, result.text) == (True, "587be6b4c3f93f93c489c0111bba5596147a26cb")
    failed = await git.run("rev-parse", "--verify", "nonsense")
    assert not failed.ok and failed.stderr.startswith("fatal:")


async def test_what_keeps_git_from_starting_is_reported(git: Git) -> None:
    git.directory.path.rename(git.directory.path.with_name("moved"))
    result = await git.run("version")
    assert result.code == NOT_STARTED and "place" in result.stderr


async def test_a_limit_of_time_and_one_of_output(git: Git) -> None:
    result = await git.run(*WAIT, timeout=0.3)
    assert result.code == TIMED_OUT and "took longer than 0.3 s" in result.stderr
    assert (await git.run(*WAIT, max_bytes=10, timeout=0.3)).code == TIMED_OUT
    result = await git.run(*ENDLESS, max_bytes=9)
    assert (result.code, result.stdout) == (TOO_MUCH_OUTPUT, b"3672\n3672")
    await until(lambda: not running("sleep", "3671") and not running("yes", "3672"))
    version = await git.run("version")
    assert await git.run("version", max_bytes=len(version.stdout)) == version, "what stays below the limit is as ever"
    failed = await git.run("rev-parse", "--verify", "nonsense", max_bytes=10)
    assert failed.code == 128 and failed.stderr.startswith("fatal:")


async def test_a_cancelled_call_leaves_no_process(git: Git) -> None:
    waiting = asyncio.create_task(git.run(*WAIT))
    await until(lambda: running("sleep", "3671"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(lambda: not running("sleep", "3671"))
    starting = asyncio.create_task(git.run("init"))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not (git.directory.path / ".git").exists(), "one that is cancelled before it starts does nothing"


async def test_a_call_cancelled_as_git_ends(tmp_path: Path) -> None:
    child = _GitProcess(lambda: Program(["git", "version"], tmp_path), ["version"], ())
    with (tmp_path / "file").open("w+b") as own, child._start(own, own) as process:
        process.communicate()
    # The moment between the end of waiting and its being noted, in which the process is gone and `poll` says that it runs.
    process.returncode = None
    with process._waitpid_lock:
        child.kill()


async def test_variables_that_point_elsewhere_are_dropped(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(git.directory.path / "elsewhere"))
    await git.run("init", "--quiet")
    assert (await git.run("rev-parse", "--git-dir")).text == ".git"


def test_the_environment_is_safe() -> None:
    inherited = {"HOME": "/h", "OPENAI_API_KEY": "k", "GIT_INDEX_FILE": "x", "GIT_CONFIG_COUNT": "1"}
    safe = safe_environment({**inherited, "GIT_CONFIG_GLOBAL": "/g", "LC_ALL": "de_DE.UTF-8"})
    plain = {"HOME": "/h", "GIT_CONFIG_GLOBAL": "/g", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    plain["GIT_ALLOW_PROTOCOL"] = "none"
    assert safe == {**plain, **overrides()}


def test_no_program_of_a_repository_is_run() -> None:
    settings = overrides([("filter.a=b.clean", "")])
    names = [settings[f"GIT_CONFIG_KEY_{at}"] for at in range(int(settings["GIT_CONFIG_COUNT"]))]
    assert {"core.fsmonitor", "core.hooksPath", "core.sshCommand", "filter.a=b.clean"} < set(names)
    assert settings["GIT_CONFIG_VALUE_0"] == "false" and names[-1] == "filter.a=b.clean"


def running(*argv: str) -> bool:
    found = (each.info for each in psutil.process_iter(["cmdline", "status"]))
    return list(argv) in [info["cmdline"] for info in found if info["status"] != psutil.STATUS_ZOMBIE]
