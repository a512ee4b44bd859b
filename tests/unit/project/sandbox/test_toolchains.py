"""What a project's work needs goes on inside: git, make, npm, pip, pytest, servers on loopback."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confined import SECRET, Confined
from sandboxed import needs_sandbox

from app.project.sandbox.machine import find_facts

pytestmark = needs_sandbox


async def test_git_commits_as_the_user_does_and_in_a_linked_worktree(confined: Confined) -> None:
    (confined.base / "home" / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
    confined.open_again()
    ended = await confined.run("echo a > a && git add a && git commit -qm first && git log --format=%an && git status --short")
    assert ended.output == "Ada\n" and ended.code == 0
    linked = confined.base / "linked"
    subprocess.run(["git", "worktree", "add", "-q", linked], cwd=confined.project, check=True)
    script = "echo b > b; git add b; git commit -qm second && git log --format=%s"
    assert (await confined.run(script, workspace=confined.workspace_of(linked))).output == "second\nfirst\n"


async def test_a_forged_git_file_or_a_directory_replaced_by_a_link_opens_nothing(confined: Confined) -> None:
    keys = confined.base / "home" / ".ssh"
    fake = "mkdir -p fake/worktrees/x; echo ../.. > fake/worktrees/x/commondir; pwd > fake/worktrees/x/gitdir"
    await confined.run(f"{fake}; rm -r .git; echo gitdir: {keys} > .git")
    ended = await confined.run(f"cat {keys}/id_rsa; echo x > {keys}/made")
    assert "No such file" in ended.output and not (keys / "made").exists()
    (confined.project / "sub").mkdir()
    workspace = confined.workspace_of(confined.project / "sub", confined.project)
    await confined.run(f"cd .. && rmdir sub && ln -s {keys} sub", workspace=workspace)
    ended = await confined.run(f"cat {keys}/id_rsa", workspace=workspace)
    assert SECRET not in ended.output and ended.code != 0


WHEEL = """
import zipfile
files = {
    "shapes.py": "def area(side): return side * side",
    "shapes-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: shapes\\nVersion: 1\\n",
    "shapes-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "shapes-1.dist-info/RECORD": "",
}
with zipfile.ZipFile("shapes-1-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
"""


async def test_make_a_virtual_environment_pip_and_pytest(confined: Confined) -> None:
    """pytest is the one that runs this test: its environment is on the PATH, as that of a user's project is."""
    (confined.project / "Makefile").write_text("all:\n\techo made > $@\n")
    (confined.project / "make_wheel.py").write_text(WHEEL)
    (confined.project / "test_sum.py").write_text("def test_sum():\n    assert 1 + 1 == 2\n")
    script = "python3 make_wheel.py && python3 -m venv venv && venv/bin/pip install -q --no-index ./shapes-1-py3-none-any.whl"
    built = f"make -s && cat all && {script} && venv/bin/python -c 'import shapes; print(shapes.area(3))'"
    ended = await confined.run(built, timeout=300)
    assert ended.output.startswith("made\n") and ended.output.endswith("9\n") and ended.code == 0, ended.output
    confined.open_again(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    ended = await confined.run(f"{sys.executable} -m pytest -q test_sum.py", timeout=120)
    assert "1 passed" in ended.output, ended.output


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_npm_ci(confined: Confined) -> None:
    (confined.project / "part").mkdir()
    (confined.project / "part" / "package.json").write_text('{"name": "part", "version": "1.0.0", "main": "index.js"}')
    (confined.project / "part" / "index.js").write_text("module.exports = 'part'")
    (confined.project / "package.json").write_text('{"name": "whole", "version": "1.0.0", "dependencies": {"part": "file:part"}}')
    script = "npm install --silent --offline --package-lock-only && npm ci --silent --offline && node -p 'require(\"part\")'"
    ended = await confined.run(script, timeout=300)
    assert ended.output == "part\n", ended.output


async def test_a_server_on_loopback(confined: Confined) -> None:
    (confined.project / "a").write_text("served\n")
    serve = "python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 &"
    fetch = "until curl -fsS http://127.0.0.1:8765/a 2>/dev/null; do sleep 0.05; done"
    ended = await confined.run(f"{serve} {fetch}", workspace=confined.workspace(network=False))
    assert ended.output == "served\n"


def test_a_path_with_what_may_not_be_entered_keeps_no_server_from_starting(tmp_path: Path) -> None:
    """As after `su` from another user's shell. What is too long is refused to root, too."""
    closed, tools = tmp_path / "closed", tmp_path / "tools" / "bin"
    for folder in (closed / "bin", tools):
        folder.mkdir(parents=True)
    closed.chmod(0)
    found = find_facts(tmp_path, tmp_path / "data", [], {"PATH": f"{closed}/bin:/{'x' * 300}:{tools}"}).toolchains
    closed.chmod(0o700)
    assert tools in found
