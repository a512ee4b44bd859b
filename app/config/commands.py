"""Commands: the built-in ones, then those of the config and its markdown files, which may replace them."""

import re
from functools import cache
from importlib import resources
from pathlib import Path

from app.schema.config import Config
from app.schema.model import Command

_NUMBERED = re.compile(r"\$\d+")


def commands(config: Config, worktree: Path) -> list[Command]:
    builtin = [
        Command(
            name="init",
            description="write or improve AGENTS.md, the guide to this project for coding agents",
            template=_template("init").replace("${path}", str(worktree)),
        ),
        Command(
            name="review",
            description="review a change [commit|branch|pull request]; without an argument, what is not committed",
            template=_template("review").replace("${path}", str(worktree)),
            subtask=True,
        ),
    ]
    own = [Command(name=name, **entry.model_dump()) for name, entry in config.command.items()]
    found = {command.name: command for command in [*builtin, *own]}
    return [command.model_copy(update={"hints": hints(command.template)}) for command in found.values()]


def hints(template: str) -> list[str]:
    """The placeholders that a template has: `$1`, `$2` … by number, then `$ARGUMENTS`."""
    numbered = sorted(set(_NUMBERED.findall(template)), key=lambda hint: int(hint[1:]))
    return numbered + ["$ARGUMENTS"] * ("$ARGUMENTS" in template)


@cache
def _template(name: str) -> str:
    return resources.files(__package__).joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")
