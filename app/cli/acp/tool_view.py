"""A tool call as an editor shows it: its kind, the files it is about, diffs, output. Pure."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acp import schema
from acp.helpers import ToolCallContentVariant, image_block, text_block, tool_content, tool_diff_content

from app.api.client import Json
from app.cli.acp.prompt_parts import data_of

_TOOLS: dict[schema.ToolKind, str] = {
    "read": "read skill",
    "search": "list glob grep lsp codesearch",
    "edit": "edit multiedit write apply_patch",
    "execute": "bash",
    "fetch": "webfetch websearch",
    "think": "task todowrite todoread",
}
_KINDS = {tool: kind for kind, tools in _TOOLS.items() for tool in tools.split()}
_STATUSES: dict[str, schema.ToolCallStatus] = {
    "pending": "pending",
    "running": "in_progress",
    "completed": "completed",
    "error": "failed",
}
_PATHS = ("filePath", "path")
_SUBJECTS = ("command", "filePath", "pattern", "path", "url", "description", "query", "name")
_SHOWN_ELSEWHERE = {"todowrite", "todoread"}
"""The plan shows these calls' content."""


def call_fields(part: Json, directory: str) -> Json:
    state, kind = part["state"], _KINDS.get(part["tool"], "other")
    return {
        "tool_call_id": part["id"],
        "title": title_of(part, directory),
        "kind": kind,
        "status": _STATUSES[state["status"]],
        "locations": list(_locations(part, directory)) or None,
        "content": list(_content_of(part, directory)) or None,
        "raw_input": state.get("input") or None,
        "raw_output": _raw_output(state),
    }


def title_of(part: Json, directory: str) -> str:
    """The subject of the call, in one line."""
    given = part["state"].get("input") or {}
    subject = next((str(given[name]) for name in _SUBJECTS if given.get(name)), part["state"].get("title") or "")
    short = subject.removeprefix(f"{directory}/")
    shown = short if part["tool"] == "bash" and short else f"{part['tool']} {short}"
    return " ".join(shown.split())[:200]


def _raw_output(state: Json) -> Json | None:
    if state["status"] == "completed":
        return {"output": state["output"]}
    return {"error": state["error"]} if state["status"] == "error" else None


def _locations(part: Json, directory: str) -> Iterator[schema.ToolCallLocation]:
    given, metadata = part["state"].get("input") or {}, part["state"].get("metadata") or {}
    for changed, _ in _patched(part["tool"], metadata):
        yield schema.ToolCallLocation(path=changed)
    path = next((given[name] for name in _PATHS if isinstance(given.get(name), str)), None)
    if path:
        line = given["offset"] + 1 if isinstance(given.get("offset"), int) else None
        yield schema.ToolCallLocation(path=str(Path(directory, path)), line=line)


def _content_of(part: Json, directory: str) -> Iterator[ToolCallContentVariant]:
    """What there is to see of the call now."""
    state = part["state"]
    if state["status"] == "error":
        yield tool_content(text_block(state["error"]))
        return
    diffs = list(_diffs(part["tool"], state, directory))
    yield from diffs
    if part["tool"] == "bash":
        if printed := (state.get("metadata") or {}).get("output") or state.get("output"):
            yield tool_content(text_block(fenced(str(printed))))
    elif state["status"] == "completed" and not diffs and part["tool"] not in _SHOWN_ELSEWHERE:
        yield tool_content(text_block(state["output"]))
    for file in state.get("attachments") or []:
        if file["mime"].startswith("image/") and (data := data_of(file["url"])):
            yield tool_content(image_block(data, file["mime"]))


def _diffs(tool: str, state: Json, directory: str) -> Iterator[schema.FileEditToolCallContent]:
    given, metadata = state.get("input") or {}, state.get("metadata") or {}
    change, path = metadata.get("filediff"), given.get("filePath")
    changes = [(change.get("file"), change)] if isinstance(change, dict) else []
    stored = [diff for changed, texts in (*changes, *_patched(tool, metadata)) for diff in _diff(changed, texts)]
    yield from stored
    if stored or not isinstance(path, str):
        return
    whole = str(Path(directory, path))
    if tool == "write" and isinstance(given.get("content"), str):
        yield tool_diff_content(whole, given["content"])
    if tool == "edit" and isinstance(given.get("newString"), str):
        yield tool_diff_content(whole, given["newString"], given.get("oldString") or None)


def _diff(path: Any, change: Json) -> Iterator[schema.FileEditToolCallContent]:
    """None without both texts: a session of OpenCode 1.18 has a patch instead, a plugin what it likes."""
    before, after = change.get("before"), change.get("after")
    if isinstance(path, str) and isinstance(before, str) and isinstance(after, str):
        yield tool_diff_content(path, after, before or None)


def _patched(tool: str, metadata: Json) -> Iterator[tuple[str, Json]]:
    """The files of a patch, by their paths."""
    files = metadata.get("files") if tool == "apply_patch" else None
    for file in files if isinstance(files, list) else ():
        path = isinstance(file, dict) and (file.get("movePath") or file.get("filePath"))
        if isinstance(path, str):
            yield path, file


def fenced(text: str) -> str:
    """The text as a block of Markdown that nothing in the text ends."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}console\n{text.rstrip()}\n{fence}"
