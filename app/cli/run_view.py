"""What `opensession run` shows, and how it answers what the agent asks: on the terminal, or without one as its options say."""

import sys
from typing import Any

from app.cli import asking
from app.cli.console import Screen
from app.cli.json_events import JsonEvents
from app.cli.output import Output, answer
from app.cli.render import Renderer
from app.util import clock

Json = dict[str, Any]


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
        about = asking.subject(request)
        if self._allows:
            self.say(f"Allowed: {about}")
            return "once"
        if not self._can_ask:
            self._note(
                Output(f"Refused, as there is no terminal to ask on: {about}. --allow grants what is asked for.", "failed")
            )
            return "reject"
        while True:
            self._note(*asking.permission_texts(request))
            if reply := asking.reply_of(await asking.read_line()):
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
            self._note(*asking.question_texts(question))
            line = await asking.read_line()
            if not line:
                return None
            if chosen := asking.answers_of(question, line):
                return chosen
