"""One prompt, from its session until it is answered: sent, shown while it runs, its questions answered on the terminal, or by the
options without one, stopped by Ctrl-C."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from app.api.client import STOPPED, ApiClient, ApiRefused, Json, PromptOutcome, SessionFamily
from app.cli.render import ASKING, JsonEvents, Output, Renderer, Screen, answer
from app.cli.support import revealed, session_path, sessions_here, subject
from app.util import clock, ids

REPLIES = {"y": "once", "yes": "once", "a": "always", "always": "always", "n": "reject", "no": "reject"}


class RunView:
    """`allows`: permission requests are granted unasked."""

    def __init__(self, session_id: str, *, as_json: bool, allows: bool) -> None:
        self._screen = Screen()
        self._renderer = Renderer(session_id, live=self._screen.is_live)
        self._json = JsonEvents(session_id) if as_json else None
        self._allows = allows
        self._can_ask = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))

    def show(self, event: Json) -> None:
        if self._json is not None:
            self._screen.show(*map(answer, self._json.lines(event, clock.now_ms())))
        else:
            self._screen.show(*self._renderer.show(event))

    def say(self, text: str) -> None:
        self._note(Output(text, "dim"))

    def _note(self, *outputs: Output) -> None:
        self._screen.show(*self._renderer.end_line(), *outputs)

    async def permit(self, request: Json) -> Json:
        """The reply to a permission request."""
        about = subject(request)
        if self._allows:
            self.say(f"Allowed: {about}")
            return {"reply": "once"}
        if not self._can_ask:
            self._note(Output(f"Refused, as there is no terminal to ask on: {about}. --allow grants what is asked for.", "red"))
            return {"reply": "reject"}
        while True:
            self._note(*permission_texts(request))
            if reply := reply_of(await read_line()):
                return {"reply": reply}

    async def choose(self, request: Json) -> Json | None:
        """The reply to questions; None if they are not answered."""
        if not self._can_ask:
            asked = " ".join(question["question"] for question in request["questions"])
            self._note(Output(f"Not answered, as there is no terminal to ask on: {asked}", "red"))
            return None
        answers = []
        for question in request["questions"]:
            chosen = await self._chosen(question)
            if chosen is None:
                return None
            answers.append(chosen)
        return {"answers": answers}

    async def _chosen(self, question: Json) -> list[str] | None:
        while True:
            self._note(*question_texts(question))
            line = await read_line()
            if not line:
                return None
            if chosen := answers_of(question, line):
                return chosen


# The agent's questions: the texts, and the meaning of a typed line.


def permission_texts(request: Json) -> list[Output]:
    always = f" (always: {revealed(', '.join(request['always']))})" if request["always"] else ""
    return [
        Output(f"? May the agent do this: {subject(request)}", ASKING),
        Output(f"  y: once, a: always{always}, n: no > ", ASKING, end=""),
    ]


def reply_of(line: str) -> str | None:
    """None if the line is no answer. The end of the input, an empty line without its end, rejects."""
    return "reject" if line == "" else REPLIES.get(line.strip().lower())


def question_texts(question: Json) -> list[Output]:
    options = [
        Output(f"  {number}. {option['label']}  {option['description']}".rstrip())
        for number, option in enumerate(question["options"], 1)
    ]
    several = ", several with commas" if question.get("multiple") else ""
    own = "" if question.get("custom") is False else ", or an answer of your own"
    return [Output(f"? {question['question']}", ASKING), *options, Output(f"  a number{several}{own} > ", ASKING, end="")]


def answers_of(question: Json, line: str) -> list[str] | None:
    """The labels that a line chooses, or its own text; None if it is no answer."""
    labels = [option["label"] for option in question["options"]]
    given = [each.strip() for each in line.split(",")] if question.get("multiple") else [line.strip()]
    chosen = [_label_of(each, labels) for each in given if each]
    is_known = question.get("custom") is not False or set(chosen) <= set(labels)
    return chosen if chosen and is_known else None


def _label_of(answer: str, labels: Sequence[str]) -> str:
    """The label with that number; any other answer is the user's own text."""
    number = int(answer) if answer.isdecimal() else 0
    return labels[number - 1] if 0 < number <= len(labels) else answer


async def read_line(descriptor: int = 0) -> str:
    """A line of the terminal with its end; empty at the end of the input. Unlike `input` it can be cancelled."""
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 4096).decode(errors="replace")


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def open_session(api: ApiClient, session_id: str | None, title: str | None, *, continues: bool, forks: bool) -> Json:
    """The session that is prompted: the one with that id, the newest one (`continues`), or a new one. Raises ApiRefused."""
    if session_id is None and not continues:
        return dict(await api.post("/session", {"title": title} if title else {}))
    if session_id is not None:
        found = await api.get(session_path(session_id))
    else:
        sessions = await sessions_here(api)
        if not sessions:
            raise ApiRefused("There is no session here to continue: leave --continue out.")
        found = max(sessions, key=lambda session: session["time"]["updated"])
    return dict(await api.post(f"/session/{found['id']}/fork", {}) if forks else found)


class PromptRun:
    """`run` sends the prompt and returns the exit code. A first interrupt aborts the turn and waits for its end; the second
    cancels this."""

    def __init__(self, api: ApiClient, view: RunView, session: Json) -> None:
        self._api = api
        self._view = view
        self._session = session
        self._family = SessionFamily(api, session["id"])
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._answered: set[str] = set()
        """Requests whose answer is on its way: an announced reply may be this one."""
        self._asking = asyncio.Lock()
        self._sending: asyncio.Task[Any] | None = None
        self._abort: asyncio.Task[Any] | None = None

    async def run(self, prompt: Json) -> int:
        message_id = ids.ascending("message")
        outcome = PromptOutcome(self._session["id"], message_id)
        events = self._api.events(self._session["directory"])
        try:
            await anext(events)  # the greeting: no event is missed from here on
            sent = self._api.post(f"/session/{self._session['id']}/prompt_async", {"messageID": message_id, **prompt})
            self._sending = asyncio.create_task(sent)
            with _interrupts(self._interrupt):
                await self._sending
                await self._follow(events, outcome)
        finally:
            for task in self._asked.values():
                task.cancel()
            await events.aclose()
        return STOPPED if self._abort else outcome.exit_code

    async def _follow(self, events: AsyncIterator[Json], outcome: PromptOutcome) -> None:
        await self._answer_waiting()
        while not outcome.is_known:
            event = await anext(events)
            outcome.note(event)
            self._view.show(event)
            await self._answer(event)
            self._raise_failures()

    def _raise_failures(self) -> None:
        """Raises failures of the tasks beside the events."""
        for request_id, task in list(self._asked.items()):
            if task.done():
                del self._asked[request_id]
                task.result()
        if self._abort and self._abort.done():
            self._abort.result()

    def _interrupt(self) -> None:
        self._view.say("Stopping the turn; Ctrl-C again quits at once.")
        self._abort = asyncio.create_task(self._stop())

    async def _stop(self) -> None:
        """Aborts when the prompt is accepted: an abort before that would leave it to be answered."""
        assert self._sending is not None
        await asyncio.wait([self._sending])
        if not self._sending.cancelled() and self._sending.exception() is None:
            await self._api.post(f"/session/{self._session['id']}/abort")

    # The agent's questions.

    async def _answer_waiting(self) -> None:
        """Asks what a running turn has asked before."""
        for kind in ("permission", "question"):
            for request in await self._api.get(f"/{kind}", directory=self._session["directory"]):
                await self._answer({"type": f"{kind}.asked", "properties": request})

    async def _answer(self, event: Json) -> None:
        kind, request = event["type"].partition(".")[0], event["properties"]
        match event["type"]:
            case "permission.replied" | "question.replied" | "question.rejected":
                self._withdraw(request["requestID"])
            case "permission.asked" | "question.asked":
                if request["id"] not in self._asked and await self._family.has(request["sessionID"]):
                    self._asked[request["id"]] = asyncio.create_task(self._ask(kind, request))

    def _withdraw(self, request_id: str) -> None:
        """Another client has answered, or nobody needs the answer any more."""
        if request_id in self._asked and request_id not in self._answered:
            self._asked.pop(request_id).cancel()

    async def _ask(self, kind: str, request: Json) -> None:
        async with self._asking:
            body = await (self._view.permit(request) if kind == "permission" else self._view.choose(request))
        self._answered.add(request["id"])
        try:
            await self._api.post(f"/{kind}/{request['id']}/{'reject' if body is None else 'reply'}", body)
        except ApiRefused as refused:
            if refused.status != 404:  # another client has answered
                raise


@contextmanager
def _interrupts(first: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C, or a SIGTERM, calls `first`; the second one cancels the task."""
    loop, task, calls = asyncio.get_running_loop(), asyncio.current_task(), iter([first])
    assert task is not None

    def interrupt() -> None:
        next(calls, task.cancel)()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
