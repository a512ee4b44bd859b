"""The arguments of bubblewrap, decided without looking at the machine."""

from dataclasses import replace
from pathlib import Path

from app.project.sandbox.bubblewrap import arguments
from app.project.sandbox.scope import MachineFacts, Mask, SandboxScope

MACHINE = MachineFacts(
    bwrap="/usr/bin/bwrap",
    shell="/bin/sh",
    stat="/usr/bin/stat",
    is_root=False,
    user_namespace=False,
    home=Path("/home/u"),
    data_dir=Path("/home/u/data"),
    outputs=Path("/home/u/data/tool-output"),
    system=(Path("/usr"), Path("/etc")),
    links=((Path("/bin"), "usr/bin"),),
    toolchains=(Path("/home/u/.nvm"),),
    masks=(Mask(Path("/etc/shadow"), False), Mask(Path("/home/u/data"), True), Mask(Path("/srv/others"), True)),
    memory_kilobytes=1000,
    processes=50,
)
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


def test_the_project_is_writable_and_the_system_is_not() -> None:
    mounts = mounted(SCOPE)
    assert mounts["/home/u/p"] == ("--bind-try", "/home/u/p")
    assert mounts["/usr"] == ("--ro-bind-try", "/usr")
    assert mounts["/bin"] == ("--symlink", "usr/bin")
    assert arguments(MACHINE, SCOPE)[-10:-5] == ["--chdir", "/home/u/p/src", "--", "/bin/sh", "-c"]


def test_home_and_tmp_are_the_projects_own() -> None:
    mounts = mounted(SCOPE)
    assert mounts["/home/u"] == ("--bind", str(PRIVATE / "home"))
    assert mounts["/tmp"] == ("--bind", str(PRIVATE / "tmp"))
    assert mounts["/home/u/.nvm"] == ("--ro-bind-try", "/home/u/.nvm")


def test_a_mount_stands_behind_the_one_it_lies_on() -> None:
    words = arguments(MACHINE, SCOPE)
    assert words.index(str(PRIVATE / "home")) < words.index("/home/u/p") and words.index("/etc") < words.index("/etc/shadow")
    assert words[words.index("--remount-ro") + 1] == "/"
    assert words.index("/home/u/p") < words.index("--remount-ro")


def test_only_what_is_shown_is_masked() -> None:
    mounts = mounted(SCOPE)
    assert mounts["/etc/shadow"] == ("--ro-bind", "/dev/null")
    assert "/home/u/data" not in mounts and "/srv/others" not in mounts


def test_a_directory_that_is_opened_does_not_show_the_servers_files() -> None:
    mounts = mounted(replace(SCOPE, write=(*SCOPE.write, Path("/home/u"), Path("/srv"))))
    assert mounts["/home/u"] == ("--bind-try", "/home/u")
    assert mounts["/home/u/data"] == mounts["/srv/others"] == ("--tmpfs",)


def test_what_is_opened_by_name_is_not_masked() -> None:
    store = Mask(Path("/home/u/.ssh"), True)
    home = replace(SCOPE, write=(*SCOPE.write, Path("/home/u")), masks=(store,))
    assert mounted(home)["/home/u/.ssh"] == ("--tmpfs",)
    assert mounted(replace(home, read=(store.path,)))["/home/u/.ssh"] == ("--ro-bind-try", "/home/u/.ssh")


def test_a_name_with_a_link_in_it_leads_to_the_same_directory() -> None:
    scope = replace(SCOPE, spellings=((Path("/home/u/p"), Path("/link/p")),))
    assert mounted(scope)["/link/p"] == ("--bind-try", "/home/u/p")


def test_what_lies_beside_the_project_cannot_be_written() -> None:
    deeper = replace(SCOPE, project=Path("/home/u/src/deep/p"), write=(Path("/home/u/src/deep/p"),))
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
