"""Output: texts with a style, each for one of the two streams, with colours on terminals. A session's events as they come, or all
of it later; for people, or as lines of JSON."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from app.api.client import Json, error_text, shortened

Target = Literal["answer", "note"]


@dataclass(frozen=True, slots=True)
class Output:
    """`style`: as rich has it. `target`: the answer goes to standard output, all else to standard error."""

    text: str
    style: str = ""
    target: Target = "note"
    end: str = "\n"


def answer(text: str, end: str = "\n") -> Output:
    return Output(text, target="answer", end=end)


ASKING = "bold yellow"
"""The style of what the user is asked, and of what they have said."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters are removed: a model, or a file that it reads, could otherwise move the cursor or rename the terminal."""


class Screen:
    def __init__(self) -> None:
        self._consoles: dict[Target, Console] = {"answer": _console(stderr=False), "note": _console(stderr=True)}

    @property
    def is_live(self) -> bool:
        """Whether the answer is shown while it is written."""
        return self._consoles["answer"].is_terminal

    def show(self, *outputs: Output) -> None:
        for output in outputs:
            console = self._consoles[output.target]
            text = _CONTROLS.sub("", output.text) if console.is_terminal else output.text
            if console.is_terminal:
                console.print(Text(text, style=output.style), end=output.end, soft_wrap=True)
            else:
                console.file.write(text + output.end)
            console.file.flush()


def _console(*, stderr: bool) -> Console:
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Shows progress (what, how much is done, of how much): a bar for each on a terminal, nothing elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total)

        yield show


MAX_LINES = 40
MAX_OUTPUT_LINES = 10

_TITLE_ARGUMENTS = ("filePath", "command", "pattern", "path", "url", "description", "query", "name")
"""The first of these arguments is the subject of a call without a title."""

_DIFF_STYLES = {"+": "green", "-": "red", "@": "dim cyan"}
"""By the first character of a line."""

_TYPES = {"step-start": "step_start", "step-finish": "step_finish", "text": "text", "tool": "tool_use"}
"""The types of the lines of `--format json`, by the parts' types."""


class Renderer:
    """For one session, in the order of its events. `live`: texts are shown while they stream; otherwise each when it is finished,
    so that text in a file or a pipe never has to be taken back."""

    def __init__(self, session_id: str, *, live: bool) -> None:
        self._session_id = session_id
        self._live = live
        self._prompts: set[str] = set()
        """Messages of users. Others are the model's, also those that began before the first event."""
        self._shown: dict[str, str] = {}
        """The text that was shown of each text part."""
        self._finished: set[str] = set()
        """Parts that were shown to their end."""
        self._unended: str | None = None
        """The part whose last line is not ended."""

    def show(self, event: Json) -> Iterator[Output]:
        properties = event["properties"]
        match event["type"]:
            case "message.updated":
                if properties["info"]["role"] == "user":
                    self._prompts.add(properties["info"]["id"])
            case "message.part.delta":
                yield from self._on_delta(properties)
            case "message.part.updated":
                yield from self._on_part(properties["part"])
            case "message.part.removed":
                if self._shown.pop(properties["partID"], None):
                    yield from self.end_line()
                    yield Output("(This was taken back: the request failed on the way.)", "dim")
            case "session.status":
                yield from self._on_status(properties)
            case "session.error":
                yield from self._on_error(properties)

    def end_line(self) -> Iterator[Output]:
        """To be called before other output."""
        if self._unended:
            self._unended = None
            yield answer("")

    def _on_delta(self, properties: Json) -> Iterator[Output]:
        is_text = properties["partType"] == "text" and properties["field"] == "text"
        if self._live and is_text and self._is_of_answer(properties):
            yield from self._append_text(properties["partID"], properties["delta"])

    def _is_of_answer(self, ref: Json) -> bool:
        return ref["sessionID"] == self._session_id and ref["messageID"] not in self._prompts

    def _append_text(self, part_id: str, text: str) -> Iterator[Output]:
        if text:
            if self._unended != part_id:
                yield from self.end_line()
            self._unended = part_id
            self._shown[part_id] = self._shown.get(part_id, "") + text
            yield answer(text, end="")

    def _on_part(self, part: Json) -> Iterator[Output]:
        if part["id"] in self._finished or not self._is_of_answer(part):
            return
        if part["type"] == "text":
            yield from self._on_text(part)
        elif part["type"] == "tool" and part["state"]["status"] in ("completed", "error"):
            self._finished.add(part["id"])
            yield from self.end_line()
            yield from tool_lines(part)

    def _on_text(self, part: Json) -> Iterator[Output]:
        is_finished = bool((part.get("time") or {}).get("end"))
        if not (self._live or is_finished):
            return
        shown, text = self._shown.get(part["id"], ""), part["text"]
        if text.startswith(shown):
            yield from self._append_text(part["id"], text[len(shown) :])
        elif is_finished and not shown.startswith(text):  # a plugin has replaced it
            yield from self.end_line()
            yield from self._append_text(part["id"], text)
        if is_finished:
            self._finished.add(part["id"])
            yield from self.end_line()

    def _on_status(self, properties: Json) -> Iterator[Output]:
        status = properties["status"]
        if properties["sessionID"] == self._session_id and status["type"] == "retry":
            yield from self.end_line()
            yield Output(f"The request is sent again (attempt {status['attempt']}): {status['message']}", "dim")

    def _on_error(self, properties: Json) -> Iterator[Output]:
        error = properties.get("error") or {}
        if properties.get("sessionID") == self._session_id and error.get("name") != "MessageAbortedError":
            yield from self.end_line()
            yield Output(f"Error: {error_text(error)}", "red")


# Tool calls.


def tool_lines(part: dict[str, Any]) -> Iterator[Output]:
    """`part` is a tool part whose state is completed or error."""
    state = part["state"]
    if state["status"] == "error":
        yield Output(f"✗ {_heading(part, state)}: {shortened(state['error'])}", "red")
        return
    yield Output(f"✓ {_heading(part, state)}", "cyan")
    lines = list(_details(part["tool"], state))
    yield from lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        yield Output(f"  … {len(lines) - MAX_LINES} more lines", "dim")


def _heading(part: dict[str, Any], state: dict[str, Any]) -> str:
    given = state.get("input") or {}
    title = given.get("command") if part["tool"] == "bash" else state.get("title")
    subject = title or next((given[name] for name in _TITLE_ARGUMENTS if given.get(name)), "")
    return f"{part['tool']} {shortened(str(subject))}".strip()


def _details(tool: str, state: dict[str, Any]) -> Iterator[Output]:
    metadata = state.get("metadata") or {}
    if isinstance(metadata.get("diff"), str):
        yield from _diff_lines(metadata["diff"])
    elif tool == "write" and not metadata.get("exists"):
        yield from (Output(f"  +{line}", "green") for line in str(state["input"].get("content", "")).splitlines())
    elif tool == "bash":
        lines = str(metadata.get("output") or "").splitlines()
        yield from (Output(f"  {line}", "dim") for line in lines[:MAX_OUTPUT_LINES])
        if len(lines) > MAX_OUTPUT_LINES:
            yield Output(f"  … {len(lines) - MAX_OUTPUT_LINES} more lines", "dim")


def _diff_lines(diff: str) -> Iterator[Output]:
    """The lines of a unified diff, without its headers: the heading names the file."""
    in_hunk = False
    for line in diff.splitlines():
        if line.startswith(("Index: ", "diff ", "=====")):
            in_hunk = False
        in_hunk = in_hunk or line.startswith("@@")
        if in_hunk:
            yield Output(f"  {line}", _DIFF_STYLES.get(line[:1], "dim"))


# A stored session.


def transcript(info: Json, messages: list[Json]) -> Iterator[Output]:
    """A stored session as it was shown while it ran, with its prompts."""
    yield Output(f"{info['title']} ({info['id']})", "cyan", target="answer")
    for message in messages:
        for part in message["parts"]:
            yield from _part_output(part, is_prompt=message["info"]["role"] == "user")
        if error := message["info"].get("error"):
            yield Output(f"Error: {error_text(error)}", "red", target="answer")


def _part_output(part: Json, *, is_prompt: bool) -> Iterator[Output]:
    if part["type"] == "text" and not part.get("synthetic") and part["text"].strip():
        yield answer("")
        yield Output(f"> {part['text']}", ASKING, "answer") if is_prompt else answer(part["text"])
    if part["type"] == "file" and is_prompt:
        yield Output(f"> ({part.get('filename') or part['mime']})", ASKING, "answer")
    if part["type"] == "tool" and part["state"]["status"] in ("completed", "error"):
        yield from (Output(line.text, line.style, "answer") for line in tool_lines(part))


# JSON.


class JsonEvents:
    """Events of a session as the lines of `--format json`, with the types and fields of `opencode run --format json`. Each part
    comes once, when it is finished."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._prompts: set[str] = set()
        self._sent: set[str] = set()

    def lines(self, event: Json, now_ms: int) -> list[str]:
        kind, properties = event["type"], event["properties"]
        if kind == "message.updated" and properties["info"]["role"] == "user":
            self._prompts.add(properties["info"]["id"])
        if kind == "session.error" and properties.get("sessionID") == self._session_id:
            return [self._line("error", now_ms, error=properties.get("error"))]
        if kind == "message.part.updated" and self._is_due(part := properties["part"]):
            self._sent.add(part["id"])
            return [self._line(_TYPES[part["type"]], now_ms, part=part)]
        return []

    def _is_due(self, part: Json) -> bool:
        is_new = part["sessionID"] == self._session_id and part["messageID"] not in self._prompts and part["id"] not in self._sent
        return is_new and part["type"] in _TYPES and _is_finished(part)

    def _line(self, kind: str, now_ms: int, **data: Any) -> str:
        return orjson.dumps({"type": kind, "timestamp": now_ms, "sessionID": self._session_id, **data}).decode()


def _is_finished(part: Json) -> bool:
    if part["type"] == "text":
        return bool((part.get("time") or {}).get("end"))
    return part["type"] != "tool" or part["state"]["status"] in ("completed", "error")
