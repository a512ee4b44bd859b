"""Sessions as clients see them: create, read, rename, delete, and the messages in them."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import orjson

from app.permissions.rules import inherited_rules, rules_below, with_rules_appended, within_limits
from app.project.location import Location
from app.record import tables
from app.record.engine import Connection
from app.record.repositories import message_rows, session_rows
from app.record.repositories.session_rows import SessionFilter
from app.record.tables import parsed
from app.schema.errors import BadRequest, MessageNotFound, NotFound, ServiceError, SessionNotFound
from app.schema.event import (
    AnnouncedEvent,
    EventSessionNextAgentSwitched,
    EventSessionNextModelSwitched,
    SwitchedAgent,
    SwitchedModel,
)
from app.schema.message import AssistantMessage, UserMessage
from app.schema.part import Part
from app.schema.permission import Ruleset
from app.schema.session import CreateInput, ProjectSummary, Session, SessionModel, UpdateInput
from app.sessions.fork import new_session
from app.sessions.live import LiveSessions
from app.sessions.rows import json_array, part_row, session_values
from app.sessions.session_tx import UNKNOWN_BASIS, SessionTx
from app.sessions.store import Page, Store
from app.sessions.usage import NOTHING, check_rules_size, sums_of
from app.util import clock, ids


class MessageReverted(ServiceError):
    """The message is reverted, and unrevert needs it unchanged to restore the files."""

    status = 409
    name = "MessageRevertedError"

    def __init__(self, session_id: str, message_id: str) -> None:
        super().__init__(
            f"Message {message_id} is reverted, and unrevert needs it as it is. "
            "Unrevert the session first, or send a prompt, which removes reverted messages permanently.",
            sessionID=session_id,
            messageID=message_id,
        )


class SessionService:
    def __init__(self, store: Store, live: LiveSessions) -> None:
        self._store = store
        self._live = live

    async def create(self, location: Location, wanted: CreateInput, owner: str = "", session_id: str | None = None) -> Session:
        """A child gets its parent's owner, another session `owner`. With a `session_id`, which the client has chosen, it
        is created once, however often the request is sent."""
        if owner:
            self._store.note_owners()

        def create(tx: SessionTx) -> Session:
            if session_id is not None:
                with suppress(NotFound):
                    return tx.session()
            return _create(tx, location, wanted, owner)

        return await self._store.write(session_id or ids.descending("session"), location.directory, create)

    async def require_visible(self, session_id: str, may_see: Callable[[str], bool]) -> None:
        """`may_see` is given the session's owner. Raises NotFound."""
        owners = await self._store.query(session_rows.owners, [session_id])
        if session_id not in owners or not may_see(owners[session_id]):
            raise SessionNotFound(session_id)

    async def owned(self, session_ids: Iterable[str], owner: str) -> frozenset[str]:
        """The sessions among these that belong to a user."""
        owners = await self._store.query(session_rows.owners, list(session_ids))
        return frozenset(session_id for session_id, of in owners.items() if of == owner)

    async def page_of_all(self, wanted: SessionFilter, limit: int, may_enter: Callable[[str], bool]) -> Page:
        """Sessions of all projects, newest update first, each with its project, whose checkout is the session's directory where
        `may_enter` does not allow the main one. Cursor: sessions updated before this time are on the next page."""
        found, projects, cursor = await self._store.query(_with_projects, wanted, limit)
        sessions = session_values(found)
        for session in sessions:
            project = session["project"] = projects.get(session["projectID"])
            if project is not None and project["worktree"] != "/" and not may_enter(project["worktree"]):
                session["project"] = {**project, "worktree": session["directory"]}
        return Page(orjson.dumps(sessions), cursor)

    async def update(self, location: Location, session_id: str, wanted: UpdateInput) -> Session:
        """Changes the title, the archive time, rules or metadata. New rules apply from a running turn's next step on, and
        restrict the descendants too. A child session's rules can only be made stricter."""

        def update(tx: SessionTx) -> Session:
            session = tx.session()
            limits = _rules(_parent(tx, session.parent_id))
            tx.update(_edited(session, wanted, limits))
            if wanted.permission:
                _restrict_descendants(tx, session)
            return session

        return await self._store.write(session_id, location.directory, update)

    async def switch_agent(self, location: Location, session_id: str, agent: str) -> None:
        """For later prompts that name no agent."""
        message_id, now = ids.ascending("message"), clock.now_ms()
        switched = SwitchedAgent(session_id=session_id, timestamp=now, message_id=message_id, agent=agent)
        await self._switch(location, session_id, EventSessionNextAgentSwitched(properties=switched), agent=agent)

    async def switch_model(self, location: Location, session_id: str, model: SessionModel) -> None:
        """For later prompts that name no model."""
        message_id, now = ids.ascending("message"), clock.now_ms()
        switched = SwitchedModel(session_id=session_id, timestamp=now, message_id=message_id, model=model)
        await self._switch(location, session_id, EventSessionNextModelSwitched(properties=switched), model=model)

    async def _switch(self, location: Location, session_id: str, event: AnnouncedEvent, **update: object) -> None:
        def switch(tx: SessionTx) -> None:
            tx.edit(lambda session: session.model_copy(update=update))
            tx.announce(event)

        await self._store.write(session_id, location.directory, switch)

    async def transfer(self, location: Location, session_id: str, owner: str) -> None:
        """Gives the session and its descendants to another user; the empty name: to nobody. To the former owner the sessions are
        announced as deleted; their events so far stay that owner's. Raises NotFound, SessionBusy, BadRequest for a child."""
        if owner:
            self._store.note_owners()
        async with AsyncExitStack() as holds:
            await self._hold_tree(session_id, holds)
            await self._store.write(session_id, location.directory, lambda tx: self._transfer(tx, owner))

    async def _hold_tree(self, session_id: str, holds: AsyncExitStack) -> None:
        """Holds a session and its descendants, including those that are made meanwhile. Parents come first: of two requests for
        one tree, the second waits and holds nothing that the first needs."""
        held: set[str] = set()
        while new := [each.id for each in await self._store.session_tree(session_id) if each.id not in held]:
            for each in reversed(new):
                await holds.enter_async_context(self._live.get(each).editing())
            held.update(new)

    def _transfer(self, tx: SessionTx, owner: str) -> None:
        """Transfers all of the tree, or nothing if another server runs a session of it."""
        tree = tx.tree()
        session = tree[-1]
        if session.parent_id is not None:
            raise BadRequest("A child session belongs to whom its parent belongs to: give that away", ["owner"], owner)
        if session.owner == (owner or None):
            return
        for each in reversed(tree):
            self._live.leases.require_free(tx.connection, each.id)
            tx.of(each.id).transfer(each, owner)

    async def remove(
        self,
        directory: str,
        session_id: str,
        allows: Callable[[list[Session]], bool] = lambda _: True,
        check: Callable[[Connection], None] | None = None,
    ) -> list[Session]:
        """Deletes a session and its descendants in one transaction, announces children first, and returns them. The caller holds
        all of them. Does nothing unless `allows` is true of them in the transaction, which `check` may refuse too."""

        def remove(tx: SessionTx) -> list[Session]:
            tree = tx.tree()
            if not allows(tree):
                return []
            if check is not None:
                check(tx.connection)
            for session in tree:
                tx.of(session.id).delete(session)
            return tree

        return await self._store.write(session_id, directory, remove)

    async def todos_json(self, session_id: str) -> bytes:
        return await self._body_of(session_id, tables.TODO)

    async def diff_json(self, session_id: str, message_id: str | None = None) -> bytes:
        """The diff of the whole session, or of one prompt."""
        if message_id is None:
            return await self._body_of(session_id, tables.DIFF)
        info = (await self._store.message(session_id, message_id)).info
        diffs = info.summary.diffs if isinstance(info, UserMessage) and info.summary else []
        return json_array([diff.wire_json() for diff in diffs])

    async def _body_of(self, session_id: str, table: object) -> bytes:
        await self._store.session_json(session_id)
        body = await self._store.query(session_rows.body_of, table, session_id)
        return body.encode() if body else b"[]"

    async def put_part(self, location: Location, part: Part) -> Part:
        """Replaces or adds a part for a client. Raises NotFound, SessionBusy, MessageReverted, as the removals do."""
        row = part_row(part)

        def put(tx: SessionTx, parts: Sequence[Part]) -> None:
            tx.replace_part(row)
            tx.add_to_sums(sums_of([part]).plus(sums_of(each for each in parts if each.id == part.id), -1))

        await self._edit(location, part.session_id, part.message_id, put)
        return part

    async def remove_part(self, location: Location, session_id: str, message_id: str, part_id: str) -> None:
        def remove(tx: SessionTx, parts: Sequence[Part]) -> None:
            tx.remove_part(message_id, part_id)
            tx.add_to_sums(NOTHING.plus(sums_of(part for part in parts if part.id == part_id), -1))

        await self._edit(location, session_id, message_id, remove)

    async def remove_message(self, location: Location, session_id: str, message_id: str) -> None:
        def remove(tx: SessionTx, parts: Sequence[Part]) -> None:
            tx.remove_message(message_id)
            tx.add_to_sums(NOTHING.plus(sums_of(parts), -1))

        await self._edit(location, session_id, message_id, remove)

    async def _edit(
        self, location: Location, session_id: str, message_id: str, edit: Callable[[SessionTx, Sequence[Part]], None]
    ) -> None:
        """Holds the session. `edit` is given the message's parts."""

        def change(tx: SessionTx) -> None:
            session, message = tx.session(), tx.message(message_id)
            if message is None:
                raise MessageNotFound(session_id, message_id)
            if session.revert is not None and message_rows.is_at_or_after(
                tx.connection, session_id, message_id, session.revert.message_id
            ):
                raise MessageReverted(session_id, message_id)
            self._live.leases.require_free(tx.connection, session_id)
            if isinstance(message.info, AssistantMessage):
                tx.put_diff_basis(UNKNOWN_BASIS)  # the session's snapshots and patches may be gone
            edit(tx, message.parts)

        async with self._live.get(session_id).editing():
            await self._store.write(session_id, location.directory, change)


def _with_projects(
    connection: Connection, wanted: SessionFilter, limit: int
) -> tuple[Sequence[Any], dict[str, dict[str, Any]], int | None]:
    found, cursor = session_rows.updated_sessions(connection, wanted, limit)
    projects = [parsed(body) for body in session_rows.projects(connection, {row.project_id for row in found})]
    summaries = [ProjectSummary.model_validate(project) for project in projects if project is not None]
    return found, {summary.id: summary.wire() for summary in summaries}, cursor


def _create(tx: SessionTx, location: Location, wanted: CreateInput, owner: str) -> Session:
    parent = _parent(tx, wanted.parent_id)
    rules = inherited_rules(_rules(parent), wanted.permission or [])
    check_rules_size(rules)
    session = new_session(location, wanted.title, wanted.parent_id, rules or wanted.permission)
    session.id = tx.session_id
    session.owner = parent.owner if parent else owner or None
    session.agent, session.model, session.metadata = wanted.agent, wanted.model, wanted.metadata
    tx.create(session)
    return session


def _parent(tx: SessionTx, parent_id: str | None) -> Session | None:
    """None also for an unknown parent: clients may name any id."""
    if parent_id is None:
        return None
    with suppress(NotFound):
        return tx.of(parent_id).session()
    return None


def _rules(session: Session | None) -> Ruleset:
    return (session.permission if session else None) or []


def _edited(session: Session, wanted: UpdateInput, limits: Ruleset) -> Session:
    """Changes and returns the session. `limits`: the parent's rules."""
    if wanted.title is not None:
        session.title = wanted.title
    if wanted.time and wanted.time.archived is not None:
        session.time.archived = wanted.time.archived
    if wanted.metadata is not None:
        session.metadata = wanted.metadata
    if wanted.pinned is not None:
        session.pinned = wanted.pinned or None
    if wanted.permission is not None:
        session.permission = _with_rules(session, wanted.permission, limits)
        check_rules_size(session.permission)
    if wanted.metadata is not None or wanted.permission is not None:
        session.time.updated = clock.now_ms()
    return session


def _with_rules(session: Session, added: Ruleset, limits: Ruleset) -> Ruleset:
    rules = session.permission or []
    if session.parent_id is None:
        return with_rules_appended(rules, added)
    return within_limits(with_rules_appended(rules, within_limits(added, rules)), limits)


def _restrict_descendants(tx: SessionTx, top: Session) -> None:
    _, *descendants = reversed(tx.tree())
    below = [(each.id, each.parent_id or "", _rules(each)) for each in descendants]
    rules = rules_below((top.id, _rules(top)), below)
    for session in descendants:
        if rules[session.id] != _rules(session):
            session.permission = rules[session.id]
            tx.of(session.id).update(session)


def check_part_is_at(part: Part, session_id: str, message_id: str, part_id: str) -> None:
    """Raises BadRequest when a part's ids are not those of the path it was sent to."""
    for field, sent, expected in (
        ("id", part.id, part_id),
        ("messageID", part.message_id, message_id),
        ("sessionID", part.session_id, session_id),
    ):
        if sent != expected:
            raise BadRequest(f"Part mismatch: {field} is {sent!r}, the path says {expected!r}", [field], part.wire())
