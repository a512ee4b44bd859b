"""When a prompt is answered, and how that ended. Pure."""

from typing import Any

ANSWERED, FAILED, STOPPED = 0, 1, 130
_UNANSWERED = ("tool-calls", None)
"""The finish reasons of a turn's last step when a refused permission ended the turn."""


class PromptOutcome:
    """How the prompt that is stored as `message_id` ended, read from its session's events. Events before that message are
    ignored."""

    def __init__(self, session_id: str, message_id: str) -> None:
        self._session_id = session_id
        self._message_id = message_id
        self._is_stored = False
        self._finish: str | None = None
        self._error: str | None = None
        self.is_known = False

    def note(self, event: dict[str, Any]) -> None:
        kind, properties = event["type"], event["properties"]
        if kind == "session.deleted" and properties["info"]["id"] == self._session_id:
            self._error, self.is_known = self._error or "deleted", True
        if kind == "message.updated" and properties["info"]["sessionID"] == self._session_id:
            self._note_message(properties["info"])
        if properties.get("sessionID") != self._session_id or not self._is_stored:
            return
        if kind == "session.error":
            self._error = (properties.get("error") or {}).get("name", "")
        if kind == "session.idle":
            self.is_known = True

    def _note_message(self, info: dict[str, Any]) -> None:
        self._is_stored = self._is_stored or info["id"] == self._message_id
        if self._is_stored and info["role"] == "assistant":
            self._finish = info.get("finish")

    @property
    def exit_code(self) -> int:
        if self._error == "MessageAbortedError":
            return STOPPED
        return FAILED if self._error is not None or self._finish in _UNANSWERED else ANSWERED
