"""Steering of terminal clients: an editor's plugin, or a script, has those of the same user and directory do something.

Every answer is `true` when the request is announced; the server does not know whether a client obeys.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Body, Depends
from fastapi.responses import Response

from app.api.deps import AppServices, Here, Who
from app.api.errors import documented
from app.api.event import LoginHolds, require_place_for_stream, waiting_with_client
from app.api.json_route import router
from app.api.roles import READS, WRITES, require_session
from app.schema.base import Wire
from app.schema.terminal import (
    CommandExecute,
    PromptAppend,
    PromptText,
    SelectedSession,
    SessionSelect,
    SteeringRequest,
    TerminalCommandName,
    Toast,
    ToastShow,
)

routes = router("/tui", 400, 403, tags=["tui"])
routers = (routes,)


async def _announcing(app: AppServices, who: Who, here: Here) -> Callable[[SteeringRequest], Awaitable[bool]]:
    """Announces to the principal's terminal clients in the directory that is named."""

    async def announce(asked: SteeringRequest) -> bool:
        await app.steering.announce(here.directory, who.name, asked)
        return True

    return announce


Announce = Annotated[Callable[[SteeringRequest], Awaitable[bool]], Depends(_announcing)]


class CommandToExecute(Wire):
    """A command by its name, or its old name (`agent_cycle`)."""

    command: str


class ControlRequest(Wire):
    path: str
    body: Any


@routes.post("/append-prompt", dependencies=WRITES)
async def append_prompt(announce: Announce, body: PromptText) -> bool:
    """Append text to what stands in the prompt."""
    return await announce(PromptAppend(properties=body))


_COMMANDS = {
    "submit_prompt": "prompt.submit",
    "clear_prompt": "prompt.clear",
    "open_help": "help.show",
    "open_sessions": "session.list",
    "open_themes": "theme.switch",
    "open_models": "model.list",
}
"""By the name of a route that has clients execute one command."""


def _executing(command: str) -> Callable[[Announce], Awaitable[bool]]:
    async def execute(announce: Announce) -> bool:
        return await announce(_command(command))

    return execute


for name, command in _COMMANDS.items():
    routes.post(f"/{name.replace('_', '-')}", name=name, dependencies=WRITES)(_executing(command))


_OLD_NAMES = {
    "session_new": "session.new",
    "session_share": "session.share",
    "session_interrupt": "session.interrupt",
    "session_compact": "session.compact",
    "messages_page_up": "session.page.up",
    "messages_page_down": "session.page.down",
    "messages_line_up": "session.line.up",
    "messages_line_down": "session.line.down",
    "messages_half_page_up": "session.half.page.up",
    "messages_half_page_down": "session.half.page.down",
    "messages_first": "session.first",
    "messages_last": "session.last",
    "agent_cycle": "agent.cycle",
}
"""Of commands that `POST /tui/execute-command` may name in the old way, the present names."""


@routes.post("/execute-command", dependencies=WRITES)
async def execute_command(announce: Announce, body: CommandToExecute) -> bool:
    return await announce(_command(_OLD_NAMES.get(body.command, body.command)))


@routes.post("/show-toast", dependencies=WRITES)
async def show_toast(announce: Announce, body: Toast) -> bool:
    return await announce(ToastShow(properties=body))


@routes.post("/select-session", responses=documented(404), dependencies=WRITES)
async def select_session(app: AppServices, who: Who, announce: Announce, body: SelectedSession) -> bool:
    """Show a session."""
    await require_session(app, who, body.session_id)
    await app.store.session(body.session_id)
    return await announce(SessionSelect(properties=body))


@routes.post("/publish", dependencies=WRITES)
async def publish(announce: Announce, body: SteeringRequest) -> bool:
    """Announces any request of the other routes."""
    return await announce(body)


_NEXT = documented(429)


@routes.get("/control/next", operation_id="tui.control.next", response_model=ControlRequest, responses=_NEXT, dependencies=READS)
async def next_control(app: AppServices, who: Who, here: Here, login_holds: LoginHolds) -> Response:
    """Waits for the next of these requests: for programs that do not follow the events. Requests within a minute after the last
    fetch are kept for the next one."""
    require_place_for_stream(app)
    return waiting_with_client(app.steering.queue(here.directory, who.name).next, login_holds)


@routes.post("/control/response", operation_id="tui.control.response", dependencies=WRITES)
async def control_response(body: Any = Body()) -> bool:
    """Accepted and not kept, as in OpenCode: the request was answered when it was announced."""
    return True


def _command(command: str) -> CommandExecute:
    return CommandExecute(properties=TerminalCommandName(command=command))
