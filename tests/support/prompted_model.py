"""A language model whose answers stand in the prompt: whichever server asks, at whatever step of a turn, is told the same."""

import json
import threading
import time
from collections import defaultdict
from typing import Any

from model_server import ModelServer, Pause, Step

MARK = "play:"


def play(*turns: list[dict[str, Any]]) -> str:
    """The text of a prompt that the model answers with these turns, and then with `ok`.

    A step is one of

        {"text": "…", "chunks": 4, "delay": 0}    text in so many pieces, so many seconds before each
        {"tool": name, "args": {…}}
        {"hold": name}                            waits until the test releases that name

    The model's turn is the number of answers with tool calls since the prompt: an answer of text that was cut off is begun anew,
    one whose calls were made is not. A summary is the last turn.
    """
    return MARK + json.dumps(turns)


class PromptedModel(ModelServer):
    """The models `main` and `summary` answer as prompts say, `title` as ModelServer's does."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self.reached: defaultdict[str, list[float]] = defaultdict(list)
        """When a server's request was about to be held, by the name of the hold, in time.monotonic()."""

    def config(self) -> dict[str, Any]:
        config = super().config()
        config["provider"]["fake"]["models"]["summary"] = {"name": "Summary", "tool_call": True}
        return {**config, "agent": {"compaction": {"model": "fake/summary"}}}

    def release(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()

    def answer(self, request: dict[str, Any]) -> list[Step]:
        if request["model"] == "title":
            return self.title
        turns, number = _script(request["messages"])
        if request["model"] == "summary" and turns:
            return self._steps(turns[-1])
        return self._steps(turns[number]) if number < len(turns) else self.otherwise

    def _steps(self, turn: list[dict[str, Any]]) -> list[Step]:
        return [step for written in turn for step in self._step(written)]

    def _step(self, written: dict[str, Any]) -> list[Step]:
        if "hold" in written:
            self.reached[written["hold"]].append(time.monotonic())
            return [self._gates[written["hold"]]]
        if "tool" in written:
            return [(written["tool"], written["args"])]
        text, delay = written["text"], Pause(written.get("delay", 0))
        size = -(-len(text) // written.get("chunks", 4)) or 1
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        return [step for piece in pieces for step in (delay, piece)]


def _script(messages: list[dict[str, Any]]) -> tuple[list[list[dict[str, Any]]], int]:
    """The turns that the newest prompt with a script asks for, and how many of them were played."""
    for position in range(len(messages) - 1, -1, -1):
        text = _text(messages[position])
        if messages[position]["role"] == "user" and MARK in text:
            turns = json.JSONDecoder().raw_decode(text[text.index(MARK) + len(MARK) :])[0]
            return turns, sum("tool_calls" in message for message in messages[position:])
    return [], 0


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
