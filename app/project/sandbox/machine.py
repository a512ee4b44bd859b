"""What this machine has for commands: the system, the toolchains and the user's git configuration, without files that not every
user may read; and whether the sandbox works here, which is tried once."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter
from pathlib import Path

from app.project.sandbox.bubblewrap import arguments
from app.project.sandbox.scope import MachineFacts, Mask, SandboxWorkspace, may_be_shown, scope_of
from app.util.project_files import read_small

_MAX_FILES = 100
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)[^\]"]*(?:"[^"]*"\s*)?\](.*)')
_SETTING = re.compile(r'\s*([a-z][a-z-]*)\s*=\s*(?:"([^"]*)"|([^#;]*))', re.IGNORECASE)
_NAMING_FILES = {"excludesfile", "attributesfile", "template", "allowedsignersfile", "ignorerevsfile", "file"}

_SYSTEM = """
/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /opt /nix /gnu /snap /sys/devices/system
/var/lib/ca-certificates /var/lib/dpkg /var/lib/rpm /var/cache/fontconfig
"""
_OF_HOME = """
.gitconfig .config/git .nvm .rustup .pyenv .rbenv .asdf .sdkman .volta .local/bin .local/share/uv .local/share/mise
.local/share/pipx .local/share/pnpm .cargo/bin .cargo/env
"""
"""Files of the home directory that programs need and that hold no keys."""
_OF_ETC = "alternatives gitattributes gitconfig group ld.so.cache localtime nsswitch.conf passwd"
_INTERPRETERS = ("python3", "python", "node", "ruby", "java", "go", "perl")
_MEMORY_SHARE = 0.75
PROCESSES = 4096
"""The most processes of a command, threads included."""
SECONDS = 10
_MESSAGE_CHARACTERS = 300
_PROOF = "test ! -w /proc/sys/kernel/core_pattern && test ! -w /proc/sysrq-trigger && echo works"
"""Fails also if the kernel's settings can be written: a `core_pattern` is run outside of all namespaces."""


def git_files(home: Path, environment: Mapping[str, str]) -> list[Path]:
    """The existing files of git's configuration, and those that it names, by the names that git finds them by."""
    found: list[Path] = []
    pending = _first_files(home, environment)
    while pending and len(found) < _MAX_FILES:
        file = pending.pop(0)
        if file in found or not os.path.isfile(file):  # noqa: PTH113  a Path may raise
            continue
        found.append(file)
        for path, is_configuration in _named_in(file, home):
            (pending if is_configuration else found).append(path)
    return list(dict.fromkeys(path for path in found if os.path.isfile(path)))  # noqa: PTH113


def _first_files(home: Path, environment: Mapping[str, str]) -> list[Path]:
    own = environment.get("GIT_CONFIG_GLOBAL")
    folder = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    of_user = [Path(own)] if own else [home / ".gitconfig", folder / "config"]
    of_system = Path(environment.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig")
    return [path for path in (*of_user, folder / "ignore", folder / "attributes", of_system) if path.is_absolute()]


def _named_in(file: Path, home: Path) -> Iterator[tuple[Path, bool]]:
    """The absolute paths of files that a configuration names, and whether they are configuration, too."""
    section = ""
    for line in read_small(file).splitlines():
        if head := _SECTION.match(line):
            section, line = head[1].lower(), head[2]
        setting = _SETTING.match(line)
        name = (setting[2] or setting[3] or "").strip() if setting else ""
        if setting is None or not name or "\0" in name:
            continue
        path = home / name[2:] if name.startswith("~/") else Path(name)
        if section.startswith("include") and setting[1].lower() == "path":
            yield Path(os.path.normpath(file.parent / path)), True
        elif setting[1].lower() in _NAMING_FILES and path.is_absolute():
            yield path, False


def find_facts(home: Path, data_dir: Path, hidden: Iterable[Path], environment: Mapping[str, str]) -> MachineFacts:
    """`hidden`: directories that a command sees only if it works in them."""
    system = [Path(name) for name in _SYSTEM.split()]
    of_home = (home / name for name in _OF_HOME.split())
    others = [data_dir, *hidden]
    machine = MachineFacts(
        bwrap=shutil.which("bwrap") or "bwrap",
        shell=shutil.which("sh") or "/bin/sh",
        stat=shutil.which("stat") or "/usr/bin/stat",
        is_root=os.geteuid() == 0,
        user_namespace=False,
        home=_real(home),
        data_dir=_real(data_dir),
        outputs=_real(data_dir) / "tool-output",
        system=(*(path for path in system if path.is_dir() and not path.is_symlink()), *_resolver()),
        links=tuple((path, str(path.readlink())) for path in system if path.is_symlink()),
        toolchains=tuple(_outermost([*(path for path in of_home if path.exists()), *_toolchains(home, environment)])),
        masks=(*_unreadable_for_others(), *(Mask(_real(path), is_directory=True) for path in others)),
        memory_kilobytes=int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024 * _MEMORY_SHARE),
        processes=PROCESSES,
        kernel_files=tuple(_kernel_files()),
    )
    return replace(machine, git_files=tuple(path for path in git_files(home, environment) if may_be_shown(_real(path), machine)))


def for_own_programs(machine: MachineFacts) -> MachineFacts:
    """The part of the machine that git and ripgrep need: with fewer mounts they start sooner."""
    of_etc = (Path("/etc") / name for name in _OF_ETC.split())
    git = Path(shutil.which("git") or "/usr/bin/git")
    needed = (git, _real(git), machine.home / ".gitconfig", machine.home / ".config" / "git")

    def is_needed(place: Path) -> bool:
        return place == Path("/usr") or any(path.is_relative_to(place) for path in needed)

    system = [path for path in machine.system if is_needed(path)]
    toolchains = tuple(path for path in machine.toolchains if is_needed(path))
    return replace(machine, system=(*system, *(path for path in of_etc if path.exists())), toolchains=toolchains)


def _kernel_files() -> Iterator[Path]:
    """Settings of the kernel, which hold for the whole machine and which root could write without a capability."""
    for entry in sorted(os.scandir("/proc"), key=attrgetter("name")) if os.access("/proc", os.R_OK) else ():
        is_of_process = entry.name.isdigit() or entry.is_symlink()
        if not is_of_process and (entry.is_dir() or entry.stat().st_mode & 0o222):
            yield Path(entry.path)


def _resolver() -> Iterator[Path]:
    """/etc/resolv.conf is often a link into /run, which is hidden."""
    real = _real(Path("/etc/resolv.conf"))
    if real.is_file() and not real.is_relative_to("/etc"):
        yield real


def _toolchains(home: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """The directories of PATH that are not the system's, and where their interpreters really are, as of a virtual environment.
    PATH may be another user's, as after `su`: a directory that may not be entered is skipped."""
    folders = [Path(folder) for folder in environment.get("PATH", "").split(":") if folder.startswith("/")]
    programs = (folder / name for folder in folders for name in _INTERPRETERS)
    for folder in [*folders, *(_real(program).parent for program in programs if os.access(program, os.X_OK))]:
        if os.access(folder, os.X_OK) and folder.is_dir() and not any(folder.is_relative_to(path) for path in _SYSTEM.split()):
            yield prefix_of(folder, home)


def _outermost(paths: Sequence[Path]) -> list[Path]:
    """Without paths that lie in another of them."""
    return [path for path in dict.fromkeys(paths) if not any(path.is_relative_to(other) for other in paths if other != path)]


def prefix_of(folder: Path, home: Path) -> Path:
    """The folder to show commands for a program found in `folder`: of `…/bin` the parent, which has the libraries, except in home
    and its hidden directories (`~/.local`), which hold other things too; of `…/shims` the version manager's (pyenv, asdf)."""
    prefix = folder.parent
    if folder.name == "shims":
        return prefix
    is_store = prefix in (home, *home.parents) or (prefix.parent == home and prefix.name.startswith("."))
    return prefix if folder.name == "bin" and (prefix / "lib").is_dir() and not is_store else folder


@cache
def _unreadable_for_others() -> tuple[Mask, ...]:
    """Keys and password hashes in /etc, which a server of root could read."""
    return tuple(_unreadable_below("/etc"))


def _unreadable_below(folder: str) -> Iterator[Mask]:
    """Uses `os.scandir`: as Paths, a thousand files took 8 ms of each start."""
    for entry in sorted(os.scandir(folder), key=attrgetter("name")) if os.access(folder, os.R_OK) else ():
        found = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(found):
            continue
        if not found & (stat.S_IROTH if stat.S_ISREG(found) else stat.S_IXOTH):
            yield Mask(Path(entry.path), stat.S_ISDIR(found))
        elif stat.S_ISDIR(found):
            yield from _unreadable_below(entry.path)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


class SandboxUnusable(Exception):
    """The message says why the sandbox does not work here."""


def usable(machine: MachineFacts) -> MachineFacts:
    """The facts with the kind of namespaces that works. Root needs no user namespace, in which files of other owners are out of
    reach; but a container may allow root only that kind. Raises SandboxUnusable."""
    if sys.platform != "linux":
        raise SandboxUnusable("bubblewrap is for Linux only")
    if not os.access(machine.bwrap, os.X_OK):
        raise SandboxUnusable("bubblewrap is not installed (no program `bwrap`)")
    reason = ""
    for kind in [machine, replace(machine, user_namespace=True)] if machine.is_root else [machine]:
        reason = _failure(kind)
        if not reason:
            return kind
    raise SandboxUnusable(reason)


@cache
def _failure(machine: MachineFacts) -> str:
    """Empty if it works."""
    with tempfile.TemporaryDirectory(prefix="opensession-sandbox-") as name:
        directory = Path(name)
        workspace = SandboxWorkspace(directory, directory)
        apart = replace(machine, data_dir=directory / "data")
        scope = scope_of(apart, workspace, directory)
        assert scope.private is not None
        for folder in ("home", "tmp"):
            (scope.private / folder).mkdir(parents=True)
        command = [*arguments(apart, scope), machine.shell, "-c", _PROOF]
        try:
            tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    message = tried.stderr.strip()[-_MESSAGE_CHARACTERS:]
    return "" if tried.stdout == "works\n" and tried.returncode == 0 else message or f"bwrap ended with {tried.returncode}"
