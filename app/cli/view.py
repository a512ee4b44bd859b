"""What `opensession run` shows, and how it answers what the agent asks: on the terminal, or without one as its options say."""

import asyncio
import os
import sys
from typing import Any

from app.cli.console import Output, Screen, answer
from app.cli.render import JsonEvents, Renderer
from app.util import clock

Json = dict[str, Any]

REPLIES = {"y": "once", "yes": "once", "a": "always", "always": "always", "n": "reject", "no": "reject"}


class RunView:
    """`allows`: permission requests are granted unasked."""

    def __init__(self, session_id: str, *, as_json: bool, allows: bool) -> None:
        self._screen = Screen()
        self._renderer = Renderer(session_id, live=self._screen.is_live)
        self._json = JsonEvents(session_id) if as_json else None
        self._allows = allows
        self._can_ask = sys.stdin.isatty() and sys.stderr.isatty()

    def show(self, event: Json) -> None:
        if self._json is not None:
            self._screen.show(*map(answer, self._json.lines(event, clock.now_ms())))
        else:
            self._screen.show(*self._renderer.show(event))

    def say(self, text: str) -> None:
        self._note(Output(text, "faint"))

    def _note(self, *outputs: Output) -> None:
        self._screen.show(*self._renderer.end_line(), *outputs)

    async def permit(self, request: Json) -> str:
        about = subject(request)
        if self._allows:
            self.say(f"Allowed: {about}")
            return "once"
        if not self._can_ask:
            self._note(
                Output(f"Refused, as there is no terminal to ask on: {about}. --allow grants what is asked for.", "failed")
            )
            return "reject"
        while True:
            self._note(*permission_texts(request))
            if reply := reply_of(await read_line()):
                return reply

    async def choose(self, request: Json) -> list[list[str]] | None:
        if not self._can_ask:
            asked = " ".join(question["question"] for question in request["questions"])
            self._note(Output(f"Not answered, as there is no terminal to ask on: {asked}", "failed"))
            return None
        answers = []
        for question in request["questions"]:
            chosen = await self._chosen(question)
            if chosen is None:
                return None
            answers.append(chosen)
        return answers

    async def _chosen(self, question: Json) -> list[str] | None:
        while True:
            self._note(*question_texts(question))
            line = await read_line()
            if not line:
                return None
            if chosen := answers_of(question, line):
                return chosen


# What the agent asks: the texts, and what a typed line answers.


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
