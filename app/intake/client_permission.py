"""Permission requests that a client makes itself, for what it is about to do in a session."""

from app.agent.definitions import default_agent, find
from app.permission.service import PermissionCheck, Permissions
from app.schema.base import Metadata, PermissionID, Wire
from app.schema.permission import Action, CallRef, PermissionRequest, PermissionV2Source
from app.schema.session import Session
from app.turn import hooks
from app.util import ids
from app.workspace.instance import Instance


class ClientPermission(Wire):
    """`resources` are what rules match, `save` the patterns that a reply of `always` approves. `agent`: whose rules count, the
    session's if absent."""

    id: PermissionID | None = None
    action: str
    resources: list[str]
    save: list[str] = []
    metadata: Metadata = {}
    source: PermissionV2Source | None = None
    agent: str | None = None


async def ask(permissions: Permissions, instance: Instance, session: Session, wanted: ClientPermission) -> tuple[str, Action]:
    """The request's id and what the rules say. Raises BadRequest for an unknown agent, Conflict, TooManyRequests."""
    name = wanted.agent or session.agent
    agent = find(instance.agents, name) if name else default_agent(instance.agents, instance.config)
    call = wanted.source
    request = PermissionRequest(
        id=wanted.id or ids.ascending("permission"),
        session_id=session.id,
        permission=wanted.action,
        patterns=wanted.resources,
        metadata=wanted.metadata,
        always=wanted.save,
        tool=CallRef(message_id=call.message_id, call_id=call.call_id) if call else None,
        unattended=True,
    )
    ruleset = [*agent.permission, *(session.permission or [])]
    decision = hooks.permission_decision(instance.extensions.hooks)
    check = PermissionCheck(instance.location, request, ruleset, plugin_decision=decision, owner=session.owner or "")
    return request.id, await permissions.ask_unattended(check)
