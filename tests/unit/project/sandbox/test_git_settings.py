"""Which files the user's git configuration is made of."""

from pathlib import Path

from git_files import put_file

from app.project.sandbox.machine import find_facts, git_files


def written(home: Path, **files: str) -> None:
    for name, text in files.items():
        put_file(home / name, text)


def names(home: Path, environment: dict[str, str] | None = None) -> set[str]:
    found = git_files(home, {"GIT_CONFIG_SYSTEM": "/dev/null", **(environment or {})})
    return {str(path.relative_to(home)) for path in found}


FIRST = """[include]
    path = a
[includeIf "gitdir:~/work/"]
    path = "~/b" ; and
[core] excludesfile=~/c # c
"""
SECOND = "[commit]\ntemplate = ~/d\n[include]path=e"


def test_files_are_found_by_way_of_others_and_another_global_file_takes_the_place(tmp_path: Path) -> None:
    written(
        tmp_path, **{".gitconfig": FIRST, "a": SECOND, "b": "", "c": "", "d": "", "e": "", "own": "", ".config/git/ignore": ""}
    )
    assert names(tmp_path) == {".gitconfig", "a", "b", "c", "d", "e", ".config/git/ignore"}
    assert names(tmp_path, {"GIT_CONFIG_GLOBAL": str(tmp_path / "own")}) == {"own", ".config/git/ignore"}


def test_a_file_that_cannot_be_asked_for_is_none(tmp_path: Path) -> None:
    """The name is too long; a folder that may not be entered is closed in the same way."""
    written(
        tmp_path, **{".gitconfig": f"[core]\nexcludesFile = ~/{'a' * 300}\n[include]\npath = {'b' * 300}\npath = a\n", "a": ""}
    )
    assert names(tmp_path) == {".gitconfig", "a"}


def test_there_is_an_end(tmp_path: Path) -> None:
    """Also of files that name each other, of one that never ends, and of a large one."""
    endless = "[include]\npath=a\npath=/dev/zero\npath=missing\npath=large\n"
    written(tmp_path, **{".gitconfig": endless, "a": "[include]\npath=.gitconfig\n"})
    (tmp_path / "large").write_bytes(b"\n" * 2_000_000)
    assert names(tmp_path) == {".gitconfig", "a", "large"}


def test_keys_and_the_servers_files_are_not_among_what_is_shown(tmp_path: Path) -> None:
    text = "[include]\npath = .ssh/config\npath = data/auth.json\npath = plain\n[core]\nexcludesFile = ~/.netrc\n"
    written(tmp_path, **{".gitconfig": text, ".ssh/config": "", "data/auth.json": "", "plain": "", ".netrc": ""})
    shown = find_facts(tmp_path, tmp_path / "data", [], {}).git_files
    assert {path.name for path in shown if path.is_relative_to(tmp_path)} == {".gitconfig", "plain"}
