"""The examples do what they say, against a server whose model plays a script."""

import subprocess
import sys
from pathlib import Path

import httpx2
from running_server import ROOT, RunningServer, clean_environment, needed, serving_here

from app.users.tokens import TokenStore

CLIENT, REVIEW = ROOT / "examples" / "client.py", ROOT / "examples" / "review-diff.sh"
PASS, FAIL = "Fine.\nVERDICT: PASS", "Line 1 is wrong. I do not say VERDICT: PASS.\n\n**VERDICT: FAIL**"


def run(server: RunningServer, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = clean_environment(server.data.parent / "home", **{"OPENSESSION_URL": server.base, **environment})
    return subprocess.run(command, cwd=server.workspace, env=env, capture_output=True, text=True, timeout=180)


def test_the_client_is_short() -> None:
    assert len([line for line in CLIENT.read_text().split('"""')[2].splitlines() if line.strip()]) <= 40


def test_the_client_prints_what_streams_and_refuses_what_is_asked(tmp_path: Path) -> None:
    subagent = {"description": "Look", "prompt": "Look", "subagent_type": "general"}
    turns = [
        [{"reasoning": "Hm."}, {"text": "Hello, "}, {"text": "world."}],
        [{"tool": "bash", "args": {"command": "touch made", "description": "Makes it"}}],
        [{"tool": "task", "args": subagent}],
        [{"tool": "bash", "args": {"command": "touch made", "description": "Makes it"}}],
        [{"status": 400, "message": "No such model"}],
    ]
    with serving_here(tmp_path, turns=turns) as server:
        (server.workspace / "opencode.json").write_text('{"permission": {"bash": "ask"}}')
        said, refused, failed = (run(server, sys.executable, CLIENT, "Hi", "there") for _ in range(3))
        assert (said.returncode, said.stdout) == (0, "Hello, world.\n"), said.stderr
        assert refused.returncode == 0 and "[not allowed: bash touch made]" in refused.stdout
        assert not (server.workspace / "made").exists()
        assert failed.returncode == 1 and "No such model" in failed.stderr


def commit(workspace: Path) -> None:
    (workspace / "a.txt").write_text("changed by\n'this' \"diff\" \\ $HOME\n")
    command = ["git", "-c", "user.email=a@b", "-c", "user.name=a", "commit", "-qam", "second"]
    subprocess.run(command, cwd=workspace, check=True)


def test_a_review_s_verdict_is_its_exit_code(tmp_path: Path) -> None:
    for program in ("curl", "jq"):
        needed(program)
    wants_to_write = [{"tool": "write", "args": {"filePath": "b.txt", "content": "x"}}]
    turns = [[{"text": PASS}], wants_to_write, [{"text": FAIL}], [{"text": "Well…"}], [{"status": 400, "message": "Refused"}]]
    with serving_here(tmp_path, turns=turns) as server:
        unchanged = run(server, REVIEW, "HEAD")
        commit(server.workspace)
        reviews = [run(server, REVIEW, "HEAD~1") for _ in range(4)]
        assert httpx2.get(f"{server.base}/session").json() == [], "a review leaves its session behind"
        nowhere = run(server, REVIEW, "HEAD~1", OPENSESSION_URL="http://127.0.0.1:1")
        unknown = run(server, REVIEW, "no-such-branch")
        assert not (server.workspace / "b.txt").exists()
    assert (unchanged.returncode, unchanged.stdout) == (0, "Nothing has changed since HEAD.\n")
    assert [review.returncode for review in reviews] == [0, 1, 2, 2], [review.stderr for review in reviews]
    assert reviews[0].stdout == f"{PASS}\n" and reviews[1].stdout == f"{FAIL}\n"
    assert "no verdict" in reviews[2].stderr and "Refused" in reviews[3].stderr
    assert nowhere.returncode == unknown.returncode == 2


def test_a_server_with_a_login_is_given_the_token(tmp_path: Path) -> None:
    for program in ("curl", "jq"):
        needed(program)
    with serving_here(tmp_path, turns=[[{"text": PASS}]] * 2) as server:
        commit(server.workspace)
        token = TokenStore(server.data).create("ci")
        commands = [[sys.executable, CLIENT, "Hi"], [REVIEW, "HEAD~1"]]
        assert all(run(server, *command).returncode != 0 for command in commands)
        logged_in = [run(server, *command, OPENSESSION_TOKEN=token) for command in commands]
    assert [(done.returncode, done.stdout) for done in logged_in] == [(0, f"{PASS}\n")] * 2, logged_in
