"""The editor's updates of a session, made of its events or its stored messages, each once. Pure."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from acp.helpers import text_block, update_plan
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    PlanEntry,
    PlanEntryPriority,
    PlanEntryStatus,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UserMessageChunk,
)

from app.cli.acp.prompt_parts import block_of
from app.cli.acp.tool_view import progressed, started

Json = dict[str, Any]
SessionUpdate = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | SessionInfoUpdate
)

_PLAN_STATUSES: dict[str, PlanEntryStatus] = {"in_progress": "in_progress", "completed": "completed", "cancelled": "completed"}
_PRIORITIES: dict[str, PlanEntryPriority] = {"high": "high", "low": "low"}
_TEXTS = ("text", "reasoning")


class EditorTranscript:
    """The updates of one session, and of those calls of its subagents that the user was asked about."""

    def __init__(self, info: Json) -> None:
        self._directory = info["directory"]
        self._title = info["title"]
        self._users: set[str] = set()
        """Messages of users."""
        self._own: set[str] = set()
        """Messages that this editor has sent and shows already."""
        self._shown: dict[str, str] = {}
        """The text that was shown of each unfinished text."""
        self._finished: set[str] = set()
        self._behind: set[str] = set()
        """Texts that were running when they were read: which pieces they have is unknown, so their rest comes at their end."""
        self._calls: dict[tuple[str, str], Json] = {}
        """The newest part of each running call, by its message and call."""
        self._begun: set[str] = set()

    def expect(self, message_id: str) -> None:
        """A prompt of this editor."""
        self._own.add(message_id)

    def is_anothers_prompt(self, info: Json) -> bool:
        """Whether the prompt is new, and another client's."""
        return info["role"] == "user" and info["id"] not in self._users and info["id"] not in self._own

    def call(self, message_id: str, call_id: str) -> Json | None:
        """The part of a running call."""
        return self._calls.get((message_id, call_id))

    def follow_call(self, part: Json) -> None:
        """Follows a subagent's call to its end, because the editor was asked about it."""
        self._begun.add(part["id"])

    # Events.

    def updates(self, event: Json) -> list[SessionUpdate]:
        properties = event["properties"]
        match event["type"]:
            case "message.updated":
                self._note_author(properties["info"])
            case "message.part.updated":
                return list(self._on_part(properties["part"]))
            case "message.part.delta":
                return list(self._on_delta(properties))
            case "todo.updated":
                return [plan(properties["todos"])]
            case "session.updated":
                return list(self._on_session(properties["info"]))
        return []

    def of_subagent(self, event: Json) -> list[SessionUpdate]:
        part = event["properties"].get("part") or {}
        if event["type"] != "message.part.updated" or part["type"] != "tool":
            return []
        if part["id"] in self._begun:
            return list(self._on_tool(part))
        self._calls[part["messageID"], part["callID"]] = part
        return []

    def replay(self, messages: Iterable[Json]) -> list[SessionUpdate]:
        """The updates for stored messages, without what was shown already."""
        updates: list[SessionUpdate] = []
        for message in messages:
            self._note_author(message["info"])
            for part in message["parts"]:
                updates += self._on_part(part)
                if part["type"] in _TEXTS and part["id"] not in self._finished:
                    self._behind.add(part["id"])
        return updates

    def _note_author(self, info: Json) -> None:
        if info["role"] == "user":
            self._users.add(info["id"])

    def _on_session(self, info: Json) -> Iterator[SessionUpdate]:
        if info["title"] != self._title:
            self._title = info["title"]
            updated = datetime.fromtimestamp(info["time"]["updated"] / 1000, UTC)
            yield SessionInfoUpdate(session_update="session_info_update", title=self._title, updated_at=updated.isoformat())

    # Parts.

    def _on_part(self, part: Json) -> Iterator[SessionUpdate]:
        if part["id"] in self._finished:
            return
        if part["messageID"] in self._users:
            self._finished.add(part["id"])
            if part["messageID"] not in self._own and (block := block_of(part)):
                yield UserMessageChunk(session_update="user_message_chunk", content=block, message_id=part["messageID"])
        elif part["type"] in _TEXTS:
            yield from self._on_text(part)
        elif part["type"] == "tool":
            yield from self._on_tool(part)

    def _on_delta(self, gained: Json) -> Iterator[SessionUpdate]:
        part_id, is_text = gained["partID"], gained["partType"] in _TEXTS and gained["field"] == "text"
        if is_text and part_id not in self._behind and part_id not in self._finished:
            yield from self._gain(part_id, gained["messageID"], gained["partType"], gained["delta"])

    def _on_text(self, part: Json) -> Iterator[SessionUpdate]:
        """A text that a plugin has replaced stays as it was shown: editors cannot take it back."""
        shown, text = self._shown.get(part["id"], ""), part["text"]
        is_finished = bool((part.get("time") or {}).get("end"))
        if text.startswith(shown) and not part.get("ignored"):
            yield from self._gain(part["id"], part["messageID"], part["type"], text[len(shown) :])
        if is_finished:
            self._finished.add(part["id"])
            self._shown.pop(part["id"], None)

    def _gain(self, part_id: str, message_id: str, kind: str, text: str) -> Iterator[SessionUpdate]:
        if not text:
            return
        self._shown[part_id] = self._shown.get(part_id, "") + text
        if kind == "reasoning":
            yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text), message_id=message_id)
        else:
            yield AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text), message_id=message_id)

    def _on_tool(self, part: Json) -> Iterator[SessionUpdate]:
        if part["state"]["status"] in ("completed", "error"):
            self._finished.add(part["id"])
            self._calls.pop((part["messageID"], part["callID"]), None)
        else:
            self._calls[part["messageID"], part["callID"]] = part
        if part["id"] in self._begun:
            yield progressed(part, self._directory)
        else:
            self._begun.add(part["id"])
            yield started(part, self._directory)


def plan(todos: Iterable[Json]) -> AgentPlanUpdate:
    return update_plan(
        PlanEntry(
            content=todo["content"],
            priority=_PRIORITIES.get(todo["priority"], "medium"),
            status=_PLAN_STATUSES.get(todo["status"], "pending"),
        )
        for todo in todos
    )
