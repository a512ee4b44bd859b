"""The meaning of some keys of a configuration: permission rules, commands, plugins and tools; and the keys that are accepted and
ignored."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from app.schema.config import Config
from app.schema.model import Command
from app.schema.permission import Action, Rule, Ruleset
from app.util import environment


def ruleset(permission: Mapping[str, Any] | Action, home: Path | None = None) -> Ruleset:
    """The key `permission` as rules, in the order written: one action for all permissions, or by permission an action or a
    map from pattern to action. A pattern may begin with `~` or `$HOME`."""
    if isinstance(permission, str):
        return [Rule(permission="*", pattern="*", action=permission)]
    home_dir = str(home or environment.home())
    return [rule for key, value in permission.items() for rule in _rules(key, value, home_dir)]


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


_NUMBERED = re.compile(r"\$\d{1,9}(?!\d)")


_BUILTIN: Mapping[str, Mapping[str, Any]] = {
    "init": {"description": "write or improve AGENTS.md, the guide to this project for coding agents"},
    "review": {
        "description": "review a change [commit|branch|pull request]; without an argument, what is not committed",
        "subtask": True,
    },
}


def commands(config: Config, worktree: Path) -> list[Command]:
    builtin = {name: {**facts, "template": _template(name).replace("${path}", str(worktree))} for name, facts in _BUILTIN.items()}
    own = {name: entry.model_dump() for name, entry in config.command.items()}
    found = [Command(name=name, **facts) for name, facts in {**builtin, **own}.items()]
    return [command.model_copy(update={"hints": hints(command.template)}) for command in found]


def hints(template: str) -> list[str]:
    """The placeholders in a template: `$1`, `$2` … by number, then `$ARGUMENTS`."""
    numbered = sorted(set(_NUMBERED.findall(template)), key=lambda hint: int(hint[1:]))
    return [*numbered, "$ARGUMENTS"] if "$ARGUMENTS" in template else numbered


@cache
def _template(name: str) -> str:
    return resources.files(__package__).joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")


PLUGIN_SUFFIXES = {".py", ".js", ".ts"}


@dataclass(frozen=True)
class Extension:
    """A plugin or a custom tool. `source`: a `file://` address, or the name of a package, module or entry point. `of_project`: a
    file of the project names it, which may come from a stranger."""

    source: str
    of_project: bool = False

    @property
    def path(self) -> Path | None:
        return Path(unquote(urlsplit(self.source).path)) if self.source.startswith("file://") else None

    @property
    def name(self) -> str:
        """`file:///x/.opencode/plugin/a.ts` → `a`; `@scope/b@1.2` → `@scope/b`."""
        if self.source.startswith("file://"):
            return unquote(urlsplit(self.source).path).rsplit("/", 1)[-1].rsplit(".", 1)[0]
        at = self.source.rfind("@")
        return self.source[:at] if at > 0 else self.source


def distinct(extensions: Iterable[Extension]) -> list[Extension]:
    """One per name, regardless of version or file; the last one wins and keeps its position."""
    by_name: dict[str, Extension] = {}
    for extension in extensions:
        by_name.pop(extension.name, None)
        by_name[extension.name] = extension
    return list(by_name.values())


UNUSED = {
    "attachment": "Images reach the model as they are sent.",
    "autoupdate": "The server does not update itself.",
    "compaction.preserve_recent_tokens": "A summary stands for all messages before it.",
    "compaction.tail_turns": "A summary stands for all messages before it.",
    "enterprise": "Links to shared sessions always lead to this server.",
    "experimental.chatMaxRetries": "A failed request is sent at most 10 times, for at most 10 minutes.",
    "experimental.hook": "Plugins have hooks instead.",
    "experimental.openTelemetry": "`OTEL_EXPORTER_OTLP_ENDPOINT` switches traces on.",
    "logLevel": "OPENSESSION_LOG_LEVEL sets the level of the log.",
    "provider.*.options.enterpriseUrl": "Addresses are set by `baseURL`.",
    "provider.*.options.headerTimeout": "`chunkTimeout`, or else `timeout`, holds for the headers too.",
    "reference": "References to other repositories are not read.",
    "references": "References to other repositories are not read.",
    "server": "Address, port and origins are settings of the server: see `opensession serve --help`.",
    "skills.urls": "Skills are read from folders alone.",
    "subagent_depth": "A subagent may start subagents only if its rules name `task`.",
    "watcher": "Files are not watched.",
}
"""Why a key is ignored, by its path; `*` stands for any name."""


def unused_keys(config: Mapping[str, Any]) -> dict[str, str]:
    """The ignored keys that a configuration sets, with the reasons; names stand in place of `*`."""
    return {".".join(found): reason for key, reason in UNUSED.items() for found in _matches(config, key.split("."))}


def _matches(config: Any, path: list[str]) -> Iterator[list[str]]:
    if not path:
        yield []
    elif isinstance(config, Mapping):
        for name in config if path[0] == "*" else config.keys() & {path[0]}:
            yield from ([name, *rest] for rest in _matches(config[name], path[1:]))
