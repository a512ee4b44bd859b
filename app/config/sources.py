"""The paths of the layers, lowest precedence first. Reads nothing: a listed path may not exist.

remote · global files · OPENCODE_CONFIG · project .jsonc then .json, outermost first · OPENCODE_CONFIG_CONTENT ·
config directories: global, `.opencode` upward (nearest first), `~/.opencode`, OPENCODE_CONFIG_DIR
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from app.config.flags import Flags

FOLDER = ".opencode"


@dataclass(frozen=True)
class ConfigDirectory:
    """A directory of agents, commands, plugins, skills and tools; `files` are its config files, lowest first. `of_project`: it
    stands in or above the project, and is not the user's own."""

    path: Path
    files: tuple[Path, ...]
    of_project: bool


@dataclass(frozen=True)
class Sources:
    directory: Path
    global_files: tuple[Path, ...]
    legacy_toml: Path
    custom_file: Path | None
    project_files: tuple[Path, ...]
    directories: tuple[ConfigDirectory, ...]
    claude_skills: tuple[ConfigDirectory, ...]


def locate(directory: Path, worktree: Path, flags: Flags, home: Path, global_dir: Path) -> Sources:
    upward = [] if flags.disable_project_config else ascend(directory, worktree)
    return Sources(
        directory=directory,
        global_files=tuple(global_dir / name for name in ("config.json", "opencode.json", "opencode.jsonc")),
        legacy_toml=global_dir / "config",
        custom_file=Path(flags.config).absolute() if flags.config else None,
        project_files=tuple(place / name for name in ("opencode.jsonc", "opencode.json") for place in reversed(upward)),
        directories=tuple(_directories(upward, flags, home, global_dir)),
        claude_skills=() if flags.disable_claude_code_skills else _claude_skills(upward, home),
    )


def ascend(directory: Path, worktree: Path) -> list[Path]:
    """`directory`, its parent and so on to `worktree`, or to the root when it does not stand below that."""
    places = [directory, *directory.parents]
    return places[: places.index(worktree) + 1] if worktree in places else places


def _directories(upward: list[Path], flags: Flags, home: Path, global_dir: Path) -> Iterable[ConfigDirectory]:
    own = Path(flags.config_dir).absolute() if flags.config_dir else None
    users = [global_dir, home / FOLDER, *([own] if own else [])]
    places = [global_dir, *(place / FOLDER for place in upward), *users[1:]]
    for place in dict.fromkeys(places):
        has_files = place.name == FOLDER or place == own
        files = (place / "opencode.jsonc", place / "opencode.json") if has_files else ()
        yield ConfigDirectory(place, files, of_project=place not in users)


def _claude_skills(upward: list[Path], home: Path) -> tuple[ConfigDirectory, ...]:
    places = dict.fromkeys([*upward, home])
    return tuple(ConfigDirectory(place / ".claude" / "skills", (), of_project=place != home) for place in places)
