"""Prompts that wait for a turn of their own: stored in a queue, each started when its session is idle.

Until its turn begins, a queued prompt is no message of its session. It leaves the queue in the transaction that stores the
message, so that only one of several servers begins its turn.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from app.record.engine import StorageError
from app.record.repositories import message_rows, work_rows
from app.schema.errors import Conflict, NoAnswer, NotFound, ServiceError, SessionBusy, TooManyPrompts
from app.schema.message import MessageWithParts, PromptInput, QueuedPrompt, QueuedTime
from app.sessions.live import LiveSession, LiveSessions, WorkKind
from app.sessions.rows import PromptedSession
from app.sessions.session_tx import NotQueued, SessionTx
from app.sessions.store import Store
from app.turn import ends
from app.turn.intake.intake import Intake, PreparedPrompt, renewed
from app.turn.intake.prompts import AcceptedPrompt, Prompts
from app.util import clock, ids
from app.util.project_files import HeldDirectory
from app.util.tasks import FailureLog, TaskSet, every
from app.workspace.instance import Instance
from app.workspace.instances import Instances

log = logging.getLogger(__name__)

POLL_SECONDS = 3.0
"""The time between two looks for queues that no server works on."""
RETRY_SECONDS = 0.25
MAX_RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class QueuedPromptWait:
    """A prompt in the queue for whose answer a client waits here. `started` is done when its turn begins, on whatever server, or
    when it is known that no turn will. `row`: as it was sent here. `directory`: the one that it was accepted for."""

    session_id: str
    row: Mapping[str, Any]
    directory: HeldDirectory | None = None
    started: asyncio.Future[AcceptedPrompt] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class PromptQueue:
    def __init__(
        self, store: Store, prompts: Prompts, intake: Intake, live: LiveSessions, instances: Instances, most: int
    ) -> None:
        """`most`: how many prompts may wait in one session."""
        self._store = store
        self._prompts = prompts
        self._intake = intake
        self._live = live
        self._leases = live.leases
        self._instances = instances
        self._most = most
        self._waiting: dict[str, QueuedPromptWait] = {}
        """By the id of the prompt's row."""
        self._tasks = TaskSet()
        self._seen: set[tuple[str, int]] = set()
        """The prompts that waited at the last look."""

    async def accept(
        self, instance: Instance, prompted: PromptedSession, prompt: PromptInput
    ) -> AcceptedPrompt | QueuedPromptWait:
        """The prompt begins now when the session is idle, else it waits. Raises what `Prompts.accept` raises."""
        session_id = prompted.session.id
        prepared = await self._intake.prepare(instance, prompted, prompt)
        if prepared.message is None or not await self._rows(session_id):
            with suppress(SessionBusy):
                return await self._prompts.accept_prepared(instance, session_id, prepared)
        assert prepared.message is not None, "a message that is stored waits for nobody"
        row = _row(instance, prepared, prepared.message)
        return await self._enqueue(session_id, row, instance.sandbox_workspace.directories()[-1])

    async def _enqueue(self, session_id: str, row: Mapping[str, Any], directory: HeldDirectory) -> QueuedPromptWait:
        """A message with an id is queued once, however often it is sent. Raises NotFound."""
        waiting = QueuedPromptWait(session_id, row, directory)

        def enqueue(tx: SessionTx) -> str:
            tx.session()
            queued = work_rows.queued_prompts(tx.connection, session_id)
            if (same := _same(queued, row)) is not None:
                return str(same.id)
            if len(queued) >= self._most:
                raise TooManyPrompts(session_id, self._most)
            tx.enqueue_prompt(row)
            return str(row["id"])

        def await_turn(stored: asyncio.Future[str]) -> None:
            """Runs at the commit: earlier, the prompt would be taken for one that has left the queue. The caller's cancellation
            does not prevent it."""
            nonlocal waiting
            if stored.exception() is None:
                queued_id = stored.result()
                waiting = self._waiting.setdefault(
                    queued_id, waiting if queued_id == row["id"] else QueuedPromptWait(session_id, row)
                )
                self._work_on(session_id)

        stored = self._store.post(session_id, row["directory"], enqueue)
        stored.add_done_callback(await_turn)
        await asyncio.shield(stored)
        return waiting

    async def list(self, session_id: str) -> list[QueuedPrompt]:
        """The prompts that wait, in the order of their turns."""
        await self._store.session_json(session_id)
        prompts = [(row, prepared.input) for row in await self._rows(session_id) if (prepared := _read(row))]
        return [
            QueuedPrompt(id=row.id, session_id=session_id, time=QueuedTime(created=row.created), prompt=prompt)
            for row, prompt in prompts
        ]

    async def remove(self, session_id: str, queued_id: str) -> None:
        """Raises NotFound, also for a prompt whose turn has started (NotQueued)."""
        session = await self._store.session(session_id)
        await self._store.write(session_id, session.directory, lambda tx: tx.dequeue_prompt(queued_id))
        self._resolve(queued_id, NoAnswer(f"The prompt {queued_id} was removed from the queue"))

    async def all_answered(self, session_id: str) -> None:
        """Returns when the session is idle, on whatever server, and its queue empty. Raises NotFound."""
        await self._store.session_json(session_id)
        while True:
            await self._live.get(session_id).idle()
            await self._leases.free_elsewhere(session_id)
            if not await self._rows(session_id) and not await self._is_busy(session_id):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _is_busy(self, session_id: str) -> bool:
        """Call it after reading the queue: a prompt that has left the queue makes the session busy by the lease, which its turn
        got in that commit."""
        return self._live.is_running(session_id) or await self._leases.is_held_elsewhere(session_id)

    async def answer(self, waiting: QueuedPromptWait) -> bytes:
        """The JSON of the message that answers, when the prompt's turn has ended."""
        accepted = await asyncio.shield(waiting.started)
        return await self._prompts.answer(waiting.session_id, accepted)

    async def _rows(self, session_id: str) -> Sequence[Any]:
        return await self._store.query(work_rows.queued_prompts, session_id)

    # Beginning the prompts that wait.

    async def resume(self) -> None:
        """Works on the queues that were left when the only server of the database stopped, also behind turns that go on."""
        for session_id in await self._store.query(work_rows.queued_sessions):
            self._work_on(session_id)

    def watch(self) -> None:
        """From now on, until `close`: resumes queues that other servers of the database leave. A prompt that waits at two looks
        counts as left, because between two turns its own server begins it at once."""
        what = "looking for queued prompts"
        self._tasks.start(every(POLL_SECONDS, self._poll, what), what)

    async def _poll(self) -> None:
        waiting = set(await self._store.query(work_rows.waiting_queues))
        for session_id, _ in waiting & self._seen:
            self._work_on(session_id)
        self._seen = waiting

    async def close(self) -> None:
        """Prompts that wait stay in the queue, for the next start or another server."""
        await self._tasks.cancel()
        for queued_id in list(self._waiting):
            self._resolve(queued_id, NoAnswer(f"This server stops; the prompt {queued_id} stays in the queue"))

    def _work_on(self, session_id: str) -> None:
        live = self._live.get(session_id)
        live.has_queue = True
        if live.queue_worker is None:
            live.queue_worker = self._tasks.start(self._work(live), f"queue {session_id}")

    async def _work(self, live: LiveSession) -> None:
        failures, pause = FailureLog(log, f"beginning the queued prompts of {live.id}"), RETRY_SECONDS
        while live.has_queue:
            live.has_queue = False
            try:
                await self._begin_all(live)
                failures.worked()
            except SessionBusy:
                live.has_queue = True
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001  whatever it is, the prompt was accepted
                failures.failed(error)
                live.has_queue = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_RETRY_SECONDS)
        live.queue_worker = None
        live.remember_while_busy()

    async def _begin_all(self, live: LiveSession) -> None:
        while True:
            await live.idle()
            await self._leases.free_elsewhere(live.id)
            row = next(iter(await self._rows(live.id)), None)
            if row is None:
                break
            await self._begin(row)
        for queued_id in [key for key, waiting in self._waiting.items() if waiting.session_id == live.id]:
            if not live.has_queue:
                await self._follow(queued_id, self._waiting[queued_id].row)

    async def _follow(self, queued_id: str, row: Mapping[str, Any]) -> None:
        """The prompt has left the queue, for a turn on another server or because it was removed. Its message is found, as when it
        is sent again."""
        outcome: AcceptedPrompt | ServiceError = NoAnswer(f"The prompt {queued_id} left the queue without a turn")
        session_id, content = row["session_id"], row["input_hash"]
        try:
            message_id = row["message_id"] or await self._store.query(message_rows.message_with_hash, session_id, content)
            if message_id is not None:
                owner = (await self._store.session(session_id)).owner or ""
                instance = await self._instances.get(row["directory"], owner)
                prompt = PromptInput.model_validate_json(row["input"]).model_copy(update={"message_id": message_id})
                outcome = await self._prompts.accept_prepared(instance, session_id, PreparedPrompt(prompt, content, None))
        except SessionBusy:
            raise
        except ServiceError as error:
            outcome = outcome if isinstance(error, NotFound) else error
        self._resolve(queued_id, outcome)

    async def _begin(self, row: Any) -> None:
        prepared = _read(row)
        if prepared is None:
            await self._store.write(row.session_id, row.directory, lambda tx: tx.dequeue_prompt(row.id))
            self._resolve(row.id, NoAnswer(f"What is stored of the queued prompt {row.id} is damaged"))
            return
        try:
            owner = (await self._store.session(row.session_id)).owner or ""
            instance = await self._instances.get_for_stored_work(row.directory, owner)
            self._require_same_directory(row.id, instance)
            accepted = await self._prompts.accept_prepared(instance, row.session_id, prepared, queued_id=row.id)
        except (SessionBusy, StorageError):
            raise
        except NotQueued:
            return  # another server has begun it, or it was removed: `_follow` tells which
        except ServiceError as error:
            await self._answer_with_error(row, prepared, error)
        else:
            self._resolve(row.id, accepted)

    def _require_same_directory(self, queued_id: str, instance: Instance) -> None:
        waiting = self._waiting.get(queued_id)
        if waiting and waiting.directory not in (None, instance.sandbox_workspace.directories()[-1]):
            raise Conflict(f"{waiting.directory.path} is another directory than when the prompt was accepted. Nothing was done.")

    async def _answer_with_error(self, row: Any, prepared: PreparedPrompt, error: ServiceError) -> None:
        """Stores the prompt with the error as its answer: its directory cannot be used any more, or the like."""
        log.warning("the queued prompt %s of %s could not be started: %s", row.id, row.session_id, error.message)

        async def store() -> None:
            await self._intake.store_in(row.directory, row.session_id, prepared, row.id)
            await ends.answer_with(self._store, row.session_id, row.directory, ends.error_of_turn(row.session_id, error))

        try:
            await self._prompts.turns.run_exclusively(row.session_id, row.directory, WorkKind.CLOSE, store, announced=True)
        except NotFound as gone:
            log.info("%s is deleted, with its queue: %s", row.session_id, gone.message)
        self._resolve(row.id, error)

    def _resolve(self, queued_id: str, outcome: AcceptedPrompt | ServiceError) -> None:
        waiting = self._waiting.pop(queued_id, None)
        if waiting is None or waiting.started.done():
            return
        if isinstance(outcome, ServiceError):
            waiting.started.set_exception(outcome)
            waiting.started.exception()  # nobody may wait for it
        else:
            waiting.started.set_result(outcome)


def _row(instance: Instance, prepared: PreparedPrompt, message: MessageWithParts) -> Mapping[str, Any]:
    """The message of a prompt that names none has the row's id for its hash, by which every server finds it."""
    queued_id, message_id = ids.ascending("queued"), prepared.input.message_id
    return {
        "id": queued_id,
        "session_id": message.info.session_id,
        "message_id": message_id,
        "directory": instance.location.directory,
        "created": clock.now_ms(),
        "input_hash": prepared.content if message_id else queued_id,
        "input": prepared.input.wire_json().decode(),
        "message": message.wire_json().decode(),
    }


def _same(rows: Sequence[Any], row: Mapping[str, Any]) -> Any:
    """The row that is this one or queues the same message; None if there is none. Raises Conflict."""
    by_message = [one for one in rows if one.message_id is not None and one.message_id == row["message_id"]]
    if any(one.input_hash != row["input_hash"] for one in by_message):
        raise Conflict(f"Message {row['message_id']} waits in the queue and says something else. Use a new id for a new message.")
    return next((one for one in rows if one.id == row["id"]), next(iter(by_message), None))


def _read(row: Any) -> PreparedPrompt | None:
    """None for a damaged row, which must not hold up those after it."""
    try:
        prompt = PromptInput.model_validate_json(row.input)
        message = MessageWithParts.model_validate_json(row.message)
    except ValueError as damage:
        log.error("the queued prompt %s of %s is damaged: %s", row.id, row.session_id, damage)
        return None
    return PreparedPrompt(prompt, row.input_hash, message if prompt.message_id else renewed(message))
