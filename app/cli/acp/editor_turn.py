"""Follows the turn of an editor's prompt to its end: finish reason, error, tokens. No I/O."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from acp import RequestError
from acp.schema import StopReason, Usage

from app.api.client.client import error_text
from app.cli.acp.server_calls import INTERNAL

Json = dict[str, Any]

_STOP_REASONS: dict[str | None, StopReason] = {"length": "max_tokens", "content-filter": "refusal"}
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

    def stop_reason(self) -> StopReason:
        """Raises RequestError if the turn failed."""
        error = (self.error or {}).get("name")
        if self.is_cancelled or error == "MessageAbortedError":
            return "cancelled"
        if error == "MessageOutputLengthError":
            return "max_tokens"
        if self.error:
            raise RequestError(INTERNAL, error_text(self.error), {"name": error})
        return _STOP_REASONS.get(self.finish, "end_turn")

    def usage(self) -> Usage | None:
        """Of all steps. The total is the sum of the kinds, as the protocol has it: so output is without reasoning, which a step's
        output includes."""
        if not self.step_tokens:
            return None
        tokens = [
            (each["input"], max(each["output"] - each["reasoning"], 0), each["reasoning"], *cache_tokens(each))
            for each in self.step_tokens
        ]
        input_, output, reasoning, cache_read, cache_write = (sum(column) for column in zip(*tokens, strict=True))
        return Usage(
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
