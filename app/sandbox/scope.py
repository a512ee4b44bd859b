"""What a sandboxed command may reach: values, and how they follow from the directory, the configuration and what was granted."""

import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from app.sandbox.git_directories import git_directories
from app.schema.config import SandboxConfig
from app.util import paths
from app.util.dataclass import dataclass

_OWN = tuple(map(Path, ("/proc", "/sys", "/dev")))
"""The sandbox has its own of these, or none."""
_CREDENTIAL_STORES = """
.ssh .gnupg .aws .azure .kube .docker .netrc .npmrc .pypirc .git-credentials .password-store .vault-token .config/gcloud
.config/gh .config/git/credentials .local/share/keyrings .mozilla .config/google-chrome .config/chromium .cargo/credentials.toml
"""
"""Of the home directory: hidden also where it, or a directory in it, is opened; not where they are named themselves."""


@dataclass(frozen=True, slots=True)
class Mask:
    """A file or directory that is hidden within what is shown."""

    path: Path
    is_directory: bool


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What is the same for every command. `links`: top-level links of the file system (`/bin` to `usr/bin`). `toolchains`: where
    programs of `PATH` are that are not the system's. `outputs`: the one directory of `data_dir` whose files may be shown.
    `kernel_files`: what is writable below /proc and belongs to no process."""

    bwrap: str
    shell: str
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


DEFAULTS = SandboxConfig()


@dataclass(frozen=True, slots=True)
class SandboxWorkspace:
    """The directory that a command works for, with its configuration. `worktree` is `/` outside git."""

    directory: Path
    worktree: Path
    config: SandboxConfig = DEFAULTS

    @property
    def top(self) -> Path:
        return self.directory if self.worktree == Path("/") else self.worktree

    @property
    def directories(self) -> list[Path]:
        """What the command works in. A directory of the worktree that has become a link out of it, as by a command, is not."""
        was_replaced = self.directory.is_relative_to(self.top) and not _real(self.directory).is_relative_to(_real(self.top))
        return [self.top] if was_replaced else [self.top, self.directory]


@dataclass(frozen=True, slots=True)
class SandboxScope:
    """`directory` is where the command starts, `project` the top of the checkout. `write` and `read` are real paths; `spellings`
    are names of some that contain a symbolic link. `private` holds the own home and /tmp of the project's commands."""

    directory: Path
    project: Path
    write: tuple[Path, ...]
    read: tuple[Path, ...]
    spellings: tuple[tuple[Path, Path], ...]
    masks: tuple[Mask, ...]
    network: bool
    private: Path


def scope_of(
    machine: MachineFacts,
    workspace: SandboxWorkspace,
    directory: Path,
    granted: Iterable[Path] = (),
    approved: Iterable[Path] = (),
    named: Iterable[Path] = (),
) -> SandboxScope:
    """`granted`: paths outside of the project that the user has allowed this command, files or directories. `approved`:
    directories that they have allowed for good: wide ones and the system's are opened only where a command names them. `named`:
    what it sees besides, read-only."""
    config = workspace.config
    opened_by_config = [*workspace.directories, *map(_expanded, config.write)]
    opened = (opened_for(path, machine) for path in granted if may_be_granted(path, machine))
    always = (path for path in approved if path.is_dir() and may_be_granted(path, machine) and not _is_wide(path, machine))
    write = [*map(_real, opened_by_config), *git_directories(workspace.top), *(path for path in opened if path), *always]
    read = [_real(path) for path in (*map(_expanded, config.read), *named)]
    spellings = [(_real(name), name) for name in opened_by_config if _real(name) != name]
    return SandboxScope(
        directory=directory,
        project=_real(workspace.top),
        write=tuple(dict.fromkeys(write)),
        read=tuple(dict.fromkeys(read)),
        spellings=tuple(dict.fromkeys(spellings)),
        masks=tuple(_masks(machine, [*write, *read])),
        network=config.network is not False,
        private=private_directory(machine.data_dir, workspace),
    )


def private_directory(data_dir: Path, workspace: SandboxWorkspace) -> Path:
    return data_dir / "sandbox" / sha256(os.fsencode(_real(workspace.top))).hexdigest()[:16]


def may_be_granted(path: Path, machine: MachineFacts) -> bool:
    """Never the server's own files, whoever allows it: they hold the keys and the conversations of all."""
    if path.is_relative_to(machine.data_dir):
        return path.is_relative_to(machine.outputs) and path != machine.outputs
    return path != Path("/") and not any(path.is_relative_to(own) for own in _OWN)


def is_private(path: Path, machine: MachineFacts) -> bool:
    """Keys of the home directory, or other users' directories."""
    stores = (machine.home / name for name in _CREDENTIAL_STORES.split())
    return any(path.is_relative_to(hidden) for hidden in (*stores, *(mask.path for mask in machine.masks)))


def opened_for(path: Path, machine: MachineFacts) -> Path | None:
    """What is opened so that a command can work with `path`. A file can be replaced only if its directory is writable, so that is
    opened, unless it is a wide one: then the file alone, which has to exist. None where nothing can be."""
    if path.is_dir():
        return path
    parent = next(above for above in path.parents if above.exists())
    if path.exists() and (_is_wide(parent, machine) or path.is_relative_to(machine.data_dir)):
        return path
    return parent if parent != Path("/") else None


def _is_wide(directory: Path, machine: MachineFacts) -> bool:
    if any(directory.is_relative_to(path) for path in machine.system):
        return True
    return len(directory.parts) <= 2 or machine.home.is_relative_to(directory) or machine.data_dir.is_relative_to(directory)


def _masks(machine: MachineFacts, shown: Sequence[Path]) -> Iterator[Mask]:
    """The credential stores that lie in something that is shown. To hide what is not there would make it."""
    for name in _CREDENTIAL_STORES.split():
        store = machine.home / name
        if any(store.is_relative_to(path) for path in shown) and store.exists():
            yield Mask(store, store.is_dir())


def _expanded(name: str) -> Path:
    return paths.home() / name[2:] if name.startswith("~/") else Path(name)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
