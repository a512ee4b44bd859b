"""Events of a session as what people are shown of them. Pure: events in, texts out."""

from collections.abc import Callable, Iterator
from typing import Any

from app.cli.api_client import error_text
from app.cli.output import Output, answer
from app.cli.tool_lines import tool_lines

Json = dict[str, Any]


class Renderer:
    """Of one session, in the order of its events. `live`: texts are shown while they stream; otherwise each one when it is
    finished, so that what is written to a file or a pipe is never taken back."""

    def __init__(self, session_id: str, *, live: bool) -> None:
        self._session_id = session_id
        self._live = live
        self._prompts: set[str] = set()
        """Messages of users. Others are the model's, also those that began before the first event."""
        self._shown: dict[str, str] = {}
        """What was shown of each text part."""
        self._finished: set[str] = set()
        """Parts that were shown to their end."""
        self._unended: str | None = None
        """The part whose last line is not ended."""
        self._handlers: dict[str, Callable[[Json], Iterator[Output]]] = {
            "message.updated": self._on_message,
            "message.part.delta": self._on_delta,
            "message.part.updated": self._on_part,
            "message.part.removed": self._on_removed,
            "session.status": self._on_status,
            "session.error": self._on_error,
        }

    def show(self, event: Json) -> list[Output]:
        handler = self._handlers.get(event["type"])
        return list(handler(event["properties"])) if handler else []

    def end_line(self) -> list[Output]:
        """For whoever shows something else now."""
        return list(self._end_line())

    def _end_line(self) -> Iterator[Output]:
        if self._unended:
            self._unended = None
            yield answer("")

    def _on_message(self, properties: Json) -> Iterator[Output]:
        info = properties["info"]
        if info["role"] == "user":
            self._prompts.add(info["id"])
        yield from ()

    def _on_delta(self, gained: Json) -> Iterator[Output]:
        is_text = gained["partType"] == "text" and gained["field"] == "text"
        if self._live and is_text and self._is_of_answer(gained):
            yield from self._gain(gained["partID"], gained["delta"])

    def _is_of_answer(self, ref: Json) -> bool:
        return ref["sessionID"] == self._session_id and ref["messageID"] not in self._prompts

    def _gain(self, part_id: str, text: str) -> Iterator[Output]:
        if text:
            if self._unended != part_id:
                yield from self._end_line()
            self._unended = part_id
            self._shown[part_id] = self._shown.get(part_id, "") + text
            yield answer(text, end="")

    def _on_part(self, properties: Json) -> Iterator[Output]:
        part = properties["part"]
        if part["id"] in self._finished or not self._is_of_answer(part):
            return
        if part["type"] == "text":
            yield from self._on_text(part)
        elif part["type"] == "tool" and part["state"]["status"] in ("completed", "error"):
            self._finished.add(part["id"])
            yield from self._end_line()
            yield from tool_lines(part)

    def _on_text(self, part: Json) -> Iterator[Output]:
        is_finished = bool((part.get("time") or {}).get("end"))
        if not (self._live or is_finished):
            return
        shown, text = self._shown.get(part["id"], ""), part["text"]
        if text.startswith(shown):
            yield from self._gain(part["id"], text[len(shown) :])
        elif is_finished and not shown.startswith(text):  # a plugin has put another in its place
            yield from self._end_line()
            yield from self._gain(part["id"], text)
        if is_finished:
            self._finished.add(part["id"])
            yield from self._end_line()

    def _on_removed(self, ref: Json) -> Iterator[Output]:
        if self._shown.pop(ref["partID"], None):
            yield from self._end_line()
            yield Output("(This was taken back: the request failed on the way.)", "faint")

    def _on_status(self, properties: Json) -> Iterator[Output]:
        status = properties["status"]
        if properties["sessionID"] == self._session_id and status["type"] == "retry":
            yield from self._end_line()
            yield Output(f"The request is sent again (attempt {status['attempt']}): {status['message']}", "faint")

    def _on_error(self, properties: Json) -> Iterator[Output]:
        error = properties.get("error") or {}
        if properties.get("sessionID") == self._session_id and error.get("name") != "MessageAbortedError":
            yield from self._end_line()
            yield Output(f"Error: {error_text(error)}", "failed")
