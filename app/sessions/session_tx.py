"""What a change of one session may do in its transaction: what it writes and, in the same order, what it announces."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import orjson

from app.events.bus.base import Event
from app.record.engine import Connection
from app.record.repositories import message_rows, session_rows, work_rows
from app.record.repositories.message_rows import StoredMessages
from app.record.statements import Put
from app.record.writer import Row, Tx
from app.schema import event as events
from app.schema.base import Wire
from app.schema.errors import MessageNotFound, NotFound, SessionNotFound
from app.schema.event import AnnouncedEvent, RenderedEvent
from app.schema.message import MessageWithParts, UserMessage
from app.schema.session import FileDiff, Session, SessionStatus, Todo
from app.sessions import rows
from app.sessions.rows import created_time, text_row
from app.sessions.usage import NOTHING, StepUsage, Sums, sums_of_bodies
from app.util import clock

UNKNOWN_BASIS = '["unknown","unknown","unknown"]'


class NotQueued(NotFound):
    def __init__(self, queued_id: str) -> None:
        super().__init__(f"No prompt {queued_id} waits in the queue of this session: its turn has begun, or it was removed")


class SessionTx:
    """Callers make the rows of messages and parts before they post a change (`rows.message_row`, `rows.part_row`): values may go
    on changing until it runs, and on PostgreSQL a transaction that writes keeps all servers' writers waiting. `directory`: whose
    listeners receive the change. `tx`: for changes of no session."""

    def __init__(self, tx: Tx, session_id: str, directory: str) -> None:
        self.tx = tx
        self.session_id = session_id
        self.directory = directory
        self._messages: dict[str, Row] = {}
        """The messages that this change stores."""

    @property
    def connection(self) -> Connection:
        """For queries, which see what was put so far."""
        return self.tx.connection

    def of(self, session_id: str) -> "SessionTx":
        """For another session in the same change."""
        return SessionTx(self.tx, session_id, self.directory)

    def announce(self, event: AnnouncedEvent | RenderedEvent, *, owner: str | None = None) -> None:
        """`owner`: who receives the event, if not the session's owner."""
        announced = Event.of(event, self.directory, self.session_id)
        self.tx.announce(announced if owner is None else announced.stored(owner, None))

    # The session.

    def session(self) -> Session:
        """Raises SessionNotFound, DamagedSession."""
        return rows.read_session(self.session_id, self._row(session_rows.stored_session))

    def session_and_prompt(self, prompt_id: str) -> tuple[Session, UserMessage, str | None]:
        """The third value: what the session's stored diffs were computed from. Raises SessionNotFound, MessageNotFound."""
        found = self._row(session_rows.session_and_prompt, prompt_id)
        if found.prompt is None:
            raise MessageNotFound(self.session_id, prompt_id)
        prompt = rows.read_prompt(self.session_id, prompt_id, found.prompt)
        return rows.read_session(self.session_id, found), prompt, found.diff_basis

    def session_and_waiting_prompts(self) -> tuple[Session, int]:
        """The session, and the number of prompts that its turn has yet to answer. Raises SessionNotFound."""
        found = self._row(session_rows.session_and_waiting_prompts)
        return rows.read_session(self.session_id, found), found.waiting

    def _row(self, query: Callable[..., Any], *values: str) -> Any:
        found = query(self.connection, self.session_id, *values)
        if found is None:
            raise SessionNotFound(self.session_id)
        return found

    def tree(self) -> list[Session]:
        """The session and all its descendants, children before their parents. Raises SessionNotFound."""
        found = session_rows.session_tree(self.connection, self.session_id)
        if not found:
            raise SessionNotFound(self.session_id)
        return [rows.read_session(self.session_id, row) for row in found]

    def create(self, session: Session) -> None:
        """The change is refused if there is a session of that id."""
        self.tx.put(self.tx.sql.add_session, rows.session_row(session))
        self._announce_created(session.wire_json(), session.owner or "")

    def edit(self, change: Callable[[Session], Session], *, touch: bool = True) -> Session:
        """`touch` sets `time.updated`."""
        session = change(self.session())
        if touch:
            session = session.model_copy(update={"time": session.time.model_copy(update={"updated": clock.now_ms()})})
        self.update(session)
        return session

    def update(self, session: Session) -> None:
        """`session` must have been read in this transaction, or changes of others meanwhile would be lost."""
        self.put_unannounced(session)
        self.announce(events.EventSessionUpdated.around_info(self.session_id, session.wire_json()))

    def put_unannounced(self, session: Session) -> None:
        """Stores the session without an event; a later change announces it."""
        self.tx.put(self.tx.sql.put_session, rows.session_row(session))

    def transfer(self, session: Session, owner: str) -> None:
        """Announces the session to its former owner as deleted, to the new one as created."""
        self.announce(events.EventSessionDeleted.around_info(self.session_id, session.wire_json()), owner=session.owner or "")
        session = session.model_copy(update={"owner": owner or None})
        self.put_unannounced(session)
        self._announce_created(session.wire_json(), owner)

    def _announce_created(self, session: bytes, owner: str | None = None) -> None:
        for event in (events.EventSessionCreated, events.EventSessionUpdated):
            self.announce(event.around_info(self.session_id, session), owner=owner)

    def delete(self, session: Session) -> None:
        """Foreign keys delete its messages, parts, todos, diff, share, pending requests and lease."""
        for statement in (self.tx.sql.delete_approvals, self.tx.sql.delete_session):
            self.tx.execute(statement, {"gone": self.session_id})
        self.announce(events.EventSessionDeleted.around_info(self.session_id, session.wire_json()), owner=session.owner or "")

    # Messages and parts.

    def put_message(self, row: Row) -> None:
        """`input_hash` and `open` keep their first values when a prompt is stored again."""
        self.tx.put(self.tx.sql.put_message, row)
        self._messages[row["id"]] = row
        info = rows.message_value(self.session_id, row["id"], row["parent_id"], row["body"])
        self.announce(events.EventMessageUpdated.around_info(self.session_id, orjson.dumps(info)))

    def put_parts(self, *parts: Row) -> None:
        """A part without a time of its own has that of its message, if this change stores that too."""
        self.tx.put(self.tx.sql.put_part, *parts)
        for row in parts:
            message = self._messages.get(row["message_id"])
            text = text_row(row, created_time(message["body"]) if message else clock.now_ms())
            if text is not None:
                self.tx.put(self.tx.sql.put_part_text, text)
            part = rows.part_value(self.session_id, row["message_id"], row["id"], row["body"])
            self.announce(events.EventMessagePartUpdated.around_part(self.session_id, orjson.dumps(part)))

    def replace_part(self, row: Row) -> None:
        """For a change by a client, which may leave no text to search: `put_parts` alone would keep the earlier one."""
        gone = {"of_session": self.session_id, "of_message": row["message_id"], "of_part": row["id"]}
        self.tx.execute(self.tx.sql.delete_part_text, gone)
        self.put_parts(row)

    def remove_message(self, message_id: str) -> None:
        gone = {"of_session": self.session_id, "gone": message_id}
        for statement in (self.tx.sql.delete_message_parts, self.tx.sql.delete_message):
            self.tx.execute(statement, gone)
        self.announce(events.EventMessageRemoved(properties=events.MessageRef(session_id=self.session_id, message_id=message_id)))

    def remove_part(self, message_id: str, part_id: str) -> None:
        gone = {"of_session": self.session_id, "of_message": message_id, "gone": part_id}
        self.tx.execute(self.tx.sql.delete_part, gone)
        removed = events.PartRef(session_id=self.session_id, message_id=message_id, part_id=part_id)
        self.announce(events.EventMessagePartRemoved(properties=removed))

    def message(self, message_id: str) -> MessageWithParts | None:
        """None also for a damaged message."""
        stored = message_rows.some_messages(self.connection, self.session_id, [message_id])
        return next(iter(rows.read_messages(self.session_id, stored)), None)

    def messages(self) -> list[MessageWithParts]:
        """The whole history, oldest first."""
        return rows.read_messages(self.session_id, message_rows.all_messages(self.connection, self.session_id))

    # Prompts.

    def close_prompts(self) -> None:
        """The prompts up to the newest answer wait no more: each has been answered or given up."""
        self.tx.execute(self.tx.sql.close_prompts, {"of_session": self.session_id})

    def open_prompt(self, message_id: str) -> None:
        """The prompt waits for an answer, which it may not have wanted when it was stored. Does nothing if it has one."""
        self.tx.execute(self.tx.sql.open_prompt, {"of_session": self.session_id, "of_message": message_id})

    def enqueue_prompt(self, row: Row) -> None:
        self.tx.put(self.tx.sql.put_queued_prompt, row)
        queued = events.QueueRef(session_id=self.session_id, queued_id=row["id"], message_id=row["message_id"])
        self.announce(events.EventPromptQueued(properties=queued))

    def dequeue_prompt(self, queued_id: str, message_id: str | None = None) -> None:
        """Raises NotQueued if the prompt does not wait any more."""
        if not work_rows.is_queued(self.connection, self.session_id, queued_id):
            raise NotQueued(queued_id)
        self.tx.execute(self.tx.sql.delete_queued_prompt, {"gone": queued_id})
        dequeued = events.QueueRef(session_id=self.session_id, queued_id=queued_id, message_id=message_id)
        self.announce(events.EventPromptDequeued(properties=dequeued))

    # Sums.

    def add_usage(self, usage: StepUsage) -> None:
        """Adds to the ledger alone: a title's call, or an answer that no step-finish part counted."""
        self.tx.put(self.tx.sql.add_step_usage, usage.row(self.session_id))

    def count_step(self, usage: StepUsage) -> None:
        """For a step-finish part, in its commit: adds to the ledger and, unless that has the step, to the session's sums."""
        step = {"of_session": self.session_id, "of_message": usage.message_id, "of_step": usage.id}
        self._add_to_session(self.tx.sql.count_in_session, {**step, **Sums.of(usage.cost, usage.tokens).added()})
        self.add_usage(usage)

    def add_to_sums(self, added: Sums) -> None:
        """For parts that are added, changed or removed outside of a turn."""
        if added != NOTHING:
            self._add_to_session(self.tx.sql.add_to_session, {"of_session": self.session_id, **added.added()})

    def _add_to_session(self, statement: Any, values: Row) -> None:
        stored = self.tx.execute(statement, values).one_or_none()  # none: the step was counted before, or the session is gone
        shown = session_rows.session_json(stored) if stored is not None else None
        if shown is not None:
            self.announce(events.EventSessionUpdated.around_info(self.session_id, shown))

    # Other values of a session.

    def put_status(self, status: SessionStatus) -> None:
        """The status that other servers show, while this one holds the session."""
        shown = {"lease_session": self.session_id, "new_status": status.wire_json().decode(), "new_directory": self.directory}
        self.tx.execute(self.tx.sql.put_lease_status, shown)

    def put_todos(self, todos: Sequence[Todo]) -> None:
        self._put_body(self.tx.sql.put_todo, todos)
        self.announce(events.EventTodoUpdated(properties=events.TodosOfSession(session_id=self.session_id, todos=list(todos))))

    def put_diff(self, diffs: Sequence[FileDiff]) -> None:
        """Stores a diff that was not computed from the session's trees: the next turn computes it again in any case."""
        self.put_diff_json(rows.json_array([diff.wire_json() for diff in diffs]))
        self.put_diff_basis(UNKNOWN_BASIS)

    def put_diff_json(self, diffs: bytes) -> None:
        self.tx.put(self.tx.sql.put_diff, {"session_id": self.session_id, "body": diffs.decode()})
        self.announce_diff(diffs)

    def announce_diff(self, diffs: bytes) -> None:
        self.announce(events.EventSessionDiff.of_json(sessionID=self.session_id, diff=orjson.Fragment(diffs)))

    def put_diff_basis(self, basis: str) -> None:
        """Stores what the stored diff was computed from."""
        self.tx.put(self.tx.sql.put_diff_basis, {"of_session": self.session_id, "basis": basis})

    def put_share(self, share_id: str) -> None:
        self.tx.put(self.tx.sql.put_share, {"session_id": self.session_id, "id": share_id, "created": clock.now_ms()})

    def delete_share(self) -> None:
        self.tx.execute(self.tx.sql.delete_share, {"gone": self.session_id})

    def _put_body(self, put: Put, items: Sequence[Wire]) -> None:
        body = rows.json_array([item.wire_json() for item in items]).decode()
        self.tx.put(put, {"session_id": self.session_id, "body": body})

    # Whole histories.

    def copy_history(self, session: Session, copy: Row) -> None:
        """Creates the session with messages of another one, and announces them message by message. `copy`: the parameters of
        `Statements.copy_history`."""
        self.tx.put(self.tx.sql.add_session, rows.session_row(session))
        for statement in self.tx.sql.copy_history:
            self.tx.execute(statement, copy)
        stored = message_rows.all_messages(self.connection, self.session_id)
        steps = [row.body for row in stored.parts if row.type == "step-finish"]
        sums = {"of_session": self.session_id, **sums_of_bodies(steps).added()}
        self._announce_created(orjson.dumps(session_rows.session_value(self.tx.execute(self.tx.sql.add_to_session, sums).one())))
        parts = {message_id: list(group) for message_id, group in groupby(stored.parts, lambda row: row.message_id)}
        for row in stored.messages:
            self._announce_message(StoredMessages([row], parts.get(row.id, ())))

    def _announce_message(self, stored: StoredMessages) -> None:
        for message in rows.message_values(self.session_id, stored):  # none if it is damaged
            self.announce(events.EventMessageUpdated.around_info(self.session_id, orjson.dumps(message["info"])))
            for part in message["parts"]:
                self.announce(events.EventMessagePartUpdated.around_part(self.session_id, orjson.dumps(part)))

    def put_history(
        self,
        messages: Sequence[Row],
        parts: Sequence[Row],
        texts: Sequence[Row],
        todos: Sequence[Todo] = (),
        diffs: Sequence[FileDiff] = (),
    ) -> None:
        """Puts what a new session begins with. Only the session's creation is announced, as nobody has read the rest yet.
        `texts`: of the parts, for the search."""
        self.tx.put(self.tx.sql.put_message, *messages)
        self.tx.put(self.tx.sql.put_part, *parts)
        self.tx.put(self.tx.sql.put_part_text, *texts)
        if todos:
            self._put_body(self.tx.sql.put_todo, todos)
        if diffs:
            self._put_body(self.tx.sql.put_diff, diffs)
