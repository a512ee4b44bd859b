"""A prompt of the editor, and how it ended. Pure."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from acp import RequestError
from acp.schema import StopReason, Usage

from app.api.client.client import error_text
from app.cli.acp.server_calls import INTERNAL

Json = dict[str, Any]

_STOPS: dict[str | None, StopReason] = {"length": "max_tokens", "content-filter": "refusal"}
"""By the last answer's finish reason; every other one is the end of a turn."""


@dataclass
class EditorTurn:
    """`message_id`: the prompt's. `is_stored`: a turn that ends from now on answers the prompt."""

    message_id: str
    is_stored: bool = False
    is_cancelled: bool = False
    finish: str | None = None
    error: Json | None = None
    spent: list[Json] = field(default_factory=list)
    """The tokens of the turn's steps."""
    over: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def note(self, event: Json) -> None:
        properties = event["properties"]
        if event["type"] == "message.updated":
            info = properties["info"]
            self.is_stored = self.is_stored or info["id"] == self.message_id
            if self.is_stored and info["role"] == "assistant":
                self.finish, self.error = info.get("finish"), info.get("error")
        if not self.is_stored:
            return
        if event["type"] == "message.part.updated" and properties["part"]["type"] == "step-finish":
            self.spent.append(properties["part"]["tokens"])
        if event["type"] == "session.idle":
            self.end()

    def end(self, failure: Exception | None = None) -> None:
        if self.over.done():
            return
        if failure is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(failure)

    def stop_reason(self) -> StopReason:
        """Raises RequestError if the turn failed."""
        error = (self.error or {}).get("name")
        if self.is_cancelled or error == "MessageAbortedError":
            return "cancelled"
        if error == "MessageOutputLengthError":
            return "max_tokens"
        if self.error:
            raise RequestError(INTERNAL, error_text(self.error), {"name": error})
        return _STOPS.get(self.finish, "end_turn")

    def usage(self) -> Usage | None:
        if not self.spent:
            return None
        tokens = [(each["input"], each["output"], each["reasoning"], *cached(each)) for each in self.spent]
        read, written, thought, cache_read, cache_write = (sum(column) for column in zip(*tokens, strict=True))
        return Usage(
            input_tokens=read,
            output_tokens=written,
            thought_tokens=thought,
            cached_read_tokens=cache_read,
            cached_write_tokens=cache_write,
            total_tokens=read + written + thought + cache_read + cache_write,
        )


def cached(tokens: Json) -> tuple[int, int]:
    return tokens["cache"]["read"], tokens["cache"]["write"]


def context_used(tokens: Json) -> int:
    """What the next request carries, after a step with these tokens."""
    return int(tokens["input"] + tokens["output"] + tokens["reasoning"] + sum(cached(tokens)))
