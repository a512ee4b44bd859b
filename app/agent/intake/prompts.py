"""Prompting a session: store what was said, answer it, return the answer."""

import asyncio
import logging

from app.agent.instance import Instance
from app.agent.intake.user_message import Intake, Taken
from app.agent.runner import Runner
from app.schema.errors import ServiceError
from app.schema.message import PromptInput
from app.session.store import Store

log = logging.getLogger(__name__)


class NoAnswer(ServiceError):
    """The turn ended before it could store so much as an error: the database is out of reach."""

    name = "NoAnswerError"


class Prompts:
    def __init__(self, store: Store, intake: Intake, runner: Runner) -> None:
        self._store = store
        self._intake = intake
        self._runner = runner
        self._background: set[asyncio.Task[bytes]] = set()

    async def take(self, instance: Instance, session_id: str, prompt: PromptInput, *, rules_from_tools: bool = True) -> Taken:
        """Store a prompt. What it asks for wrongly is raised here, before anything is stored."""
        return await self._intake.take(instance, session_id, prompt, rules_from_tools=rules_from_tools)

    async def answer(self, instance: Instance, session_id: str, taken: Taken, *, nested: bool = False) -> bytes:
        """The JSON of the message that answers: of a prompt sent twice, the answer that it got. `nested`: a turn waits for it."""
        prompt_id = taken.message.info.id
        answered = await self._store.answer_json(session_id, prompt_id) if taken.known else None
        if answered is None or self._runner.is_running(session_id):
            await self._runner.run(session_id, instance, nested=nested)
            answered = await self._store.answer_json(session_id, prompt_id) if taken.known else None
            answered = answered or await self._store.answer_json(session_id)
        if not answered or self._runner.is_unsettled(session_id):
            raise NoAnswer(f"The prompt {prompt_id} got no answer that could be stored; see the server's log")
        return answered

    def answer_later(self, instance: Instance, session_id: str, taken: Taken) -> None:
        """Answer in the background; what goes wrong is stored with the answer."""
        task = asyncio.create_task(self.answer(instance, session_id, taken))
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[bytes]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a prompt got no answer: %s", error)
