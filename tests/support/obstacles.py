"""What a hostile project has where a file is expected. Each takes the path and a file of somebody else, whose text is SECRET."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SECRET = "CANARY-of-another"
HUGE = 600 * 2**20

Obstacle = Callable[[Path, Path], None]


def chained_link(path: Path, secret: Path) -> None:
    """By way of a link in the project."""
    between = path.with_name(f".{path.name}-between")
    between.symlink_to(secret)
    path.symlink_to(between.name)


def endless_links(path: Path) -> None:
    """A link to a link to a link …: more than the system follows, and than Python resolves."""
    links = path.with_name(f".{path.name}-links")
    links.mkdir()
    for number in range(1100):
        (links / str(number)).symlink_to(str(number + 1))
    path.symlink_to(links / "0")


@contextmanager
def unresolved() -> Iterator[Path]:
    """A path that nobody can resolve, as `/proc/1/cwd` for an ordinary user: it belongs to a program that has ended."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        yield Path(f"/proc/{ended.pid}/cwd")


def unix_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def huge(path: Path, _: Path) -> None:
    path.touch()
    os.truncate(path, HUGE)


LINKS: dict[str, Obstacle] = {
    "link": lambda path, secret: path.symlink_to(secret),
    "relative link": lambda path, secret: path.symlink_to(os.path.relpath(secret, path.parent)),
    "chain of links": chained_link,
}
SPECIAL: dict[str, Obstacle] = {
    "fifo": lambda path, _: os.mkfifo(path),
    "endless": lambda path, _: path.symlink_to("/dev/zero"),
    "socket": unix_socket,
    "huge": huge,
}
OBSTACLES = {**LINKS, **SPECIAL}


def put(name: str, path: Path, secret: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    OBSTACLES[name](path, secret)
