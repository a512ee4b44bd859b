"""A session that an editor has open: its prompts, its updates, and the agent's questions."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from acp import Client, RequestError, schema
from acp.helpers import ContentBlock, update_available_commands, update_current_mode
from pydantic import ValidationError

from app.api.client import ApiClient, Json
from app.cli.acp import asks
from app.cli.acp.choices import COMPACT, MODE, SessionChoices, offered_commands
from app.cli.acp.editor_server import INTERNAL, NOT_FOUND
from app.cli.acp.prompt_parts import parts_of
from app.cli.acp.transcript import EditorTranscript, EditorTurn, context_used, plan
from app.util import ids

log = logging.getLogger(__name__)

LENDING_SECONDS = 10.0
"""How long an editor may take for a file. The tool that wants it waits less."""
LENDING_PAUSE_SECONDS = 0.5
ANSWERED_SECONDS = 10.0


class EditorSession:
    """`take` is given the events of the session, and of its subagents, one after the other."""

    def __init__(
        self,
        server: ApiClient,
        editor: Client,
        offers: schema.ClientCapabilities,
        info: Json,
        choices: SessionChoices,
        *,
        shows_kinds_alone: bool = False,
    ) -> None:
        self.server = server
        self._editor = editor
        self._offers = offers
        self._shows_kinds_alone = shows_kinds_alone
        self.id: str = info["id"]
        self.directory: str = info["directory"]
        self.choices = choices
        self.mcp_names: list[str] = []
        self._transcript = EditorTranscript(info)
        self._cost = info.get("cost") or 0.0
        self._turns: dict[str, EditorTurn] = {}
        self._cancelling = asyncio.Lock()
        """Held by a cancel, so that it ends no prompt that comes after it."""
        self._held: list[Json] | None = []
        """Events that came while the session was read; None from then on."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        """The questions that wait for the user, by their requests."""
        self._answered: set[str] = set()
        self._commands: list[Json] | None = None
        self._introducing: asyncio.Task[None] | None = None
        self._lending: asyncio.Task[None] | None = None
        self._lent: set[asyncio.Task[None]] = set()
        """Requests to the editor for a file."""

    # Opening and closing.

    async def replay(self) -> None:
        """Shows the conversation so far."""
        messages = await self.server.get(f"/session/{self.id}/message", directory=self.directory)
        todos = await self.server.get(f"/session/{self.id}/todo", directory=self.directory)
        await self._send(*self._transcript.replay(messages), *([plan(todos)] if todos else []))

    async def open(self, deliver: Callable[[Json], Awaitable[None]]) -> None:
        """Delivers the events since the feed was opened, so that none is missed. From now on the editor lends files.
        `deliver` takes an event to its session."""
        while self._held:
            event = self._held.pop(0)
            await self._show_event(event)
        self._held = None
        if self._offers.fs and self._offers.fs.read_text_file:
            lends = asyncio.Event()
            self._lending = asyncio.create_task(self._lend_files(lends))
            await lends.wait()
        self._introducing = asyncio.create_task(self._introduce(deliver))

    async def _known_commands(self) -> list[Json]:
        """The directory's commands, as the first answer of the server has them."""
        if self._commands is None:
            self._commands = await self.server.get("/command", directory=self.directory)
        return self._commands

    async def _introduce(self, deliver: Callable[[Json], Awaitable[None]]) -> None:
        """Comes after the answer that names the session: the editor knows it only then."""
        try:
            for kind in ("permission", "question"):  # what a running turn, or a subagent of it, has asked before
                for request in await self.server.get(f"/{kind}", directory=self.directory):
                    await deliver({"type": f"{kind}.asked", "properties": request})
            offered = offered_commands(await self._known_commands())  # waits for MCP servers that are connecting
            await self._send(update_available_commands(offered))
        except RequestError as error:
            log.error("%s cannot be introduced: %s", self.id, error)

    async def close(self) -> None:
        """Gives up all requests that wait for the editor."""
        tasks = (self._introducing, self._lending, *self._lent, *self._asking.values())
        started = [task for task in tasks if task is not None]
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)

    @property
    def is_running(self) -> bool:
        return bool(self._turns)

    def fail(self, error: RequestError) -> None:
        """Answers the session's prompts with the error."""
        for turn in self._turns.values():
            turn.end(error)

    # Prompts.

    async def answered(self) -> None:
        """Returns when the prompts so far are over, as those that were cancelled soon are; then they count as over."""
        running = list(self._turns.values())
        if running:
            await asyncio.wait([turn.ended for turn in running], timeout=ANSWERED_SECONDS)
        for turn in running:
            turn.end()

    async def prompt(self, blocks: list[ContentBlock], follow: Callable[[str], Awaitable[None]]) -> schema.PromptResponse:
        """`follow` opens the feed of the directory's events, if it is lost."""
        turn = EditorTurn(ids.ascending("message"))
        self._turns[turn.message_id] = turn
        self._transcript.own_prompts.add(turn.message_id)
        try:
            await self._answered_prompt(turn, blocks, follow(self.directory))
            return schema.PromptResponse(stop_reason=turn.stop_reason(), usage=turn.usage())
        finally:
            del self._turns[turn.message_id]

    async def _answered_prompt(self, turn: EditorTurn, blocks: list[ContentBlock], following: Awaitable[None]) -> None:
        """Returns when every event of the turn was delivered."""
        await following
        async with self._cancelling:
            pass
        parts = parts_of(blocks)
        command = await self._command_in(parts)
        if turn.is_cancelled:
            return
        sending = asyncio.create_task(self._send_prompt(turn, parts, command))
        try:
            await asyncio.wait([sending, turn.ended], return_when=asyncio.FIRST_COMPLETED)
            if not turn.ended.done():
                await sending
                if turn.is_cancelled:  # before there was anything to abort
                    await self._abort()
            await turn.ended
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_prompt(self, turn: EditorTurn, parts: list[Json], command: tuple[str, str] | None) -> None:
        path = f"/session/{self.id}"
        if command is None:
            prompt = {"messageID": turn.message_id, "parts": parts, **self.choices.of_prompt()}
            await self.server.post(f"{path}/prompt_async", prompt, directory=self.directory)
        elif command[0] == COMPACT:
            turn.is_stored = True  # the turn has no message of this prompt
            provider, _, model = self.choices.model.partition("/")
            await self.server.post_slow(f"{path}/summarize", {"providerID": provider, "modelID": model}, directory=self.directory)
        else:
            name, arguments = command
            files = [part for part in parts if part["type"] == "file"]
            body = {"command": name, "arguments": arguments, "messageID": turn.message_id, "parts": files}
            await self.server.post_slow(f"{path}/command", {**body, **self.choices.of_command()}, directory=self.directory)

    async def _command_in(self, parts: list[Json]) -> tuple[str, str] | None:
        """The command that a prompt's texts begin with, and its arguments. Another word after a slash is text."""
        text = "".join(part["text"] for part in parts if part["type"] == "text").strip()
        if not text.startswith("/"):
            return None
        known = await self._known_commands()
        name, *arguments = re.split(r"\s+", text[1:], maxsplit=1)
        return (name, "".join(arguments)) if name in {COMPACT, *(command["name"] for command in known)} else None

    async def cancel(self) -> None:
        for turn in self._turns.values():
            turn.is_cancelled = True
        async with self._cancelling:
            await self._abort()

    async def _abort(self) -> None:
        await self.server.post(f"/session/{self.id}/abort", directory=self.directory)

    # Files that are open in the editor.

    async def _lend_files(self, lends: asyncio.Event) -> None:
        """Asks the editor for files that the agent reads, until the session is closed. `lends` is set when the server knows."""
        while True:
            try:
                file = await self.server.wait(f"/session/{self.id}/editor", lends.set)
            except RequestError as error:
                lends.set()
                if error.code != INTERNAL:
                    log.info("%s lends no files: %s", self.id, error)
                    return
                file = {}
            if "path" in file:
                task = asyncio.create_task(self._lend(file))
                self._lent.add(task)
                task.add_done_callback(self._lent.discard)
            else:  # the server stops, or cannot be reached
                await asyncio.sleep(LENDING_PAUSE_SECONDS)

    async def _lend(self, file: Json) -> None:
        """A file that the editor does not show is read from the disk."""
        text = None
        try:
            async with asyncio.timeout(LENDING_SECONDS):
                text = (await self._editor.read_text_file(session_id=self.id, path=file["path"])).content
        except (RequestError, ValidationError, TimeoutError, ConnectionError) as error:
            log.info("%s is not read in the editor: %s", file["path"], error)
        try:
            await self.server.post(f"/session/{self.id}/editor", {"id": file["id"], "text": text})
        except RequestError as error:
            log.info("The text of %s was not taken: %s", file["path"], error)

    # Choices.

    async def choose(self, option: str, value: str | bool) -> None:
        """Raises RequestError."""
        self.choices.choose(option, value)
        if option == MODE:
            await self._send(update_current_mode(self.choices.agent))

    async def tell_options(self) -> None:
        options = list(self.choices.options())
        await self._send(schema.ConfigOptionUpdate(session_update="config_option_update", config_options=options))

    # Events.

    async def take(self, event: Json) -> None:
        if self._held is not None:
            self._held.append(event)
        else:
            await self._show_event(event)

    async def _show_event(self, event: Json) -> None:
        kind, properties = event["type"], event["properties"]
        if kind in ("permission.asked", "question.asked"):
            self._ask(kind.partition(".")[0], properties)
        elif kind in ("permission.replied", "question.replied", "question.rejected"):
            self._withdraw(properties["requestID"])
        elif session_of(event) == self.id:
            await self._show_own_event(event)
        else:
            await self._send(*self._transcript.subagent_updates(event))

    async def _show_own_event(self, event: Json) -> None:
        kind, properties = event["type"], event["properties"]
        if kind == "message.updated" and self._transcript.is_anothers_prompt(properties["info"]):
            await self._follow(properties["info"])
        await self._send(*self._transcript.updates(event))
        if kind == "session.updated":
            self._cost = properties["info"].get("cost") or self._cost
        if kind == "message.part.updated" and properties["part"]["type"] == "step-finish":
            await self._tell_usage(properties["part"])
        if kind == "session.deleted":
            self.fail(RequestError(NOT_FOUND, f"The session {self.id} was deleted"))
        for turn in self._turns.values():
            turn.on_event(event)

    async def _follow(self, prompt: Json) -> None:
        """Another client's prompt may choose for the session, too."""
        if self.choices.follow(prompt):
            await self._send(update_current_mode(self.choices.agent))
            await self.tell_options()

    async def _tell_usage(self, step: Json) -> None:
        if self.choices.context_size:
            cost = schema.Cost(amount=self._cost + step["cost"], currency="USD")
            used, size = context_used(step["tokens"]), self.choices.context_size
            await self._send(schema.UsageUpdate(session_update="usage_update", used=used, size=size, cost=cost))

    async def catch_up(self) -> None:
        """Shows what happened during a gap in the events."""
        try:
            messages = await self.server.get(f"/session/{self.id}/message", directory=self.directory)
        except RequestError as error:
            if error.code != NOT_FOUND:
                raise
            self.fail(error)  # it was deleted meanwhile
            return
        await self._send(*self._transcript.replay(messages))
        statuses = await self.server.get("/session/status", directory=self.directory)
        if self.id not in statuses:
            for turn in self._turns.values():
                turn.end()

    async def _send(self, *updates: Any) -> None:
        for update in updates:
            await self._editor.session_update(session_id=self.id, update=update)

    # The agent's questions.

    def _ask(self, kind: str, request: Json) -> None:
        if request["id"] not in self._asking:
            task = self._asking[request["id"]] = asyncio.create_task(self._ask_and_reply(kind, request))
            task.add_done_callback(lambda _: self._asking.pop(request["id"], None))

    def _withdraw(self, request_id: str) -> None:
        """Another client has answered, or nobody needs the answer any more."""
        if request_id in self._asking and request_id not in self._answered:
            self._asking[request_id].cancel()

    async def _ask_and_reply(self, kind: str, request: Json) -> None:
        """A client that cannot be asked, or whose answer cannot be read, counts as refusing."""
        try:
            body = await (self._permit(request) if kind == "permission" else self._question(request))
        except (RequestError, ValidationError) as error:
            log.error("The editor was not asked about %s: %s", request["id"], error)
            body = {"reply": asks.REJECT} if kind == "permission" else None
        except ConnectionError:
            log.info("The editor has gone with %s", request["id"])
            return
        self._answered.add(request["id"])
        try:
            path = f"/{kind}/{request['id']}/{'reject' if body is None else 'reply'}"
            await self.server.post(path, body, directory=self.directory)
        except RequestError as refused:
            if refused.code != NOT_FOUND:  # another client has answered
                log.error("The answer to %s was not taken: %s", request["id"], refused)

    async def _permit(self, request: Json) -> Json:
        part = self._part_of(request)
        if part is not None:
            self._transcript.follow_call(part)
        answer = await self._editor.request_permission(
            session_id=self.id,
            tool_call=asks.permission_call(request, part, self.directory),
            options=asks.permission_options(request),
        )
        return {"reply": asks.reply_of(answer)}

    async def _question(self, request: Json) -> Json | None:
        has_forms = bool(self._offers.elicitation and self._offers.elicitation.form)
        answers = await (self._ask_by_form(request) if has_forms else self._ask_by_choice(request))
        return None if answers is None else {"answers": answers}

    async def _ask_by_form(self, request: Json) -> list[list[str]] | None:
        part = self._part_of(request)
        form = asks.question_form(request, self.id, part["id"] if part else None)
        message = "\n".join(question["question"] for question in request["questions"])
        return asks.form_answers(request, await self._editor.create_elicitation(message=message, mode=form))

    async def _ask_by_choice(self, request: Json) -> list[list[str]] | None:
        part, answers = self._part_of(request), []
        for question in request["questions"]:
            chosen = await self._chosen(question, part["id"] if part else request["id"])
            if chosen is None:
                return None
            answers.append(chosen)
        return answers

    async def _chosen(self, question: Json, call_id: str) -> list[str] | None:
        for call, options in asks.choices_of(question, call_id, one_by_one=self._shows_kinds_alone):
            answer = await self._editor.request_permission(session_id=self.id, tool_call=call, options=options)
            chosen = asks.chosen_answer(question, answer)
            if chosen is not None or asks.is_cancelled(answer):
                return chosen
        return None

    def _part_of(self, request: Json) -> Json | None:
        call = request.get("tool")
        return self._transcript.running_call(call["messageID"], call["callID"]) if call else None


def session_of(event: Json) -> str | None:
    """The id of the event's session. Every such event has it here, OpenCode's older forms of some only within."""
    found = event["properties"].get("sessionID")
    return str(found) if found else None
