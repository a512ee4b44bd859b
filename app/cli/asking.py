"""What the agent asks its user: the texts, and what a typed line answers. Pure but for `read_line`."""

import asyncio
import os
from typing import Any

from app.cli.output import Output

Json = dict[str, Any]

REPLIES = {"y": "once", "yes": "once", "a": "always", "always": "always", "n": "reject", "no": "reject"}


def subject(request: Json) -> str:
    """What a permission request is about."""
    return f"{request['permission']} {', '.join(request['patterns'])}".strip()


def permission_texts(request: Json) -> list[Output]:
    always = f" (always: {', '.join(request['always'])})" if request["always"] else ""
    return [
        Output(f"? May the agent do this: {subject(request)}", "asking"),
        Output(f"  y: once, a: always{always}, n: no > ", "asking", end=""),
    ]


def reply_of(line: str) -> str | None:
    """None where it is no answer. The end of the input, an empty line without its end, rejects."""
    return "reject" if line == "" else REPLIES.get(line.strip().lower())


def question_texts(question: Json) -> list[Output]:
    options = [
        Output(f"  {number}. {option['label']}  {option['description']}".rstrip())
        for number, option in enumerate(question["options"], 1)
    ]
    several = ", several with commas" if question.get("multiple") else ""
    own = "" if question.get("custom") is False else ", or an answer of your own"
    return [Output(f"? {question['question']}", "asking"), *options, Output(f"  a number{several}{own} > ", "asking", end="")]


def answers_of(question: Json, line: str) -> list[str] | None:
    """The labels that a line chooses, or its own text; None where it is no answer."""
    labels = [option["label"] for option in question["options"]]
    given = [each.strip() for each in line.split(",")] if question.get("multiple") else [line.strip()]
    chosen = [labels[int(each) - 1] if each.isdecimal() and 0 < int(each) <= len(labels) else each for each in given if each]
    is_known = question.get("custom") is not False or set(chosen) <= set(labels)
    return chosen if chosen and is_known else None


async def read_line(descriptor: int = 0) -> str:
    """A line of the terminal with its end; empty at the end of the input. Unlike `input` it can be cancelled."""
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 4096).decode(errors="replace")
