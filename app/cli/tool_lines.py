"""A finished tool call as lines: what it was, and what it changed or printed."""

from collections.abc import Iterator
from typing import Any

from app.cli.output import Output, Style

MOST_LINES = 40
MOST_OUTPUT_LINES = 10
MOST_TITLE = 200

_SUBJECTS = ("filePath", "command", "pattern", "path", "url", "description", "query", "name")
"""The first of a call's arguments with one of these names says what it was about, where it has no title."""


def tool_lines(part: dict[str, Any]) -> Iterator[Output]:
    """`part` is a tool part whose state is completed or error."""
    state = part["state"]
    if state["status"] == "error":
        yield Output(f"✗ {_heading(part, state)}: {_one_line(state['error'])}", "failed")
        return
    yield Output(f"✓ {_heading(part, state)}", "done")
    yield from _shortened(list(_details(part["tool"], state)))


def _heading(part: dict[str, Any], state: dict[str, Any]) -> str:
    given = state.get("input") or {}
    title = given.get("command") if part["tool"] == "bash" else state.get("title")
    subject = title or next((given[name] for name in _SUBJECTS if given.get(name)), "")
    return f"{part['tool']} {_one_line(str(subject))}".strip()


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_TITLE else f"{line[:MOST_TITLE]}…"


def _details(tool: str, state: dict[str, Any]) -> Iterator[Output]:
    metadata = state.get("metadata") or {}
    if isinstance(metadata.get("diff"), str):
        yield from _diff_lines(metadata["diff"])
    elif tool == "write" and not metadata.get("exists"):
        yield from (Output(f"  +{line}", "added") for line in str(state["input"].get("content", "")).splitlines())
    elif tool == "bash":
        lines = str(metadata.get("output") or "").splitlines()
        yield from (Output(f"  {line}", "faint") for line in lines[:MOST_OUTPUT_LINES])
        if len(lines) > MOST_OUTPUT_LINES:
            yield Output(f"  … {len(lines) - MOST_OUTPUT_LINES} more lines", "faint")


def _diff_lines(diff: str) -> Iterator[Output]:
    """Of a unified diff, without its headers: the heading names the file."""
    in_hunk = False
    for line in diff.splitlines():
        if line.startswith(("Index: ", "diff ", "=====")):
            in_hunk = False
        in_hunk = in_hunk or line.startswith("@@")
        if in_hunk:
            yield Output(f"  {line}", _diff_style(line))


def _diff_style(line: str) -> Style:
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "faint")  # type: ignore[return-value]


def _shortened(lines: list[Output]) -> Iterator[Output]:
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield Output(f"  … {len(lines) - MOST_LINES} more lines", "faint")
