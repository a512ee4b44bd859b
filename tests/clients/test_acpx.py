"""npm `acpx` 0.19.1, a client of the Agent Client Protocol on the command line, with `opensession acp` as its agent.

For the long form: npm fetches it, and the Node.js that it wants.
"""

import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from acp_editor import ASKS, EDITS, LOOKS, Desk, keep, stand_in_order
from long_form import LONG
from running_server import needed, skip_or_fail
from turns import say

pytestmark = pytest.mark.skipif(not LONG, reason="for the long form, OPENSESSION_LONG=1")

PACKAGES = ("acpx@0.19.1", "node@22")
SECONDS = 120


@dataclass(frozen=True)
class Acpx:
    programs: Path
    desk: Desk

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        environment = self.desk.environment()
        path = f"{self.programs / 'node' / 'bin'}:{self.programs / '.bin'}:{environment['PATH']}"
        return subprocess.Popen(
            ["acpx", "--agent", shlex.join(self.desk.command), "--ttl", "5", *arguments],
            cwd=self.desk.directory,
            env={**environment, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def said(self, *arguments: str) -> str:
        with self.started(*arguments) as process:
            said, _ = process.communicate(timeout=SECONDS)
        return said


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needed("npm")
    directory = tmp_path_factory.mktemp("npm")
    installed = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES], cwd=directory, capture_output=True, text=True
    )
    if installed.returncode != 0:
        skip_or_fail(f"npm could not install acpx: {installed.stderr.strip()[-300:]}")
    return directory / "node_modules"


@pytest.fixture
def acpx(programs: Path, desk: Desk) -> Acpx:
    return Acpx(programs, desk)


def test_a_prompt_and_what_it_asks(acpx: Acpx) -> None:
    said = acpx.said("--approve-all", "exec", "write b.txt: x")
    assert "write b.txt (completed)" in said and "b.txt (+1 lines)" in said and said.rstrip().endswith("[done] end_turn")
    assert (acpx.desk.directory / "b.txt").read_text() == "x"
    allowed, denied = (acpx.said(answer, "exec", "read /etc/hosts") for answer in ("--approve-all", "--deny-all"))
    keep("acpx-2-allowed", allowed)
    keep("acpx-3-denied", denied)
    assert "read /etc/hosts (completed)" in allowed and "read /etc/hosts (failed)" in denied


def test_a_turn_is_shown_whole(acpx: Acpx) -> None:
    acpx.desk.script(LOOKS, EDITS, ASKS, [say("So be it.")])
    said = acpx.said("--approve-all", "exec", "go")
    keep("acpx-1-turn", said)
    assert "[tool] read a.txt (completed)" in said and "[tool] echo hi (completed)" in said
    wanted = ("Two words stand there.", "I read it", "[tool] edit a.txt (completed)", "diff /", "Asked 1 question", "So be it.")
    assert stand_in_order(said, *wanted), said


def test_a_session_goes_on_with_another_mode_and_is_cancelled(acpx: Acpx) -> None:
    session_id = acpx.said("sessions", "new", "--name", "one").split()[-1]
    assert "tok0    tok1" in acpx.said("prompt", "-s", "one", "long 2")
    assert "mode set: plan" in acpx.said("set-mode", "-s", "one", "plan")
    assert "A permission rule forbids this tool call" in acpx.said("--approve-all", "prompt", "-s", "one", "write c.txt: y")
    acpx.said("set-mode", "-s", "one", "build")
    begun = acpx.desk.directory / "begun"
    with acpx.started("--approve-all", "prompt", "-s", "one", "run touch begun; sleep 600") as running:
        deadline = time.monotonic() + SECONDS
        while not begun.exists():
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        assert "cancel requested" in acpx.said("cancel", "-s", "one")
        said, _ = running.communicate(timeout=SECONDS)
    keep("acpx-4-cancelled", said)
    assert said.rstrip().endswith("[done] cancelled")
    assert session_id in acpx.said("sessions", "list")
    show = [sys.executable, "-m", "app.cli", "session", "show", session_id]
    shown = subprocess.check_output(show, cwd=acpx.desk.directory, env=acpx.desk.environment(), text=True)
    assert "> long 2" in shown
