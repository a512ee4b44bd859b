"""Asking a person for leave: what the rules leave open waits for a reply (behaviour §10.3)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.bus.base import Event
from app.pending.requests import PendingRequest, PendingRequests, RequestKind, RequestNotPending, Resolution
from app.permission import rules
from app.permission.errors import PermissionDenied, PermissionRejected, PermissionRejectedWithMessage, PermissionVetoed
from app.permission.rules import Subject
from app.project.place import Place
from app.schema.event import EventPermissionAsked, EventPermissionReplied, PermissionReply
from app.schema.permission import Action, PermissionRequest, Reply, Rule, Ruleset
from app.storage import queries
from app.storage.engine import Database
from app.storage.statements import Statements
from app.storage.writer import Rows, Writer

Advice = Callable[[PermissionRequest, Action], Awaitable[Action]]
"""What plugins make of what the rules say, which is `allow` or `ask`."""


@dataclass(frozen=True, slots=True)
class Request:
    """`subjects` say more of each pattern than clients are shown; without them the patterns speak for themselves."""

    place: Place
    shown: PermissionRequest
    ruleset: Ruleset
    subjects: Sequence[Subject] = ()
    advice: Advice | None = None

    def decide(self, approved: Ruleset) -> rules.Decision:
        return rules.decide_permission(self.shown.permission, self.subjects or self.shown.patterns, self.ruleset, approved)


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """What a person replied. `message` says what to do instead of a call that is rejected."""

    reply: Reply
    message: str | None = None

    def require_allowed(self) -> None:
        """Raises PermissionRejected, or PermissionRejectedWithMessage."""
        if self.reply == "reject":
            raise PermissionRejectedWithMessage(self.message) if self.message else PermissionRejected()


Pending = PendingRequest[PermissionRequest, PermissionAnswer]


class Permissions:
    def __init__(self, database: Database, sql: Statements, writer: Writer) -> None:
        self._database = database
        self._sql = sql
        kind = RequestKind("permission", PermissionRequest.model_validate_json, _asked, _withdrawn)
        self.pending: PendingRequests[PermissionRequest, PermissionAnswer] = PendingRequests(kind, database, sql, writer)
        self._asking: dict[str, Request] = {}

    async def ask(self, request: Request) -> None:
        """Returns when all of it is allowed; waits for a person where a rule says ask. Raises PermissionNotGranted."""
        decision = await self._decide(request)
        match decision:
            case rules.Allowed():
                if answer := self.pending.take_left(request.shown):
                    answer.require_allowed()
            case rules.Forbidden():
                self.pending.take_left(request.shown)
                raise PermissionDenied(decision.rules)
            case rules.NeedsApproval():
                (await self._wait(request)).require_allowed()

    async def _wait(self, request: Request) -> PermissionAnswer:
        pending = self.pending.add(request.place.directory, request.shown)
        self._asking[pending.request.id] = request
        try:
            return await self.pending.wait(pending)
        finally:
            del self._asking[pending.request.id]

    async def _decide(self, request: Request, added: Sequence[Rule] = ()) -> rules.Decision:
        """What a rule forbids, no advice allows. `added`: approvals that are about to be stored. Raises PermissionVetoed."""
        decision = request.decide([*await self.approved(request.place.project_id), *added])
        if request.advice is None or isinstance(decision, rules.Forbidden):
            return decision
        match await request.advice(request.shown, "allow" if isinstance(decision, rules.Allowed) else "ask"):
            case "allow":
                return rules.Allowed()
            case "ask":
                return rules.NeedsApproval()
            case "deny":
                raise PermissionVetoed()

    async def _is_allowed(self, request: Request, added: Ruleset) -> bool:
        try:
            return isinstance(await self._decide(request, added), rules.Allowed)
        except PermissionVetoed:
            return False

    async def approved(self, project_id: str) -> Ruleset:
        """What was allowed with `always` in a project."""
        rows = await self._database.read(lambda connection: queries.approvals(connection, project_id))
        return [Rule(permission=permission, pattern=pattern, action="allow") for permission, pattern in rows]

    async def pending_json(self, directory: str) -> bytes:
        return await self.pending.all_json(directory)

    async def reply(self, request_id: str, reply: Reply, message: str | None = None) -> None:
        """Store it together with what follows from it: `always` approves the request's patterns for the project and lets
        through what they allow of the session's other requests; a rejection rejects all of those. Raises RequestNotPending."""
        pending = self.pending.find(request_id)
        approvals = await self._approvals(pending.request) if reply == "always" else []
        others = [_resolution(other, PermissionAnswer(reply)) for other in await self._answered_too(pending.request, reply)]
        await self.pending.resolve(_resolution(pending, PermissionAnswer(reply, message)), others, approvals)

    async def _approvals(self, shown: PermissionRequest) -> list[tuple[Any, Rows]]:
        project_id = await self._project_of(shown)
        approved = {"project_id": project_id, "permission": shown.permission, "session_id": shown.session_id}
        rows = [{**approved, "pattern": pattern} for pattern in shown.always]
        return [(self._sql.put_approval, rows)] if rows else []

    async def _project_of(self, shown: PermissionRequest) -> str:
        if shown.id in self._asking:
            return self._asking[shown.id].place.project_id
        project_id = await self._database.read(lambda connection: queries.project_of(connection, shown.session_id))
        if project_id is None:
            raise RequestNotPending(shown.id)
        return project_id

    async def _answered_too(self, shown: PermissionRequest, reply: Reply) -> list[Pending]:
        """The session's other requests that the reply decides."""
        if reply == "once":
            return []
        added = [Rule(permission=shown.permission, pattern=pattern, action="allow") for pattern in shown.always]
        others = [other for other in self.pending.of_session(shown.session_id) if other.request.id != shown.id]
        return [other for other in others if reply == "reject" or await self._is_allowed_now(other, added)]

    async def _is_allowed_now(self, other: Pending, added: Ruleset) -> bool:
        """A request that was left behind is judged when its call asks again."""
        request = self._asking.get(other.request.id)
        return request is not None and await self._is_allowed(request, added)


def _resolution(pending: Pending, answer: PermissionAnswer) -> Resolution[PermissionAnswer]:
    return Resolution(pending.request.id, _replied(pending.directory, pending.request, answer.reply), answer)


def _asked(directory: str, request: PermissionRequest) -> Event:
    return Event(EventPermissionAsked(properties=request).wire_json(), directory, request.session_id)


def _withdrawn(directory: str, request: PermissionRequest) -> Event:
    return _replied(directory, request, "reject")


def _replied(directory: str, request: PermissionRequest, reply: Reply) -> Event:
    properties = PermissionReply(session_id=request.session_id, request_id=request.id, reply=reply)
    return Event(EventPermissionReplied(properties=properties).wire_json(), directory, request.session_id)
