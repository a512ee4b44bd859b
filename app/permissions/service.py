"""Permission requests: what the rules neither allow nor deny waits for the user's reply. Replies of `always` are stored.

PermissionNotGranted
├── PermissionDenied                a rule denies it
├── PermissionVetoed                a plugin denies it
├── PermissionRejected              the user rejects it: the turn stops after this step
└── PermissionRejectedWithMessage   the user rejects it and says what to do instead: the turn goes on
"""

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import orjson

from app.events.bus.base import Event
from app.events.telemetry.observer import Observer
from app.permissions.pending_requests import (
    LeaseOfRun,
    PendingRequest,
    PendingRequests,
    RequestKind,
    RequestNotPending,
    Resolution,
)
from app.permissions.rules import Subject, decide_permission, rules_for
from app.project.location import Location
from app.record.engine import Connection, Database, StorageError
from app.record.repositories import session_rows
from app.record.statements import statements
from app.record.writer import Row, Writer
from app.schema.errors import TooMany
from app.schema.event import EventPermissionAsked, EventPermissionReplied, PermissionReply
from app.schema.permission import Action, PermissionRequest, Reply, Rule, Ruleset

PREFIX = "psv_"
log = logging.getLogger(__name__)
LONG_COMPARISON = 200_000
"""In characters: of all rules, times those of all patterns that are compared with them."""
MAX_OF_SESSION = 100
"""With so many waiting requests in a session clients may add none."""
PluginDecision = Callable[[PermissionRequest, Action], Awaitable[Action]]
"""The plugins' decision, given the request and the rules' action (`allow` or `ask`)."""


class PermissionNotGranted(Exception):
    pass


class PermissionDenied(PermissionNotGranted):
    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules
        super().__init__(
            "A permission rule forbids this tool call. The rules that apply: " + json.dumps([rule.wire() for rule in rules])
        )


class PermissionVetoed(PermissionNotGranted):
    def __init__(self) -> None:
        super().__init__("A plugin refused permission for this tool call.")


class PermissionRejected(PermissionNotGranted):
    def __init__(self) -> None:
        super().__init__("The user rejected permission for this tool call.")


class PermissionRejectedWithMessage(PermissionNotGranted):
    def __init__(self, feedback: str) -> None:
        super().__init__(f"The user rejected permission for this tool call and said: {feedback}")


def scope_of(project_id: str, owner: str) -> str:
    """The scope of an approval: a project, and on a server with users one user."""
    return f"{project_id} {owner}" if owner else project_id


@dataclass(frozen=True, slots=True)
class SavedApproval:
    """`scope`: made by `scope_of`."""

    scope: str
    permission: str
    pattern: str

    @property
    def id(self) -> str:
        """The approval itself, encoded: approvals have no stored id."""
        packed = base64.urlsafe_b64encode(orjson.dumps([self.scope, self.permission, self.pattern]))
        return PREFIX + packed.decode().rstrip("=")

    @property
    def project_id(self) -> str:
        return self.scope.partition(" ")[0]

    @property
    def owner(self) -> str:
        return self.scope.partition(" ")[2]


class TooManyRequests(TooMany):
    name = "TooManyRequestsError"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"{MAX_OF_SESSION} permission requests of {session_id} wait for a reply already: reply to some first.")


@dataclass(frozen=True, slots=True)
class PermissionCheck:
    """What a tool call needs permission for. `subjects` describe the patterns for the rules in more detail than clients see;
    without them the rules match the request's patterns. `lease`: of the run that asks."""

    location: Location
    request: PermissionRequest
    ruleset: Ruleset
    subjects: Sequence[Subject] = ()
    plugin_decision: PluginDecision | None = None
    lease: LeaseOfRun = lambda: None
    owner: str = ""
    """The user to whom the session belongs."""
    in_order: AbstractAsyncContextManager[Any] = field(default_factory=nullcontext)
    """Is held until it is decided whether to ask."""


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """The user's reply. `message` tells the model what to do instead of a rejected call."""

    reply: Reply
    message: str | None = None


PendingPermission = PendingRequest[PermissionRequest, PermissionAnswer]


class Permissions:
    def __init__(self, database: Database, writer: Writer, observer: Observer) -> None:
        self._database = database
        kind = RequestKind("permission", PermissionRequest.model_validate_json, _read_answer, _asked_event, _withdrawn_event)
        self.pending = PendingRequests[PermissionRequest, PermissionAnswer](kind, database, writer, observer)
        self._checks: dict[str, PermissionCheck] = {}

    async def ask(self, check: PermissionCheck) -> None:
        """Returns when everything is allowed; waits for the user where a rule says `ask`. Raises PermissionNotGranted."""
        async with check.in_order:
            action = await self._decide(check)
        answer = await self._wait(check) if action == "ask" else await self.pending.take_orphan(check.request)
        if action == "deny":
            raise PermissionDenied(rules_for(check.request.permission, check.ruleset))
        if answer is not None and answer.reply == "reject":
            raise PermissionRejectedWithMessage(answer.message) if answer.message else PermissionRejected()

    async def ask_unattended(self, check: PermissionCheck) -> Action:
        """The rules' decision. If it is `ask` the user is asked, and nobody waits: the reply is an event. Raises Conflict for an
        id that is in use, TooManyRequests."""
        try:
            action = await self._decide(check)
        except PermissionVetoed:
            return "deny"
        if action == "ask":
            session_id = check.request.session_id
            if len(await self.pending.of_session(session_id)) >= MAX_OF_SESSION:
                raise TooManyRequests(session_id)
            await self.pending.put(check.location.directory, check.request)
        return action

    async def _wait(self, check: PermissionCheck) -> PermissionAnswer:
        pending = self.pending.add(check.location.directory, check.request, check.lease)
        self._checks[pending.request.id] = check
        try:
            answer = await self.pending.wait(pending)
        finally:
            del self._checks[pending.request.id]
        if answer.reply == "always":
            await self._answer_others(check.request)
        return answer

    async def _answer_others(self, request: PermissionRequest) -> None:
        """Answers those of the session's other requests that this server asked and the stored approvals allow: the server that
        got the reply could not tell which."""
        try:
            for other in await self.pending.of_session(request.session_id):
                if await self._is_allowed_now(other, []):
                    with suppress(RequestNotPending):
                        await self.pending.resolve(_resolution(other, PermissionAnswer("always")))
        except StorageError as error:
            log.warning("requests that are allowed now may still wait for an answer: %s", error)

    async def _decide(self, check: PermissionCheck, added: Sequence[Rule] = ()) -> Action:
        """Plugins cannot allow what a rule denies. `added`: approvals that are about to be stored. Raises PermissionVetoed."""
        request, approved = check.request, await self.approved(check.location.project_id, check.owner)
        subjects = check.subjects or request.patterns
        decide = partial(decide_permission, request.permission, subjects, check.ruleset, [*approved, *added])
        action = await asyncio.to_thread(decide) if _takes_long(check, approved) else decide()
        if check.plugin_decision is None or action == "deny":
            return action
        decided = await check.plugin_decision(request, action)
        if decided == "deny":
            raise PermissionVetoed
        return decided

    async def approved(self, project_id: str, owner: str) -> Ruleset:
        """The rules that a user's replies of `always` have added in a project."""
        scope = scope_of(project_id, owner)
        rows = await self._database.read(lambda connection: session_rows.approvals(connection, scope))
        return [Rule(permission=permission, pattern=pattern, action="allow") for permission, pattern in rows]

    async def saved(self, owner: str | None, project_id: str | None = None) -> list[SavedApproval]:
        """`owner`: only approvals of this user, None for all; likewise in `remove_saved`."""
        rows = await self._database.read(session_rows.all_approvals)
        found = (SavedApproval(row.project_id, row.permission, row.pattern) for row in rows)
        return [each for each in found if owner in (None, each.owner) and project_id in (None, each.project_id)]

    async def remove_saved(self, owner: str | None, saved_id: str) -> None:
        """Removes an approval: the permission is asked for again. An unknown approval counts as removed."""
        saved = next((each for each in await self.saved(owner) if each.id == saved_id), None)
        if saved is None:
            return
        row = {"of_project": saved.scope, "of_permission": saved.permission, "gone": saved.pattern}
        delete = statements(self._database.dialect).delete_approval
        await self._database.write(lambda connection: connection.execute(delete, row))

    async def reply(self, request_id: str, reply: Reply, message: str | None = None) -> None:
        """Stores the reply with its consequences in one transaction. `always` approves the request's patterns for the project
        and answers the session's other requests that they allow; `reject` rejects the session's other requests too.
        Raises RequestNotPending."""
        pending = await self.pending.find(request_id)
        approvals = await self._approvals(pending.request) if reply == "always" else []
        others = [_resolution(other, PermissionAnswer(reply)) for other in await self._also_answered(pending.request, reply)]
        await self.pending.resolve(_resolution(pending, PermissionAnswer(reply, message)), others, approvals)

    async def _approvals(self, request: PermissionRequest) -> list[Row]:
        """Of the request's patterns, in the scope of the session's owner."""
        named = {"permission": request.permission, "session_id": request.session_id, "project_id": await self._scope_of(request)}
        return [{**named, "pattern": pattern} for pattern in request.always]

    async def _scope_of(self, request: PermissionRequest) -> str:
        session_id = request.session_id
        if check := self._checks.get(request.id):
            return scope_of(check.location.project_id, check.owner)

        def read(connection: Connection) -> tuple[str | None, dict[str, str]]:
            return session_rows.project_of(connection, session_id), session_rows.owners(connection, [session_id])

        project_id, owners = await self._database.read(read)
        if project_id is None:
            raise RequestNotPending(request.id)
        return scope_of(project_id, owners[session_id])

    async def _also_answered(self, request: PermissionRequest, reply: Reply) -> list[PendingPermission]:
        """The session's other requests that the reply answers too."""
        if reply == "once":
            return []
        added = [Rule(permission=request.permission, pattern=pattern, action="allow") for pattern in request.always]
        others = [other for other in await self.pending.of_session(request.session_id) if other.request.id != request.id]
        return [other for other in others if reply == "reject" or await self._is_allowed_now(other, added)]

    async def _is_allowed_now(self, other: PendingPermission, added: Ruleset) -> bool:
        """False for an orphaned request, which is evaluated when its tool call asks again, and for another server's."""
        check = self._checks.get(other.request.id)
        try:
            return check is not None and await self._decide(check, added) == "allow"
        except PermissionVetoed:
            return False


def _takes_long(check: PermissionCheck, approved: Ruleset) -> bool:
    """Whether all others would wait meanwhile: of a project's rules there may be thousands, each may be long, and a shell command
    of some kilobytes may be written in thousands of ways."""
    rules = sum(len(rule.permission) + len(rule.pattern) for rule in chain(check.ruleset, approved))
    return bool(check.subjects) or rules * sum(map(len, check.request.patterns)) > LONG_COMPARISON


def _read_answer(stored: str) -> PermissionAnswer:
    return PermissionAnswer(**orjson.loads(stored))


def _resolution(pending: PendingPermission, answer: PermissionAnswer) -> Resolution[PermissionAnswer]:
    event = _replied_event(pending.directory, pending.request, answer.reply)
    return Resolution(pending.request.id, event, answer, bool(pending.request.unattended))


def _asked_event(directory: str, request: PermissionRequest) -> Event:
    return Event.of(EventPermissionAsked(properties=request), directory, request.session_id)


def _withdrawn_event(directory: str, request: PermissionRequest) -> Event:
    return _replied_event(directory, request, "reject")


def _replied_event(directory: str, request: PermissionRequest, reply: Reply) -> Event:
    properties = PermissionReply(session_id=request.session_id, request_id=request.id, reply=reply)
    return Event.of(EventPermissionReplied(properties=properties), directory, request.session_id)
