from dataclasses import replace
from pathlib import Path

import pytest
from test_bubblewrap import SCOPE

from app.project.sandbox.sandbox import hint
from app.project.sandbox.scope import Program

PROGRAM = Program(["sh"], Path("/"), None, SCOPE)


@pytest.mark.parametrize(
    ("output", "code", "says"),
    [
        ("touch: cannot touch '/etc/x': Read-only file system", 1, "sandbox.write"),
        ("touch: cannot touch '/etc/x': Read-only file system", 0, "sandbox.write"),
        ("cat: /home/u/notes: No such file or directory", 1, "hides /home/u/notes"),
        ("cat: ../../other/notes: No such file or directory", 1, "hides /home/u/other/notes"),
        ("sh: 1: cannot create /srv/x: Directory nonexistent", 2, "hides /srv/x"),
        ("sed: cannot rename /srv/sedX: Device or resource busy", 4, "not to be replaced"),
        ("touch: cannot touch '/home/u/x/y': No such file or directory\ndone", 0, "hides /home/u/x/y"),
        ("x.sh: 3: x.sh: cannot create /srv/x: Directory nonexistent\n", 0, "hides /srv/x"),
        ("mkdir: cannot create directory ‘/srv/x/y’: No such file or directory", 1, "hides /srv/x/y."),
        ("sh: 1: cd: can't cd to /srv/x", 2, "hides /srv/x"),
        ("bash: line 1: cd: /srv/x: No such file or directory", 0, "hides /srv/x"),
        ("Error: ENOENT: no such file or directory, open '/srv/x'", 1, "hides /srv/x"),
        ("open /srv/x: no such file or directory", 1, "hides /srv/x"),
        ("cat: --file=/srv/x: No such file or directory", 1, "hides /srv/x"),
    ],
)
def test_what_the_sandbox_denied_is_explained(output: str, code: int, says: str) -> None:
    assert says in (hint(PROGRAM, output, code) or "")


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("cat: missing: No such file or directory", 1),
        ("cat: src/missing: No such file or directory", 1),
        ("cat: ./src/missing: No such file or directory", 0),
        ("test_reader.py::test_missing: 'cat: /home/u/notes: No such file or directory' is told PASSED", 0),
        ("curl: http://example.org/notes: No such file or directory", 1),
        ("cat: /home/u/p/missing: No such file or directory", 1),
        ("cat: /usr/missing: No such file or directory", 1),
        ("curl: (6) Could not resolve host: example.org", 6),
        ("3 tests failed", 1),
    ],
)
def test_a_failure_of_the_commands_own_is_not(output: str, code: int) -> None:
    assert hint(PROGRAM, output, code) is None


def test_a_missing_network_is_explained_where_it_is_off() -> None:
    alone = replace(PROGRAM, scope=replace(SCOPE, network=False))
    assert "sandbox.network" in (hint(alone, "curl: (6) Could not resolve host: example.org", 6) or "")


def test_a_link_of_the_project_to_what_is_hidden_is_named(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "link").symlink_to(tmp_path / "beside")
    (project / "within").symlink_to("src")
    program = replace(PROGRAM, scope=replace(SCOPE, directory=project, write=(project,), spellings=()))
    for name in ("link", "link/notes"):
        assert f"hides {project}/{name}." in (hint(program, f"cat: {name}: No such file or directory", 1) or "")
    assert hint(program, "cat: within/notes: No such file or directory", 1) is None


def test_outside_the_sandbox_nothing_is() -> None:
    assert hint(replace(PROGRAM, scope=None), "Read-only file system", 1) is None
