"""A change of one session, built step by step and committed as a whole: its writes and, in the same order, its events."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from app.bus.base import Event
from app.schema.errors import NotFound
from app.schema.event import (
    AnnouncedEvent,
    EventMessagePartRemoved,
    EventMessagePartUpdated,
    EventMessageRemoved,
    EventMessageUpdated,
    EventPromptDequeued,
    EventPromptQueued,
    EventSessionCreated,
    EventSessionDeleted,
    EventSessionDiff,
    EventSessionUpdated,
    EventTodoUpdated,
    MessageRef,
    PartRef,
    QueueRef,
    RenderedEvent,
    TodosOfSession,
)
from app.schema.message import Message
from app.schema.part import Part
from app.schema.session import FileDiff, Session, SessionStatus, Todo
from app.session import rows
from app.session.searched_text import created_time, text_row
from app.session.session_sums import NOTHING, Sums, sums_of_bodies
from app.session.step_usage import StepUsage
from app.storage.engine import Connection
from app.storage.history_copy import HistoryCopy
from app.storage.repositories import message_rows, pending_rows
from app.storage.repositories.session_rows import session_value
from app.storage.statements import Statements
from app.storage.writer import Chain, Change, Lease, SessionEvent
from app.util import clock

UNKNOWN_BASIS = '["unknown","unknown","unknown"]'


def _as_owned_by(owner: str, session: Session) -> Session:
    return session.model_copy(update={"owner": owner or None})


class NotQueued(NotFound):
    def __init__(self, queued_id: str) -> None:
        super().__init__(f"No prompt {queued_id} waits in the queue of this session: its turn has begun, or it was removed")


class SessionChange:
    def __init__(
        self, sql: Statements, directory: str, session_id: str, lease: Lease | None = None, chain: Chain | None = None
    ) -> None:
        self._sql = sql
        self._directory = directory
        self.session_id = session_id
        self.change = Change(lease=lease, chain=chain)
        self._created: dict[str, int] = {}
        """The times of messages that this change stores."""
        self.parts: list[Part] = []
        self.final_parts: list[str] = []
        """The parts that this change writes in full or removes. Text that streamed before is superseded."""
        self.deletes_session = False

    def announce(self, event: AnnouncedEvent | RenderedEvent, *, journaled: bool = True) -> None:
        self.change.events.append(Event.of(event, self._directory, self.session_id, journaled=journaled))

    def create_session(self, session: Session) -> None:
        """The change is refused where there is one of that id."""
        self.change.writes.append((self._sql.add_session, [rows.session_row(session)]))
        for event in (EventSessionCreated, EventSessionUpdated):
            self.announce(event.around_info(session.id, session.wire_json()))

    def update_session(self, session: Session) -> None:
        self._put_session(session)
        self._announce_session(session.id, EventSessionUpdated)

    def _announce_session(self, session_id: str, event: type[AnnouncedEvent], owner: str | None = None) -> None:
        """As the change stores it. To `owner`, if not to whom it belongs."""

        def show(session: bytes) -> Event:
            shown = Event.of(event.around_info(session_id, session), self._directory, session_id)
            return shown if owner is None else shown.stored(owner, None)

        self.change.events.append(SessionEvent(session_id, show))

    def transfer_session(self, session: Session, before: str) -> None:
        """Its owner is another one than `before`, for whom it is deleted; for the new one it is created."""
        self._put_session(session)
        gone = EventSessionDeleted.around_info(session.id, _as_owned_by(before, session).wire_json())
        self.change.events.append(Event.of(gone, self._directory, session.id).stored(before, None))
        self._announce_session(session.id, EventSessionCreated, session.owner or "")
        self._announce_session(session.id, EventSessionUpdated, session.owner or "")

    def put_session_unannounced(self, session: Session) -> None:
        """Stores it without an event; a later change announces it."""
        self._put_session(session)

    def delete_session(self, session: Session) -> None:
        """Foreign keys delete its messages, parts, todos, diff, share, pending requests and lease."""
        self.deletes_session = True
        self.change.writes.append((self._sql.delete_approvals, [{"gone": session.id}]))
        self.change.writes.append((self._sql.delete_session, [{"gone": session.id}]))
        self.announce(EventSessionDeleted.around_info(session.id, session.wire_json()))

    def put_message(self, message: Message, input_hash: str | None = None, *, waits: bool = False) -> None:
        """`input_hash` and `waits` keep their first values when a message is stored again."""
        row = rows.message_row(message, input_hash, waits=waits)
        self.change.writes.append((self._sql.put_message, [row]))
        self._created[message.id] = message.time.created
        info = rows.message_json(message.session_id, message.id, row["parent_id"], row["body"])
        self.announce(EventMessageUpdated.around_info(self.session_id, info))

    def put_part(self, part: Part) -> None:
        row = rows.part_row(part)
        self._put_parts([row])
        self.parts.append(part)
        self.final_parts.append(part.id)
        text = rows.part_json(part.session_id, part.message_id, part.id, row["body"])
        self.announce(EventMessagePartUpdated.around_part(self.session_id, text))

    def add_usage(self, usage: StepUsage) -> None:
        """Into the ledger, together with the end of the step that took it."""
        self.change.writes.append((self._sql.add_step_usage, [usage.row(self.session_id)]))

    def count_step(self, usage: StepUsage) -> None:
        """Into the ledger and the session's sums, together with the part that ends the step."""
        sums = Sums.of(usage.cost, usage.tokens)._asdict()
        self.change.writes.extend(self._sql.count_step(usage.row(self.session_id), sums))
        self._announce_session(self.session_id, EventSessionUpdated)

    def add_to_sums(self, added: Sums) -> None:
        """For parts that are added, changed or removed outside of a turn."""
        if added != NOTHING:
            self.change.writes.append(self._sql.add_to_sums(self.session_id, added._asdict()))
            self._announce_session(self.session_id, EventSessionUpdated)

    def replace_part(self, part: Part) -> None:
        """By whatever a client makes of it: nothing of what it said before is found."""
        gone = {"of_session": part.session_id, "of_message": part.message_id, "of_part": part.id}
        self.change.writes.append((self._sql.delete_part_text, [gone]))
        self.put_part(part)

    def _put_parts(self, parts: Sequence[Mapping[str, Any]]) -> None:
        now = clock.now_ms()
        texts = [text_row(part, self._created.get(part["message_id"], now)) for part in parts]
        self.change.writes.extend(self._sql.put_parts(parts, texts))

    def remove_message(self, message_id: str) -> None:
        gone = {"of_session": self.session_id, "gone": message_id}
        self.change.writes.append((self._sql.delete_message_parts, [gone]))
        self.change.writes.append((self._sql.delete_message, [gone]))
        self.announce(EventMessageRemoved(properties=MessageRef(session_id=self.session_id, message_id=message_id)))

    def enqueue_prompt(self, row: Mapping[str, Any]) -> None:
        self.change.writes.append((self._sql.put_queued_prompt, [row]))
        queued = QueueRef(session_id=self.session_id, queued_id=row["id"], message_id=row["message_id"])
        self.announce(EventPromptQueued(properties=queued))

    def dequeue_prompt(self, queued_id: str, message_id: str | None = None) -> None:
        """The change is refused with NotQueued when the prompt waits no more."""

        def require(connection: Connection) -> None:
            if not pending_rows.is_queued(connection, self.session_id, queued_id):
                raise NotQueued(queued_id)

        self.change.work = require
        self.change.writes.append((self._sql.delete_queued_prompt, [{"gone": queued_id}]))
        dequeued = QueueRef(session_id=self.session_id, queued_id=queued_id, message_id=message_id)
        self.announce(EventPromptDequeued(properties=dequeued))

    def remove_part(self, message_id: str, part_id: str) -> None:
        gone = {"of_session": self.session_id, "of_message": message_id, "gone": part_id}
        self.change.writes.append((self._sql.delete_part, [gone]))
        self.final_parts.append(part_id)
        removed = PartRef(session_id=self.session_id, message_id=message_id, part_id=part_id)
        self.announce(EventMessagePartRemoved(properties=removed))

    def copy_history(self, session: Session, copy: HistoryCopy) -> None:
        """Creates a session with messages of another one, and announces them message by message."""
        self.change.writes.append((self._sql.add_session, [rows.session_row(session)]))
        self.change.writes.extend(self._sql.copy_history(copy))
        self.change.events_after = self._count_and_announce_history

    def _count_and_announce_history(self, connection: Connection) -> list[Event]:
        stored = message_rows.all_messages(connection, self.session_id)
        steps = [row.body for row in stored.parts if row.type == "step-finish"]
        statement, added = self._sql.add_to_sums(self.session_id, sums_of_bodies(steps)._asdict())
        session = orjson.dumps(session_value(connection.execute(statement, added[0]).one()))
        created = [event.around_info(self.session_id, session) for event in (EventSessionCreated, EventSessionUpdated)]
        history = (*created, *_history_events(self.session_id, stored))
        return [Event.of(event, self._directory, self.session_id) for event in history]

    def put_history(
        self,
        messages: Sequence[Mapping[str, Any]],
        parts: Sequence[Mapping[str, Any]],
        todos: Sequence[Todo],
        diffs: Sequence[FileDiff],
    ) -> None:
        """Inserts all that a new session begins with. Only the session's creation is announced: nobody has read the rest yet."""
        self._put_rows(messages, parts)
        for statement, values in ((self._sql.put_todo, todos), (self._sql.put_diff, diffs)):
            if values:
                body = rows.json_array([value.wire_json() for value in values]).decode()
                self.change.writes.append((statement, [{"session_id": self.session_id, "body": body}]))

    def _put_rows(self, messages: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]]) -> None:
        if messages:
            self.change.writes.append((self._sql.put_message, messages))
        self._created.update((message["id"], created_time(message["body"])) for message in messages)
        if parts:
            self._put_parts(parts)

    def close_prompts(self) -> None:
        """What was prompted up to the newest answer has been answered, or given up on."""
        self.change.writes.append((self._sql.close_prompts, [{"of_session": self.session_id}]))

    def put_status(self, status: SessionStatus) -> None:
        """What other servers show, while this one holds the session."""
        shown = {"lease_session": self.session_id, "new_status": status.wire_json().decode(), "new_directory": self._directory}
        self.change.writes.append((self._sql.put_lease_status, [shown]))

    def put_todos(self, todos: Sequence[Todo]) -> None:
        body = rows.json_array([todo.wire_json() for todo in todos]).decode()
        self.change.writes.append((self._sql.put_todo, [{"session_id": self.session_id, "body": body}]))
        self.announce(EventTodoUpdated(properties=TodosOfSession(session_id=self.session_id, todos=list(todos))))

    def put_diff(self, diffs: Sequence[FileDiff]) -> None:
        """Stores a diff that does not come from the session's trees."""
        self.put_diff_json(rows.json_array([diff.wire_json() for diff in diffs]))
        self.forget_diff_basis()

    def put_diff_json(self, diffs: bytes) -> None:
        self.change.writes.append((self._sql.put_diff, [{"session_id": self.session_id, "body": diffs.decode()}]))
        self.announce_diff(diffs)

    def announce_diff(self, diffs: bytes) -> None:
        properties = b'{"sessionID":%b,"diff":%b}' % (orjson.dumps(self.session_id), diffs)
        self.announce(EventSessionDiff.around(properties))

    def forget_diff_basis(self) -> None:
        """The next turn computes the session's diff again, whatever its trees."""
        self.put_diff_basis(UNKNOWN_BASIS)

    def put_diff_basis(self, basis: str) -> None:
        """Stores what the stored diff was computed from."""
        self.change.writes.append((self._sql.put_diff_basis, [{"of_session": self.session_id, "basis": basis}]))

    def put_share(self, share_id: str) -> None:
        row = {"session_id": self.session_id, "id": share_id, "created": clock.now_ms()}
        self.change.writes.append((self._sql.put_share, [row]))

    def delete_share(self) -> None:
        self.change.writes.append((self._sql.delete_share, [{"gone": self.session_id}]))

    def _put_session(self, session: Session) -> None:
        self.change.writes.append((self._sql.put_session, [rows.session_row(session)]))


def _history_events(session_id: str, stored: message_rows.StoredMessages) -> Iterator[RenderedEvent]:
    for message in rows.message_values(session_id, stored):
        yield EventMessageUpdated.around_info(session_id, orjson.dumps(message["info"]))
        for part in message["parts"]:
            yield EventMessagePartUpdated.around_part(session_id, orjson.dumps(part))
