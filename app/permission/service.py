"""Asking a person for leave: what the rules leave open waits for a reply (behaviour §10.3)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.bus.base import Event
from app.permission import rules
from app.permission.errors import Corrected, Denied, PermissionRefused, Rejected, Vetoed
from app.permission.rules import Subject
from app.schema.event import EventPermissionAsked, EventPermissionReplied, PermissionReply
from app.schema.permission import Action, PermissionRequest, Reply, Rule, Ruleset
from app.storage import queries
from app.storage.asks import Ask, Asks, ask_key
from app.storage.engine import Database
from app.storage.statements import Statements
from app.storage.writer import Change, Writer
from app.workspace.place import Place

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
        return rules.decide(self.shown.permission, self.subjects or self.shown.patterns, self.ruleset, approved)


class Permissions:
    def __init__(self, database: Database, sql: Statements, writer: Writer) -> None:
        self._database = database
        self._sql = sql
        self._writer = writer
        self.asks: Asks[Request, None] = Asks("permission", database, sql, writer)

    async def ask(self, request: Request) -> None:
        """Returns when all of it is allowed; waits for a person where a rule says ask. Raises PermissionRefused."""
        decision = await self._decide(request)
        match decision:
            case rules.Allowed():
                return
            case rules.Forbidden():
                raise Denied(decision.rules)
            case rules.Asked():
                self._take_up(request)
                await self.asks.wait(_ask(request))

    async def _decide(self, request: Request) -> rules.Decision:
        """What a rule forbids, no advice allows. Raises Vetoed."""
        decision = request.decide(await self.approved(request.place.project_id))
        if request.advice is None or isinstance(decision, rules.Forbidden):
            return decision
        match await request.advice(request.shown, "allow" if isinstance(decision, rules.Allowed) else "ask"):
            case "allow":
                return rules.Allowed()
            case "ask":
                return rules.Asked()
            case "deny":
                raise Vetoed()

    async def _is_allowed(self, request: Request) -> bool:
        try:
            return isinstance(await self._decide(request), rules.Allowed)
        except Vetoed:
            return False

    def _take_up(self, request: Request) -> None:
        """Asked before a restart: the same request goes on."""
        left = self.asks.id_for(ask_key(request.shown.wire()))
        if left is not None:
            request.shown.id = left

    async def approved(self, project_id: str) -> Ruleset:
        """What was allowed with `always` in a project."""
        rows = await self._database.read(lambda connection: queries.approvals(connection, project_id))
        return [Rule(permission=permission, pattern=pattern, action="allow") for permission, pattern in rows]

    async def pending_json(self, directory: str) -> bytes:
        return await self.asks.all_json(directory)

    async def reply(self, request_id: str, reply: Reply, message: str | None = None) -> bool:
        """False when no such request waits (any more)."""
        ask = self.asks.find(request_id)
        if ask is None:
            return False
        if reply == "always":
            await self._remember(ask.request)
        await self._answer(ask, reply, _refusal(reply, message))
        await self._cascade(ask.session_id, reply)
        return True

    async def _answer(self, ask: Ask[Request, None], reply: Reply, refusal: PermissionRefused | None) -> None:
        await self.asks.answer(ask, _replied(ask.request, reply), refusal)

    async def _remember(self, request: Request) -> None:
        shown = request.shown
        rows = [
            {
                "project_id": request.place.project_id,
                "permission": shown.permission,
                "pattern": pattern,
                "session_id": shown.session_id,
            }
            for pattern in shown.always
        ]
        if rows:
            await self._writer.commit(Change([(self._sql.put_approval, rows)]))

    async def _cascade(self, session_id: str, reply: Reply) -> None:
        """`always` also lets through what it now allows in the same session; a rejection rejects all that waits there."""
        if reply == "once":
            return
        for other in self.asks.of_session(session_id):
            if reply == "reject":
                await self._answer(other, "reject", Rejected())
            elif await self._is_allowed(other.request):
                await self._answer(other, "always", None)


def _refusal(reply: Reply, message: str | None) -> PermissionRefused | None:
    if reply != "reject":
        return None
    return Corrected(message) if message else Rejected()


def _ask(request: Request) -> Ask[Request, None]:
    shown = request.shown
    return Ask(
        id=shown.id,
        session_id=shown.session_id,
        directory=request.place.directory,
        request=request,
        body=shown.wire_json(),
        asked=Event(EventPermissionAsked(properties=shown).wire_json(), request.place.directory, shown.session_id),
        withdrawn=_replied(request, "reject"),
    )


def _replied(request: Request, reply: Reply) -> Event:
    properties = PermissionReply(session_id=request.shown.session_id, request_id=request.shown.id, reply=reply)
    return Event(EventPermissionReplied(properties=properties).wire_json(), request.place.directory, request.shown.session_id)
