"""Keys of OpenCode's configuration that are accepted and change nothing here. docs/compatibility.md shows them."""

from collections.abc import Iterator, Mapping
from typing import Any

UNUSED = {
    "attachment": "Images reach the model as they are sent.",
    "autoupdate": "The server does not update itself.",
    "compaction.preserve_recent_tokens": "A summary stands for all messages before it.",
    "compaction.tail_turns": "A summary stands for all messages before it.",
    "enterprise": "Links to shared sessions are this server's own.",
    "experimental.chatMaxRetries": "A failed request is sent at most 10 times, for at most 10 minutes.",
    "experimental.hook": "Plugins have hooks instead.",
    "experimental.openTelemetry": "`OTEL_EXPORTER_OTLP_ENDPOINT` switches traces on.",
    "logLevel": "The log has one level.",
    "provider.*.options.enterpriseUrl": "Addresses are set by `baseURL`.",
    "provider.*.options.headerTimeout": "`chunkTimeout`, or else `timeout`, holds for the headers too.",
    "reference": "References to other repositories are not read.",
    "references": "References to other repositories are not read.",
    "server": "Address, port and origins are settings of the server: see `opensession serve --help`.",
    "skills.urls": "Skills are read from folders alone.",
    "subagent_depth": "A subagent gives out tasks where its own rules speak of `task`.",
    "watcher": "Files are not watched.",
}
"""By key, `*` for any name, with the reason."""


def unused_keys(config: Mapping[str, Any]) -> dict[str, str]:
    """Those that a configuration sets, by their names in it, with the reasons."""
    return {".".join(found): reason for key, reason in UNUSED.items() for found in _matches(config, key.split("."))}


def _matches(config: Any, path: list[str]) -> Iterator[list[str]]:
    if not path:
        yield []
    elif isinstance(config, Mapping):
        for name in config if path[0] == "*" else config.keys() & {path[0]}:
            yield from ([name, *rest] for rest in _matches(config[name], path[1:]))
