"""Merges layers: objects recursively, arrays replaced, except `plugin` and `instructions`, which are concatenated."""

from collections.abc import Mapping
from typing import Any

_ADD_UP = ("plugin", "instructions")


def deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A new object; a key that both have keeps its place in `base`, which is what orders permission rules."""
    merged = dict(base)
    for key, value in over.items():
        present = merged.get(key)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            value = deep_merge(present, value)
        merged[key] = value
    return merged


def difference(update: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """What `update` says differently than `present`."""
    changes: dict[str, Any] = {}
    for key, value in update.items():
        before = present.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = difference(value, before)
            if not value:
                continue
        if key not in present or value != before:
            changes[key] = value
    return changes


def merge_layer(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    merged = deep_merge(_without_retyped_mcp(base, layer), layer)
    for key in _ADD_UP:
        if key in base and key in layer:
            merged[key] = list(dict.fromkeys([*base[key], *layer[key]]))
    return merged


def _without_retyped_mcp(base: Mapping[str, Any], layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drops the old entry of an MCP server that changes its type: the fields of one type are errors in the other."""
    after = layer.get("mcp", {})

    def stays(name: str, entry: Mapping[str, Any]) -> bool:
        types = {entry.get("type"), after.get(name, {}).get("type")} - {None}
        return len(types) < 2

    if not after or "mcp" not in base:
        return base
    return {**base, "mcp": {name: entry for name, entry in base["mcp"].items() if stays(name, entry)}}


def servers_apart(operators: Mapping[str, Any], projects: Mapping[str, Any]) -> dict[str, Any]:
    """The MCP servers of the operator's layers and of the project's. None is made of parts of both: a header or a variable of the
    operator's would go to an address or a program of the project's. But each may switch the other's on and off."""

    def of(name: str) -> dict[str, Any]:
        operator, project = operators.get(name, {}), projects.get(name, {})
        return deep_merge(operator, project) if "type" not in project else deep_merge(project, _switch(operator))

    return {name: of(name) for name in {**operators, **projects}}


def programs_apart(operators: Any, projects: Any) -> Any:
    """The same of language servers and formatters. Either may switch all of them off."""
    if not isinstance(operators, Mapping) or not isinstance(projects, Mapping):
        return False if False in (operators, projects) else operators or projects

    def of(name: str) -> Mapping[str, Any]:
        operator, project = operators.get(name, {}), projects.get(name, {})
        if "command" in project or not operator:
            return dict(project)
        return {**operator, **{key: value for key, value in project.items() if key == "disabled"}}

    return {name: of(name) for name in {**operators, **projects}}


def _switch(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return {} if "type" in entry else entry
