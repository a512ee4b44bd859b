"""From what a client sends to a stored user message."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from app.project.location import Location
from app.record.engine import Connection
from app.record.repositories import message_rows
from app.record.writer import Lease
from app.schema.errors import BadRequest, Conflict, TooLarge, TooManyPrompts
from app.schema.message import CommandInput, JsonSchemaFormat, Message, MessageWithParts, PromptInput, UserMessage, UserTime
from app.schema.part import Part
from app.schema.permission import Rule, Ruleset
from app.schema.session import DEFAULT_VARIANT, Session, SessionModel
from app.sessions.revert import remove_reverted
from app.sessions.rows import PromptedSession, message_row, part_row
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.sessions.usage import ProjectQuota, check_part_size, check_rules_size
from app.tools.structured_output import UnusableSchema, check_schema
from app.turn import hooks
from app.turn.intake.prompt_parts import PromptParts
from app.util import clock, ids
from app.workspace.instance import Instance

MAX_PROMPT_BYTES = 64 * 1024 * 1024
"""Of the parts of a prompt, with the files that it names: more than providers take in a request."""

MAX_RETRIES = 10
"""For an answer that does not have the form that the prompt asks for."""


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """`message`: to be stored; None if the client has sent it before. `content`: a hash of the prompt's content, or of the
    command that it comes from."""

    input: PromptInput
    content: str
    message: MessageWithParts | None


class Intake:
    def __init__(self, store: Store, parts: PromptParts, quota: ProjectQuota, most_bytes: int, most_waiting: int) -> None:
        """`most_bytes`: of a part that a client sends. `most_waiting`: the number of a session's prompts without an answer."""
        self._store = store
        self._quota = quota
        self._parts = parts
        self._most_bytes = most_bytes
        self._most_waiting = most_waiting

    async def prepare(
        self, instance: Instance, prompted: PromptedSession, prompt: PromptInput, content: str | None = None
    ) -> PreparedPrompt:
        """Reads all that a prompt names; stores nothing. `content`: as PreparedPrompt has it, by default the prompt's.

        Raises NotFound, BadRequest (unknown agent, missing file, unusable schema), ProviderModelNotFoundError, Conflict (a
        message id used for something else), TooLarge, ProjectFull.
        """
        for part in prompt.parts:
            check_part_size(part, self._most_bytes)
        check_part_ids(prompt)
        await check_format(prompt)
        content = content or content_hash(prompt)
        if await self.is_known(prompted.session.id, prompt.message_id, content):
            return PreparedPrompt(prompt, content, None)
        await self._quota.require_room(instance.location.project_id)
        message = _message(instance, prompted, prompt)
        parts = await self._read_parts(instance, message, prompt)
        complete = MessageWithParts.model_construct(info=message, parts=parts)
        return PreparedPrompt(prompt, content, await hooks.chat_message(instance, prompt, complete))

    async def _read_parts(self, instance: Instance, message: UserMessage, prompt: PromptInput) -> list[Part]:
        """One part after the other: a few letters name a large file, a thousand times if they like. Raises TooLarge."""
        parts, size = list[Part](), 0
        for wanted in prompt.parts:
            read = await self._parts.of(instance, message, wanted)
            size += sum(len(part.wire_json()) for part in read)
            if size > MAX_PROMPT_BYTES:
                raise TooLarge(f"A prompt, with the files that it names, may have at most {MAX_PROMPT_BYTES // 2**20} MiB.")
            parts += read
        return parts

    async def store_in(self, directory: str, session_id: str, prepared: PreparedPrompt, queued_id: str) -> None:
        """Stores a queued prompt whose directory may be out of use. Raises NotFound."""
        store, message = self.change(prepared, queued_id), prepared.message
        assert message is not None

        def store_or_dequeue(tx: SessionTx) -> None:
            if message_rows.input_hash(tx.connection, session_id, message.info.id) is not None:
                tx.dequeue_prompt(queued_id)  # it was sent again meanwhile, or something else under its id
            else:
                store(tx)

        await self._store.write(session_id, directory, store_or_dequeue)

    async def is_known(self, session_id: str, message_id: str | None, content: str) -> bool:
        """Whether the client has sent this message before, and it is stored. Raises Conflict if that one has other content."""
        if message_id is None:
            return False
        return await self._store.query(_is_known, session_id, message_id, content)

    def change(
        self,
        prepared: PreparedPrompt,
        queued_id: str | None,
        acquire: Callable[[Connection], Lease | None] | None = None,
        *,
        nested: bool = False,
        location: Location | None = None,
    ) -> Callable[[SessionTx], tuple[bool, Lease | None]]:
        """The change that stores the prompt: removes reverted messages, adds the message and its parts, touches the session. Its
        `tools` map replaces the session's permission rules, unless it is `nested`. `location`: of a directory in use.

        The change returns whether the client had sent this message before, so that it is not stored again; and the lease.
        It raises NotFound, Conflict, TooManyPrompts; NotQueued if the prompt does not wait under `queued_id` any more."""
        prompt, message = prepared.input, prepared.message
        waits, tools = not prompt.no_reply, None if nested else prompt.tools
        info = message_row(message.info, prepared.content, waits=waits) if message else None
        parts = list(map(part_row, message.parts)) if message else []

        def store(tx: SessionTx) -> tuple[bool, Lease | None]:
            if message is None or info is None or _is_known(tx.connection, tx.session_id, prompt.message_id, prepared.content):
                if queued_id is not None:
                    tx.dequeue_prompt(queued_id)
                if waits and prompt.message_id is not None:
                    tx.open_prompt(prompt.message_id)
                return True, None
            session, waiting = tx.session_and_waiting_prompts() if waits else (tx.session(), 0)
            if waiting >= self._most_waiting:
                raise TooManyPrompts(tx.session_id, self._most_waiting)
            acquired = acquire(tx.connection) if acquire else None
            if queued_id is not None:
                tx.dequeue_prompt(queued_id, prompt.message_id)
            if session.revert is not None:
                remove_reverted(tx, session)
                session = tx.session()  # with the new sums
            tx.put_message(info)
            tx.put_parts(*parts)
            tx.update(_prompted(session, message.info, tools, location))
            return False, acquired

        return store


def _is_known(connection: Connection, session_id: str, message_id: str | None, content: str) -> bool:
    """Raises Conflict."""
    row = message_rows.input_hash(connection, session_id, message_id) if message_id else None
    if row is not None and row.input_hash != content:
        raise Conflict(f"Message {message_id} exists already and says something else. Use a new id for a new message.")
    return row is not None


def _prompted(session: Session, prompt: Message, tools: dict[str, bool] | None, location: Location | None) -> Session:
    """The session with nothing reverted any more, and with the agent and the model of its newest prompt."""
    time = session.time.model_copy(update={"updated": clock.now_ms()})
    session = session.model_copy(update={"revert": None, "time": time})
    if location is not None:
        session.no_undo = location.no_undo
    if isinstance(prompt, UserMessage):
        model, variant = prompt.model, prompt.variant or DEFAULT_VARIANT
        session.agent = prompt.agent
        session.model = SessionModel(id=model.model_id, provider_id=model.provider_id, variant=variant)
    if tools:
        session.permission = _rules(session, tools)
        check_rules_size(session.permission)
    return session


def _message(instance: Instance, prompted: PromptedSession, prompt: PromptInput) -> UserMessage:
    agent = instance.agent(prompt.agent)
    if prompt.model and not prompt.no_reply:
        instance.models.find(prompt.model)
    model = prompt.model or agent.model or prompted.last_model or instance.default_model()
    return UserMessage(
        id=prompt.message_id or ids.ascending("message"),
        session_id=prompted.session.id,
        time=UserTime(created=clock.now_ms()),
        agent=agent.name,
        model=model,
        system=prompt.system,
        tools=prompt.tools or None,
        variant=prompt.variant or (agent.variant if model == agent.model else None),
        format=prompt.format,
        deadline=None if prompt.deadline_seconds is None else clock.now_ms() + int(1000 * prompt.deadline_seconds),
    )


def renewed(message: MessageWithParts) -> MessageWithParts:
    """The message with new ids: clients sort messages by their ids, and others have come before this one."""
    info = message.info.model_copy(update={"id": ids.ascending("message"), "time": UserTime(created=clock.now_ms())})
    parts = [part.model_copy(update={"id": ids.ascending("part"), "message_id": info.id}) for part in message.parts]
    return MessageWithParts.model_construct(info=info, parts=parts)


def content_hash(prompt: PromptInput) -> str:
    """Without the time that the prompt may wait, and whether it wants an answer yet."""
    content = prompt.model_dump_json(exclude={"when_busy", "deadline_seconds", "no_reply"}, exclude_none=True)
    return hashlib.sha256(content.encode()).hexdigest()


def command_hash(command: CommandInput) -> str:
    """Hashes the command alone, because the output of its shell lines may differ each time."""
    return hashlib.sha256(b"command " + command.model_dump_json(exclude_none=True).encode()).hexdigest()


def check_part_ids(prompt: PromptInput) -> None:
    """Raises BadRequest."""
    seen: set[str] = set()
    for index, part in enumerate(prompt.parts):
        if part.id in seen:
            raise BadRequest(f"An earlier part has the id {part.id} already", ["parts", index, "id"], part.id)
        seen |= {part.id} if part.id else set()


async def check_format(prompt: PromptInput) -> None:
    """Raises BadRequest."""
    if not isinstance(prompt.format, JsonSchemaFormat):
        return
    if (prompt.format.retry_count or 0) > MAX_RETRIES:
        raise BadRequest(f"retryCount is at most {MAX_RETRIES}", ["format", "retryCount"], prompt.format.retry_count)
    try:
        await asyncio.to_thread(check_schema, prompt.format.schema_)
    except UnusableSchema as error:
        raise BadRequest(str(error), ["format", "schema", *error.path], prompt.format.wire()) from error


def _rules(session: Session, tools: dict[str, bool]) -> Ruleset:
    """The rules that the `tools` map stands for. A subagent's session keeps its own, which have its parent's limits: there the
    map can only take away."""
    rules = [Rule(permission=tool, pattern="*", action="allow" if on else "deny") for tool, on in tools.items()]
    if session.parent_id is None:
        return rules
    return [*(session.permission or []), *(rule for rule in rules if rule.action == "deny")]
