"""Translates a session's events and stored messages to updates for the editor, each sent once; and follows a prompt's turn
to its end: finish reason, error, tokens. No I/O."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from acp import RequestError, schema
from acp.helpers import SessionUpdate, text_block, update_plan

from app.api.client import Json, error_text
from app.cli.acp.editor_server import INTERNAL
from app.cli.acp.prompt_parts import block_of
from app.cli.acp.tool_view import call_fields

_PLAN_STATUSES: dict[str, schema.PlanEntryStatus] = {
    "in_progress": "in_progress",
    "completed": "completed",
    "cancelled": "completed",
}
_PRIORITIES: dict[str, schema.PlanEntryPriority] = {"high": "high", "low": "low"}
_TEXTS = ("text", "reasoning")


class EditorTranscript:
    """The updates of one session, and of those calls of its subagents that the user was asked about."""

    def __init__(self, info: Json) -> None:
        self._directory = info["directory"]
        self._title = info["title"]
        self._user_messages: set[str] = set()
        self.own_prompts: set[str] = set()
        """Messages that this editor has sent and shows already."""
        self._sent_text: dict[str, str] = {}
        """By unfinished text part, the text that the editor was sent."""
        self._finished_parts: set[str] = set()
        self._waiting_for_end: set[str] = set()
        """Text parts that were still streaming when the stored messages were read. It is unknown which deltas the stored text
        has, so deltas are ignored; the rest is sent when an event brings the whole text, at the latest at its end."""
        self._running_calls: dict[tuple[str, str], Json] = {}
        """The newest part of each running call, by its message and call."""
        self._announced_calls: set[str] = set()
        """Calls that the editor knows, by a start or a permission request: their later updates are progress."""

    def is_anothers_prompt(self, info: Json) -> bool:
        """Whether the prompt is new, and another client's."""
        return info["role"] == "user" and info["id"] not in self._user_messages and info["id"] not in self.own_prompts

    def running_call(self, message_id: str, call_id: str) -> Json | None:
        """The newest part of a running call; None if it is not known."""
        return self._running_calls.get((message_id, call_id))

    def follow_call(self, part: Json) -> None:
        """Follows a subagent's call to its end, because the editor was asked about it."""
        self._announced_calls.add(part["id"])

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

    def subagent_updates(self, event: Json) -> list[SessionUpdate]:
        """Only calls that `follow_call` was given are shown; others are remembered for `running_call`."""
        part = event["properties"].get("part") or {}
        if event["type"] != "message.part.updated" or part["type"] != "tool":
            return []
        if part["id"] in self._announced_calls:
            return list(self._on_tool(part))
        self._note_call(part)
        return []

    def replay(self, messages: Iterable[Json]) -> list[SessionUpdate]:
        """The updates for stored messages, without what was shown already."""
        updates: list[SessionUpdate] = []
        for message in messages:
            self._note_author(message["info"])
            for part in message["parts"]:
                updates += self._on_part(part)
                if part["type"] in _TEXTS and part["id"] not in self._finished_parts:
                    self._waiting_for_end.add(part["id"])
        return updates

    def _note_author(self, info: Json) -> None:
        if info["role"] == "user":
            self._user_messages.add(info["id"])

    def _on_session(self, info: Json) -> Iterator[SessionUpdate]:
        if info["title"] != self._title:
            self._title = info["title"]
            updated = datetime.fromtimestamp(info["time"]["updated"] / 1000, UTC)
            yield schema.SessionInfoUpdate(
                session_update="session_info_update", title=self._title, updated_at=updated.isoformat()
            )

    # Parts.

    def _on_part(self, part: Json) -> Iterator[SessionUpdate]:
        if part["id"] in self._finished_parts:
            return
        if part["messageID"] in self._user_messages:
            self._finished_parts.add(part["id"])
            if part["messageID"] not in self.own_prompts and (block := block_of(part)):
                yield schema.UserMessageChunk(session_update="user_message_chunk", content=block, message_id=part["messageID"])
        elif part["type"] in _TEXTS:
            yield from self._on_text(part)
        elif part["type"] == "tool":
            yield from self._on_tool(part)

    def _on_delta(self, properties: Json) -> Iterator[SessionUpdate]:
        part_id, is_text = properties["partID"], properties["partType"] in _TEXTS and properties["field"] == "text"
        if is_text and part_id not in self._waiting_for_end and part_id not in self._finished_parts:
            yield from self._append_text(part_id, properties["messageID"], properties["partType"], properties["delta"])

    def _on_text(self, part: Json) -> Iterator[SessionUpdate]:
        """A text that a plugin has replaced stays as it was shown: editors cannot take it back."""
        shown, text = self._sent_text.get(part["id"], ""), part["text"]
        is_finished = bool((part.get("time") or {}).get("end"))
        if text.startswith(shown) and not part.get("ignored"):
            yield from self._append_text(part["id"], part["messageID"], part["type"], text[len(shown) :])
        if is_finished:
            self._finished_parts.add(part["id"])
            self._sent_text.pop(part["id"], None)

    def _append_text(self, part_id: str, message_id: str, kind: str, text: str) -> Iterator[SessionUpdate]:
        if not text:
            return
        self._sent_text[part_id] = self._sent_text.get(part_id, "") + text
        if kind == "reasoning":
            yield schema.AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text), message_id=message_id)
        else:
            yield schema.AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text), message_id=message_id)

    def _on_tool(self, part: Json) -> Iterator[SessionUpdate]:
        if self._note_call(part):
            self._finished_parts.add(part["id"])
        fields = call_fields(part, self._directory)
        if part["id"] in self._announced_calls:
            yield schema.ToolCallProgress(session_update="tool_call_update", **fields)
        else:
            self._announced_calls.add(part["id"])
            yield schema.ToolCallStart(session_update="tool_call", **fields)

    def _note_call(self, part: Json) -> bool:
        """Whether the call has ended. It is remembered until then."""
        has_ended = part["state"]["status"] in ("completed", "error")
        if has_ended:
            self._running_calls.pop((part["messageID"], part["callID"]), None)
        else:
            self._running_calls[part["messageID"], part["callID"]] = part
        return has_ended


def plan(todos: Iterable[Json]) -> schema.AgentPlanUpdate:
    return update_plan(
        schema.PlanEntry(
            content=todo["content"],
            priority=_PRIORITIES.get(todo["priority"], "medium"),
            status=_PLAN_STATUSES.get(todo["status"], "pending"),
        )
        for todo in todos
    )


# The end of a prompt's turn.

_STOP_REASONS: dict[str | None, schema.StopReason] = {"length": "max_tokens", "content-filter": "refusal"}
"""By the last answer's finish reason; every other one is the end of a turn."""


@dataclass
class EditorTurn:
    """`message_id`: the prompt's. `is_stored`: the prompt's message has been seen, or the turn has none: the next
    `session.idle` ends it."""

    message_id: str
    is_stored: bool = False
    is_cancelled: bool = False
    finish: str | None = None
    error: Json | None = None
    step_tokens: list[Json] = field(default_factory=list)
    """The tokens of the turn's steps."""
    ended: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def on_event(self, event: Json) -> None:
        properties = event["properties"]
        if event["type"] == "message.updated":
            info = properties["info"]
            self.is_stored = self.is_stored or info["id"] == self.message_id
            if self.is_stored and info["role"] == "assistant":
                self.finish, self.error = info.get("finish"), info.get("error")
        if not self.is_stored:
            return
        if event["type"] == "message.part.updated" and properties["part"]["type"] == "step-finish":
            self.step_tokens.append(properties["part"]["tokens"])
        if event["type"] == "session.idle":
            self.end()

    def end(self, failure: Exception | None = None) -> None:
        if self.ended.done():
            return
        if failure is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(failure)

    def stop_reason(self) -> schema.StopReason:
        """Raises RequestError if the turn failed."""
        error = (self.error or {}).get("name")
        if self.is_cancelled or error == "MessageAbortedError":
            return "cancelled"
        if error == "MessageOutputLengthError":
            return "max_tokens"
        if self.error:
            raise RequestError(INTERNAL, error_text(self.error), {"name": error})
        return _STOP_REASONS.get(self.finish, "end_turn")

    def usage(self) -> schema.Usage | None:
        """The usage of all steps. The total is the sum of the kinds, as the protocol has it, so output is without reasoning. A
        step's output includes it."""
        if not self.step_tokens:
            return None
        tokens = [
            (each["input"], max(each["output"] - each["reasoning"], 0), each["reasoning"], *cache_tokens(each))
            for each in self.step_tokens
        ]
        input_, output, reasoning, cache_read, cache_write = (sum(column) for column in zip(*tokens, strict=True))
        return schema.Usage(
            input_tokens=input_,
            output_tokens=output,
            thought_tokens=reasoning,
            cached_read_tokens=cache_read,
            cached_write_tokens=cache_write,
            total_tokens=input_ + output + reasoning + cache_read + cache_write,
        )


def cache_tokens(tokens: Json) -> tuple[int, int]:
    return tokens["cache"]["read"], tokens["cache"]["write"]


def context_used(tokens: Json) -> int:
    """What the next request carries, after a step with these tokens."""
    return int(tokens["input"] + tokens["output"] + sum(cache_tokens(tokens)))
