"""The arguments of bubblewrap, decided without looking at the machine, and what is said of what it denied."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from obstacles import unresolved

from app.project.sandbox.bubblewrap import arguments
from app.project.sandbox.sandbox import hint
from app.project.sandbox.scope import MachineFacts, Mask, Program, SandboxScope

HOME = Path("/home/u")
PROGRAMS = {"bwrap": "/usr/bin/bwrap", "shell": "/bin/sh", "stat": "/usr/bin/stat"}
PLACES = {"home": HOME, "data_dir": HOME / "data", "outputs": HOME / "data/tool-output", "toolchains": (HOME / ".nvm",)}
SYSTEM = {"system": (Path("/usr"), Path("/etc")), "links": ((Path("/bin"), "usr/bin"),)}
MASKS = (Mask(Path("/etc/shadow"), False), Mask(HOME / "data", True), Mask(Path("/srv/others"), True))
LIMITS: dict[str, Any] = {"is_root": False, "user_namespace": False, "memory_kilobytes": 1000, "processes": 50}
MACHINE = MachineFacts(**PROGRAMS, **PLACES, **SYSTEM, **LIMITS, masks=MASKS)
PRIVATE = Path("/home/u/data/sandbox/p")
SCOPE = SandboxScope(Path("/home/u/p/src"), Path("/home/u/p"), (Path("/home/u/p"),), (), (), (), network=True, private=PRIVATE)


def mounted(scope: SandboxScope, machine: MachineFacts = MACHINE) -> dict[str, tuple[str, ...]]:
    """By destination: the last mount there, with its source."""
    words = arguments(machine, scope)
    found = {}
    for at, word in enumerate(words):
        if word in ("--ro-bind", "--ro-bind-try", "--bind", "--bind-try", "--symlink"):
            found[words[at + 2]] = (word, words[at + 1])
        elif word == "--tmpfs":
            found[words[at + 1]] = (word,)
    return found


def test_the_project_is_writable_the_system_is_not_and_home_and_tmp_are_the_projects_own() -> None:
    mounts = mounted(SCOPE)
    assert mounts["/home/u/p"] == ("--bind-try", "/home/u/p")
    assert (mounts["/usr"], mounts["/bin"]) == (("--ro-bind-try", "/usr"), ("--symlink", "usr/bin"))
    assert (mounts["/home/u"], mounts["/tmp"]) == (("--bind", str(PRIVATE / "home")), ("--bind", str(PRIVATE / "tmp")))
    assert mounts["/home/u/.nvm"] == ("--ro-bind-try", "/home/u/.nvm")
    assert arguments(MACHINE, SCOPE)[-10:-5] == ["--chdir", "/home/u/p/src", "--", "/bin/sh", "-c"]
    assert mounts["/etc/shadow"] == ("--ro-bind", "/dev/null")
    assert "/home/u/data" not in mounts and "/srv/others" not in mounts, "only what is shown is masked"


def test_a_mount_stands_behind_the_one_it_lies_on() -> None:
    words = arguments(MACHINE, SCOPE)
    assert words.index(str(PRIVATE / "home")) < words.index("/home/u/p") and words.index("/etc") < words.index("/etc/shadow")
    assert words[words.index("--remount-ro") + 1] == "/"
    assert words.index("/home/u/p") < words.index("--remount-ro")


def test_what_is_opened_does_not_show_the_servers_files_or_keys_unless_by_name() -> None:
    mounts = mounted(replace(SCOPE, write=(*SCOPE.write, HOME, Path("/srv"))))
    assert mounts["/home/u"] == ("--bind-try", "/home/u")
    assert mounts["/home/u/data"] == mounts["/srv/others"] == ("--tmpfs",)
    home = replace(SCOPE, write=(*SCOPE.write, HOME), masks=(Mask(HOME / ".ssh", True),))
    assert mounted(home)["/home/u/.ssh"] == ("--tmpfs",)
    assert mounted(replace(home, read=(HOME / ".ssh",)))["/home/u/.ssh"] == ("--ro-bind-try", "/home/u/.ssh")


def test_a_name_with_a_link_in_it_leads_there_and_what_lies_beside_cannot_be_written() -> None:
    scope = replace(SCOPE, spellings=((Path("/home/u/p"), Path("/link/p")),))
    assert mounted(scope)["/link/p"] == ("--bind-try", "/home/u/p")
    deeper = replace(SCOPE, project=HOME / "src/deep/p", write=(HOME / "src/deep/p",))
    words = arguments(MACHINE, deeper)
    assert mounted(deeper)["/home/u/src"] == ("--tmpfs",)
    assert words[words.index("/home/u/src", words.index("--dev")) - 1] == "--remount-ro"


def test_every_namespace_ends_with_the_server_and_root_keeps_little() -> None:
    words = arguments(MACHINE, SCOPE)
    assert {"--unshare-pid", "--die-with-parent", "--as-pid-1"} <= set(words)
    assert "--unshare-net" not in words and "--cap-drop" not in words
    root = arguments(replace(MACHINE, is_root=True), replace(SCOPE, network=False))
    assert "--unshare-net" in root and root[root.index("--cap-drop") + 1] == "ALL"
    kept = {root[at + 1] for at, word in enumerate(root) if word == "--cap-add"}
    assert kept.isdisjoint({"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_MKNOD", "CAP_NET_ADMIN", "CAP_DAC_READ_SEARCH"})


PROGRAM = Program(["sh"], Path("/"), None, SCOPE)


NOT_THERE = "No such file or directory"
DENIED = [
    ("touch: cannot touch '/etc/x': Read-only file system", 1, "sandbox.write"),
    ("touch: cannot touch '/etc/x': Read-only file system", 0, "sandbox.write"),
    (f"cat: /home/u/notes: {NOT_THERE}", 1, "hides /home/u/notes"),
    (f"cat: ../../other/notes: {NOT_THERE}", 1, "hides /home/u/other/notes"),
    ("sh: 1: cannot create /srv/x: Directory nonexistent", 2, "hides /srv/x"),
    ("sed: cannot rename /srv/sedX: Device or resource busy", 4, "not to be replaced"),
    (f"touch: cannot touch '/home/u/x/y': {NOT_THERE}\ndone", 0, "hides /home/u/x/y"),
    ("x.sh: 3: x.sh: cannot create /srv/x: Directory nonexistent\n", 0, "hides /srv/x"),
    (f"mkdir: cannot create directory ‘/srv/x/y’: {NOT_THERE}", 1, "hides /srv/x/y."),
    ("sh: 1: cd: can't cd to /srv/x", 2, "hides /srv/x"),
    (f"bash: line 1: cd: /srv/x: {NOT_THERE}", 0, "hides /srv/x"),
    ("Error: ENOENT: no such file or directory, open '/srv/x'", 1, "hides /srv/x"),
    ("open /srv/x: no such file or directory", 1, "hides /srv/x"),
    (f"cat: --file=/srv/x: {NOT_THERE}", 1, "hides /srv/x"),
]
ITS_OWN = [
    *((f"cat: {name}: {NOT_THERE}", 1) for name in ("missing", "src/missing", "/home/u/p/missing", "/usr/missing")),
    (f"cat: ./src/missing: {NOT_THERE}", 0),
    (f"test_reader.py::test_missing: 'cat: /home/u/notes: {NOT_THERE}' is told PASSED", 0),
    (f"curl: http://example.org/notes: {NOT_THERE}", 1),
    *(("curl: (6) Could not resolve host: example.org", 6), ("3 tests failed", 1)),
]


@pytest.mark.parametrize(("output", "code", "says"), DENIED)
def test_what_the_sandbox_denied_is_explained(output: str, code: int, says: str) -> None:
    assert says in (hint(PROGRAM, output, code) or "")


@pytest.mark.parametrize(("output", "code"), ITS_OWN)
def test_a_failure_of_the_commands_own_is_not(output: str, code: int) -> None:
    assert hint(PROGRAM, output, code) is None


def test_a_missing_network_is_explained_where_it_is_off_and_nothing_outside_the_sandbox() -> None:
    alone = replace(PROGRAM, scope=replace(SCOPE, network=False))
    assert "sandbox.network" in (hint(alone, "curl: (6) Could not resolve host: example.org", 6) or "")
    assert hint(replace(PROGRAM, scope=None), "Read-only file system", 1) is None


def test_a_link_of_the_project_to_what_is_hidden_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/home/u/beside")
    (tmp_path / "within").symlink_to("src")
    program = replace(PROGRAM, scope=replace(SCOPE, directory=tmp_path, write=(tmp_path,), spellings=()))
    for name in ("link", "link/notes"):
        assert f"hides {tmp_path}/{name}." in (hint(program, f"cat: {name}: {NOT_THERE}", 1) or "")
    assert hint(program, f"cat: within/notes: {NOT_THERE}", 1) is None
    with unresolved() as place:
        assert f"hides {place}." in (hint(program, f"cat: {place}: {NOT_THERE}", 1) or "")


def test_an_output_of_thousands_of_words_is_read_at_once(tmp_path: Path) -> None:
    program = replace(PROGRAM, scope=replace(SCOPE, directory=tmp_path, write=(tmp_path,), spellings=()))
    began = time.thread_time()
    assert hint(program, f"x: {NOT_THERE} {' '.join(map(str, range(4000)))}", 1) is None
    assert time.thread_time() - began < 0.2
