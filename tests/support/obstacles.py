"""What a hostile project has where a file is expected. Each takes the path and a file of somebody else, whose text is SECRET."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

SECRET = "CANARY-of-another"
HUGE = 600 * 2**20

Obstacle = Callable[[Path, Path], None]


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def relative_link(path: Path, secret: Path) -> None:
    path.symlink_to(os.path.relpath(secret, path.parent))


def chained_link(path: Path, secret: Path) -> None:
    """By way of a link in the project."""
    between = path.with_name(f".{path.name}-between")
    between.symlink_to(secret)
    path.symlink_to(between.name)


def fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def endless(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


def unix_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def huge(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


LINKS: dict[str, Obstacle] = {"link": link, "relative link": relative_link, "chain of links": chained_link}
SPECIAL: dict[str, Obstacle] = {"fifo": fifo, "endless": endless, "socket": unix_socket, "huge": huge}
OBSTACLES = {**LINKS, **SPECIAL}


def put(name: str, path: Path, secret: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    OBSTACLES[name](path, secret)
