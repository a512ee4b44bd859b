"""A stored session as it was shown while it ran, with its prompts."""

from collections.abc import Iterator
from typing import Any

from app.cli.api_client import error_text
from app.cli.output import Output, answer
from app.cli.tool_lines import tool_lines

Json = dict[str, Any]


def transcript(info: Json, messages: list[Json]) -> Iterator[Output]:
    yield Output(f"{info['title']} ({info['id']})", "done", target="answer")
    for message in messages:
        for part in message["parts"]:
            yield from _shown(part, is_prompt=message["info"]["role"] == "user")
        if error := message["info"].get("error"):
            yield Output(f"Error: {error_text(error)}", "failed", target="answer")


def _shown(part: Json, *, is_prompt: bool) -> Iterator[Output]:
    if part["type"] == "text" and not part.get("synthetic") and part["text"].strip():
        yield answer("")
        yield Output(f"> {part['text']}", "asking", "answer") if is_prompt else answer(part["text"])
    if part["type"] == "file" and is_prompt:
        yield Output(f"> ({part.get('filename') or part['mime']})", "asking", "answer")
    if part["type"] == "tool" and part["state"]["status"] in ("completed", "error"):
        yield from (Output(line.text, line.style, "answer") for line in tool_lines(part))
