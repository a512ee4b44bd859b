"""Edits of a directory's files, drawn at random: by an agent or by a person, they are the same."""

import os
import shutil
from pathlib import Path
from random import Random

NAMES = ["a", "b", "c.txt", "日本", "with space", "d/a", "d/b", "d/e/f", "ignored.log"]
CONTENTS = [b"", b"one\n", b"one\ntwo\n", b"one\r\ntwo\r\n", b"\0\1\2", "日本\n".encode(), b"0000", b"1111"]


def edit(root: Path, random: Random) -> None:
    """Write, append, delete, rename, link or change the mode of one file, making room for it as a person would."""
    name, target = (name := random.choice(NAMES)), root / name
    match random.choice(["write", "write", "append", "delete", "rename", "link", "chmod"]):
        case "write":
            _make_room(root, name)
            target.write_bytes(random.choice(CONTENTS) + bytes([random.randrange(256)]))
        case "append" if target.is_file() and not target.is_symlink():
            target.write_bytes(target.read_bytes() + b"more\n")
        case "delete" if os.path.lexists(target):
            _remove(target)
        case "rename":
            _rename(root, random.choice(NAMES), name)
        case "link":
            _make_room(root, name)
            target.symlink_to(random.choice(NAMES))
        case "chmod" if target.is_file() and not target.is_symlink():
            target.chmod(random.choice([0o644, 0o755]))


def put(root: Path, name: str, state: object) -> None:
    """Make a path what `git_files.state` says, None for nothing there."""
    match state:
        case ("file", bytes(content), bool(executable)):
            _make_room(root, name)
            (root / name).write_bytes(content)
            (root / name).chmod(0o755 if executable else 0o644)
        case ("link", str(destination)):
            _make_room(root, name)
            (root / name).symlink_to(destination)
        case _ if not _is_behind_link(root, name):
            _remove(root / name)


def _rename(root: Path, source: str, name: str) -> None:
    nested = Path(name).is_relative_to(source) or Path(source).is_relative_to(name)
    if nested or not os.path.lexists(root / source) or _is_behind_link(root, source):
        return
    _make_room(root, name)
    if os.path.lexists(root / source):
        (root / source).rename(root / name)


def _make_room(root: Path, name: str) -> None:
    for parent in [*Path(name).parents][-2::-1]:
        if (root / parent).is_symlink() or (root / parent).is_file():
            (root / parent).unlink()
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    _remove(root / name)


def _is_behind_link(root: Path, name: str) -> bool:
    return any((root / parent).is_symlink() for parent in Path(name).parents)


def _remove(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    elif os.path.lexists(target):
        target.unlink()
