"""What a sandboxed command may reach: values, and how they follow from the directory, the configuration and the permissions."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from app.project.sandbox.git_repository import repository_of
from app.schema.config import SandboxConfig
from app.util import environment
from app.util.project_files import DirectoryReplaced, HeldDirectory, Identity, located, resolved

_OWN = tuple(map(Path, ("/proc", "/sys", "/dev")))
"""The sandbox has its own of these, or none."""
_CREDENTIAL_STORES = """
.ssh .gnupg .aws .azure .kube .docker .netrc .npmrc .pypirc .git-credentials .password-store .vault-token .config/gcloud
.config/gh .config/git/credentials .local/share/keyrings .mozilla .config/google-chrome .config/chromium .cargo/credentials.toml
"""
"""Of the home directory. They stay hidden if it, or a directory in it, is opened, unless they are named themselves."""

DEFAULTS = SandboxConfig()


@dataclass(frozen=True, slots=True)
class Mask:
    """A file or directory that is hidden within a shown one."""

    path: Path
    is_directory: bool


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What is the same for every command. `links`: top-level links of the file system (`/bin` to `usr/bin`). `toolchains`: where
    programs of `PATH` are that are not the system's. `outputs`: the one directory of `data_dir` whose files may be shown.
    `kernel_files`: what is writable below /proc and belongs to no process. `git_files`: the user's git configuration."""

    bwrap: str
    shell: str
    stat: str
    is_root: bool
    user_namespace: bool
    home: Path
    data_dir: Path
    outputs: Path
    system: tuple[Path, ...]
    links: tuple[tuple[Path, str], ...]
    toolchains: tuple[Path, ...]
    masks: tuple[Mask, ...]
    memory_kilobytes: int
    processes: int
    kernel_files: tuple[Path, ...] = ()
    git_files: tuple[Path, ...] = ()

    @property
    def own(self) -> dict[Path, str]:
        """Where each project's commands have a directory of their own, with its name in `SandboxScope.private`."""
        return {self.home: "home", Path("/tmp"): "tmp", Path("/var/tmp"): "tmp"}


@dataclass(frozen=True, slots=True)
class Walls:
    """What is kept apart on a server with users, evaluated anew for each program. Paths without symlinks. `hidden`: the roots of
    other users. `admits(path)`: whether the user may open the path."""

    hidden: Callable[[], Iterable[str]] = tuple
    admits: Callable[[str], bool] = lambda _: True


NO_WALLS = Walls()


@dataclass(frozen=True, slots=True)
class SandboxWorkspace:
    """The directory that a command works for, with its configuration. `worktree` is `/` outside git. `held`: the directories that
    it works in, as they were when they were opened; empty: as they are now."""

    directory: Path
    worktree: Path
    config: SandboxConfig = DEFAULTS
    held: tuple[HeldDirectory, ...] = ()
    walls: Walls = field(default=NO_WALLS, compare=False)

    @property
    def top(self) -> Path:
        return self.directory if self.worktree == Path("/") else self.worktree

    def directories(self) -> tuple[HeldDirectory, ...]:
        """First the top, last the directory. Raises OSError."""
        return (self.held or hold(self.directory, self.worktree))[:2]

    def real_directories(self) -> list[Path]:
        """As `directories`, without symlinks. Raises OSError."""
        return [one.real for one in self.directories()]


def hold(directory: Path, worktree: Path) -> tuple[HeldDirectory, ...]:
    """The directories that commands work in: the top of the checkout, the directory itself, and the git directory of a linked
    worktree or a submodule. Raises OSError."""
    top = HeldDirectory(directory if worktree == Path("/") else worktree)
    below, found = HeldDirectory(directory), repository_of(top.real)
    if directory.is_relative_to(top.path) and not below.real.is_relative_to(top.real):
        raise DirectoryReplaced(directory)  # a link out of the checkout, as by a command
    return (top, below, *map(HeldDirectory, found.outside if found else ()))


@dataclass(frozen=True, slots=True)
class FoundPath:
    """A file or directory as it was found: `real`, without symlinks, and `identity` are of the same moment."""

    path: Path
    real: Path
    identity: Identity

    @property
    def is_directory(self) -> bool:
        return self.real.is_dir()


def found_paths(paths: Iterable[Path | None]) -> list[FoundPath]:
    """Without missing paths."""
    found = []
    for path in filter(None, paths):
        with suppress(OSError):
            found.append(FoundPath(path, *located(path)))
    return found


@dataclass(frozen=True, slots=True)
class SandboxScope:
    """`directory`: where the command starts. `project`: the top of the checkout. `write` and `read` are real paths; `spellings`
    are names of some that contain a symbolic link. `identities`: what must stand at the paths, which others could replace.
    `private` has the own home and /tmp of the project's commands; None: both are empty. `kept`: writable directories that hold
    hidden ones. Renamed, they would show these to the next command; as mounts of their own they cannot be."""

    directory: Path
    project: Path
    write: tuple[Path, ...]
    read: tuple[Path, ...]
    spellings: tuple[tuple[Path, Path], ...]
    masks: tuple[Mask, ...]
    network: bool
    private: Path | None
    identities: tuple[tuple[Path, Identity], ...] = ()
    kept: tuple[Path, ...] = ()

    @property
    def places(self) -> Iterator[Path]:
        """Where something of the machine is mounted."""
        yield from (*self.write, *self.read, *self.kept, *(name for _, name in self.spellings))


def scope_of(
    machine: MachineFacts,
    workspace: SandboxWorkspace,
    directory: Path,
    granted: Iterable[Path] = (),
    approved: Iterable[Path] = (),
    named: Iterable[FoundPath] = (),
) -> SandboxScope:
    """`granted`: files or directories outside the project that the user has allowed this command. `approved`: directories that
    the user has allowed for good; wide ones and the system's are not opened by that alone. `named`: shown read-only. Raises
    OSError if the project is gone."""
    config, admits = workspace.config, workspace.walls.admits
    held = workspace.held or hold(workspace.directory, workspace.worktree)

    def may_open(real: Path) -> bool:
        return may_be_granted(real, machine) and admits(str(real))

    def configured(names: Iterable[str]) -> list[FoundPath]:
        found = found_paths(map(environment.expand_path, names))
        return [place for place in found if may_be_granted(place.real, machine)]

    once = found_paths(opened_for(path, machine) for path in granted if (real := resolved(path)) and may_open(Path(real)))
    always = [place for place in found_paths(approved) if place.is_directory and not _is_wide(place.real, machine)]
    return _scope(
        machine,
        directory,
        workspace.walls,
        work=held,
        write=[*configured(config.write), *(place for place in (*once, *always) if may_open(place.real))],
        read=[*configured(config.read), *named],
        network=config.network is not False,
        private=private_directory(machine.data_dir, held[0].real),
    )


def server_scope(
    machine: MachineFacts, directory: Path, write: Sequence[HeldDirectory], read: Iterable[Path], walls: Walls = NO_WALLS
) -> SandboxScope:
    """For a program of the server's own, such as git. Raises OSError."""
    scope = _scope(machine, directory, walls, work=write)
    return replace(scope, read=tuple(dict.fromkeys(read)))


def _scope(
    machine: MachineFacts,
    directory: Path,
    walls: Walls,
    *,
    work: Sequence[HeldDirectory],
    write: Sequence[FoundPath] = (),
    read: Sequence[FoundPath] = (),
    network: bool = False,
    private: Path | None = None,
) -> SandboxScope:
    places: list[FoundPath | HeldDirectory] = [*read, *write, *work]
    writable = tuple(dict.fromkeys([*(held.real for held in work), *(place.real for place in write)]))
    masks = (*_credential_masks(machine, [place.real for place in places]), *_hidden_roots(walls))
    others = {*machine.own, *above_project(machine, work[0].real), *machine.system, *machine.toolchains}
    others |= {place.real for place in read}
    around = found_paths(_around(dict.fromkeys(mask.path for mask in (*machine.masks, *masks)), writable, others))
    kept = [place for place in around if place.real == place.path]
    return SandboxScope(
        directory=directory,
        project=work[0].real,
        write=writable,
        read=tuple(dict.fromkeys(place.real for place in read)),
        spellings=tuple(dict.fromkeys((place.real, place.path) for place in places if place.real != place.path)),
        masks=masks,
        network=network,
        private=private,
        # One for each path that is mounted, because what stands there may be replaced between two mounts.
        identities=tuple({path: place.identity for place in (*places, *kept) for path in (place.real, place.path)}.items()),
        kept=tuple(place.path for place in kept),
    )


def private_directory(data_dir: Path, top: Path) -> Path:
    """`top`: the checkout's, without symlinks, as it was opened; so another checkout's home is never shown instead."""
    return data_dir / "sandbox" / sha256(os.fsencode(top)).hexdigest()[:16]


def may_be_granted(path: Path, machine: MachineFacts) -> bool:
    """Never the server's own files: they hold everybody's keys and conversations."""
    if path.is_relative_to(machine.data_dir):
        return path.is_relative_to(machine.outputs) and path != machine.outputs
    return path != Path("/") and not any(path.is_relative_to(own) for own in _OWN)


def may_be_shown(path: Path, machine: MachineFacts) -> bool:
    """What `may_be_granted` allows, without the keys of the home directory and the server's other roots."""
    stores = (machine.home / name for name in _CREDENTIAL_STORES.split())
    hidden = (*stores, *(mask.path for mask in machine.masks))
    return may_be_granted(path, machine) and not any(path.is_relative_to(each) for each in hidden)


def opened_for(path: Path, machine: MachineFacts) -> Path | None:
    """The path to open so that a command can work with `path`. A file can be replaced only if its directory is writable, so that
    directory is opened; if it is a wide one, the file alone, which has to exist. None if nothing can be opened."""
    if os.path.isdir(path):  # noqa: PTH112  False for one that cannot be looked up; a Path raises
        return path
    parent = next(above for above in path.parents if os.path.exists(above))  # noqa: PTH110
    if os.path.exists(path) and (_is_wide(parent, machine) or path.is_relative_to(machine.data_dir)):  # noqa: PTH110
        return path
    return parent if parent != Path("/") else None


def _is_wide(directory: Path, machine: MachineFacts) -> bool:
    if any(directory.is_relative_to(path) for path in machine.system):
        return True
    return len(directory.parts) <= 2 or machine.home.is_relative_to(directory) or machine.data_dir.is_relative_to(directory)


def _credential_masks(machine: MachineFacts, shown: Sequence[Path]) -> Iterator[Mask]:
    """The credential stores within shown directories. Hiding a missing one would create it."""
    for name in _CREDENTIAL_STORES.split():
        store = machine.home / name
        if any(store.is_relative_to(path) for path in shown) and store.exists():
            yield Mask(store, store.is_dir())


def _hidden_roots(walls: Walls) -> Iterator[Mask]:
    """The roots of other users, even in the system's directories or a toolchain's."""
    return (Mask(root, is_directory=True) for root in map(Path, walls.hidden()) if root.is_dir())


def above_project(machine: MachineFacts, project: Path) -> list[Path]:
    """Directories above the project in the own home or /tmp are read-only: a write beside the project is an error, not lost."""
    own = (machine.home, Path("/tmp"))
    tops = (base / project.relative_to(base).parts[0] for base in own if base in project.parents)
    return [top for top in tops if top != project and not top.name.startswith(".")]


def _around(hidden: Collection[Path], writable: Collection[Path], other_mounts: Collection[Path]) -> Iterator[Path]:
    """The directories between a hidden path and the writable directory that shows where it is."""
    for path in hidden:
        for at, place in enumerate(path.parents):
            if place in writable:
                yield from path.parents[:at]
            if place in writable or place in other_mounts or place in hidden:
                break


@dataclass(frozen=True, slots=True)
class Program:
    """`env` None: the server's environment. `scope` None: not confined."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] | None = None
    scope: SandboxScope | None = None

    @property
    def is_confined(self) -> bool:
        """Whether the program runs in a PID namespace, which ends with it."""
        return self.scope is not None
