"""Events of a session as the lines of `--format json`, with the types and fields that `opencode run --format json` has."""

from typing import Any

import orjson

Json = dict[str, Any]

_TYPES = {"step-start": "step_start", "step-finish": "step_finish", "text": "text", "tool": "tool_use"}


class JsonEvents:
    """Of one session. Each part comes once, when it is finished."""

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
