"""`opencode run --attach`, of the version that this server follows and of a newer one: each answer is printed once and whole."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from long_form import LONG
from opencode_program import NEWER, OFFLINE, VERSIONS, installed, offline_home
from running_server import RunningServer, clean_environment

TOKENS = [1, 2, 3, 5, 8, 13, 20, 30, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2000]
"""Of the answers, which come in a burst."""


@pytest.fixture(scope="module", params=VERSIONS)
def program(request: pytest.FixtureRequest, node_modules: Path) -> Path:
    return installed(node_modules, request.param)


@pytest.fixture(scope="module")
def home(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each program keeps its own database there, so it is not shared."""
    return offline_home(tmp_path_factory.mktemp("home"))


def ran(program: Path, server: RunningServer, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command, environment = [str(program), "run", "--attach", server.base, *arguments], clean_environment(home, **OFFLINE)
    streams: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, cwd=server.workspace, env=environment, timeout=180, **streams
    )
    assert done.returncode == 0, done.stderr
    return done


def answer(tokens: int) -> str:
    """What the scripted provider says to `long N`, as it is printed."""
    return "".join(f"tok{number} ".ljust(8) for number in range(tokens)).strip()


@pytest.mark.parametrize("tokens", TOKENS if LONG else TOKENS[4::10])
def test_an_answer_is_printed_once_or_is_one_json_event(
    program: Path, node_modules: Path, server: RunningServer, home: Path, tokens: int
) -> None:
    done = ran(program, server, home, "long", str(tokens))
    assert done.stdout.strip() == answer(tokens)
    header = ["build · rules"] if program == installed(node_modules, NEWER) else []
    assert re.findall(r"> (.+)", done.stderr) == header, "the newer one says who answers, once; the older one of no server"
    printed = ran(program, server, home, "--format", "json", "long", str(tokens)).stdout
    events = [json.loads(line) for line in printed.splitlines()]
    assert [event["type"] for event in events] == ["step_start", "text", "step_finish"]
    assert events[1]["part"]["text"].strip() == answer(tokens)
