"""The permission form of the config file as ordered rules; of rules that match, the last decides."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.schema.permission import Action, Rule, Ruleset
from app.util import environment


def ruleset(permission: Mapping[str, Any] | Action, home: Path | None = None) -> Ruleset:
    """An action for everything, or an action or patterns a permission, in the order written. Patterns in the home directory
    may begin with `~` or `$HOME`."""
    if isinstance(permission, str):
        return [Rule(permission="*", pattern="*", action=permission)]
    place = str(home or environment.home())
    return [rule for key, value in permission.items() for rule in _rules(key, value, place)]


def _rules(permission: str, value: Mapping[str, Action] | Action, home: str) -> Ruleset:
    if isinstance(value, str):
        return [Rule(permission=permission, pattern="*", action=value)]
    return [Rule(permission=permission, pattern=expand_home(pattern, home), action=action) for pattern, action in value.items()]


def expand_home(pattern: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return home + pattern[1:]
    if pattern.startswith("$HOME"):
        return home + pattern[len("$HOME") :]
    return pattern
