"""Finds out once what commands are shown of this machine: the system and the toolchains, without what not every user may read."""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter
from pathlib import Path

from app.sandbox.git_settings import git_files
from app.sandbox.scope import MachineFacts, Mask, is_private, may_be_granted

_SYSTEM = """
/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /opt /nix /gnu /snap /sys/devices/system
/var/lib/ca-certificates /var/lib/dpkg /var/lib/rpm /var/cache/fontconfig
"""
_OF_HOME = """
.gitconfig .config/git .nvm .rustup .pyenv .rbenv .asdf .sdkman .volta .local/bin .local/share/uv .local/share/mise
.local/share/pipx .local/share/pnpm .cargo/bin .cargo/env
"""
"""What programs need of the home directory, and holds no keys."""
_OF_ETC = "alternatives gitattributes gitconfig group ld.so.cache localtime nsswitch.conf passwd"
_INTERPRETERS = ("python3", "python", "node", "ruby", "java", "go", "perl")
_MEMORY_SHARE = 0.75
PROCESSES = 4096
"""Threads count, too."""


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
    return replace(machine, git_files=tuple(path for path in git_files(home, environment) if _may_be_shown(path, machine)))


def _may_be_shown(path: Path, machine: MachineFacts) -> bool:
    real = _real(path)
    return may_be_granted(real, machine) and not is_private(real, machine)


def for_own_programs(machine: MachineFacts) -> MachineFacts:
    """What git and ripgrep need of the machine: the fewer mounts, the sooner they start."""
    of_etc = (Path("/etc") / name for name in _OF_ETC.split())
    git = Path(shutil.which("git") or "/usr/bin/git")
    needed = (git, _real(git), machine.home / ".gitconfig", machine.home / ".config" / "git")

    def is_needed(place: Path) -> bool:
        return place == Path("/usr") or any(path.is_relative_to(place) for path in needed)

    system = [path for path in machine.system if is_needed(path)]
    toolchains = tuple(path for path in machine.toolchains if is_needed(path))
    return replace(machine, system=(*system, *(path for path in of_etc if path.exists())), toolchains=toolchains)


def _kernel_files() -> Iterator[Path]:
    """Settings of the kernel: root needs no capability to write them, and they hold for the whole machine."""
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
    PATH may be another user's, as after `su`: what may not be entered is no toolchain."""
    folders = [Path(folder) for folder in environment.get("PATH", "").split(":") if folder.startswith("/")]
    programs = (folder / name for folder in folders for name in _INTERPRETERS)
    for folder in [*folders, *(_real(program).parent for program in programs if os.access(program, os.X_OK))]:
        if os.access(folder, os.X_OK) and folder.is_dir() and not any(folder.is_relative_to(path) for path in _SYSTEM.split()):
            yield prefix_of(folder, home)


def _outermost(paths: Sequence[Path]) -> list[Path]:
    """Without those that lie in another."""
    return [path for path in dict.fromkeys(paths) if not any(path.is_relative_to(other) for other in paths if other != path)]


def prefix_of(folder: Path, home: Path) -> Path:
    """`…/bin` belongs with the libraries beside it, except in home and its hidden directories (`~/.local`), which hold other
    things too; `…/shims` with the version manager (pyenv, asdf)."""
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
    """By `os.scandir`: as paths, a thousand files took 8 ms of each start."""
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
