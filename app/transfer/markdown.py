"""Sessions as Markdown, for people. Pure. Texts, calls and files are in fences, so that no content ends its block."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import orjson

from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import (
    AgentPart,
    CompactionPart,
    Completed,
    Failed,
    FilePart,
    ModelRef,
    Part,
    PatchPart,
    ReasoningPart,
    RetryPart,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from app.schema.session import FileDiff, Session
from app.tools.diff import compare

_TICKS = re.compile("`+")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|&])")


def heading(session: Session) -> str:
    return f"# {_inline(session.title)}\n\n`{session.id}` · {_time(session.time.created)}\n\n"


def message(each: MessageWithParts) -> str:
    info = each.info
    model: AssistantMessage | ModelRef = info if isinstance(info, AssistantMessage) else info.model
    title = [info.role.capitalize(), info.agent, f"{model.provider_id}/{model.model_id}", _time(info.time.created)]
    blocks = [f"## {' · '.join(map(_inline, title))}", *(block for part in each.parts for block in _part(part))]
    if isinstance(info, AssistantMessage) and info.error is not None:
        blocks.append(f"**{info.error.name}**\n\n{fenced(getattr(info.error.data, 'message', ''))}")
    return "\n\n".join(blocks) + "\n\n"


def diffs(changed: Sequence[FileDiff]) -> str:
    """Each changed file, as a unified diff."""
    if not changed:
        return ""
    files = []
    for diff in changed:
        text = fenced(compare(diff.file, diff.before, diff.after).text, "diff")
        files.append(f"### {_inline(diff.file)} (+{diff.additions} −{diff.deletions})\n\n{text}")
    return "\n\n".join(["## Changed files", *files]) + "\n"


def _part(part: Part) -> Iterator[str]:
    """Step boundaries and snapshots say nothing to a reader."""
    match part:
        case TextPart(text=text) if not part.synthetic and not part.ignored and text:
            yield fenced(text, "markdown")
        case ReasoningPart(text=text) if text:
            yield f"<details>\n<summary>Reasoning</summary>\n\n{fenced(text)}\n\n</details>"
        case ToolPart():
            yield from _call(part)
        case FilePart():
            yield _file(part)
        case PatchPart(files=files):
            yield "Changed: " + ", ".join(map(_inline, files))
        case SubtaskPart():
            yield f"Task for {_inline(part.agent)}: {_inline(part.description)}\n\n{fenced(part.prompt)}"
        case AgentPart(name=name):
            yield f"Agent: {_inline(name)}"
        case CompactionPart():
            yield "*The conversation before this was compacted.*"
        case RetryPart(attempt=attempt):
            yield f"*Retried, attempt {attempt}: {_inline(part.error.data.message)}*"


def _call(part: ToolPart) -> Iterator[str]:
    state = part.state
    title = f": {_inline(state.title)}" if isinstance(state, Completed) and state.title else ""
    yield f"**Tool {_inline(part.tool)}**{title} ({state.status})"
    yield "Input:\n\n" + fenced(orjson.dumps(state.input, option=orjson.OPT_INDENT_2).decode(), "json")
    if isinstance(state, Completed):
        yield "Output:\n\n" + fenced(state.output)
        yield from map(_file, state.attachments or [])
    elif isinstance(state, Failed):
        yield "Error:\n\n" + fenced(state.error)


def _file(part: FilePart) -> str:
    """Without the content of a file that is part of the message."""
    where = "" if part.url.startswith("data:") else f": {_inline(part.url)}"
    return f"File {_inline(part.filename or 'without a name')} ({_inline(part.mime)}){where}"


def fenced(text: str, language: str = "text") -> str:
    """The text in a fence that is longer than any fence in it."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _inline(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _time(epoch_ms: float) -> str:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return str(epoch_ms)
