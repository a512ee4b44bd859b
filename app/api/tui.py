"""Steering of terminal clients: what an editor's plugin, or a script, has those of the same user and directory do.

Every answer is `true` when the request is announced; whether a client obeys it is not known.
"""

from typing import Any

from fastapi import Body
from fastapi.responses import Response

from app.api.access import require_session
from app.api.deps import TRUE, Directory, documented, json_bytes, location_of
from app.api.event import require_place_for_stream
from app.api.json_route import ServerRequest, router
from app.api.keepalive_json import KeepaliveJson
from app.schema.base import Wire
from app.schema.steering import (
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
from app.steering import commands

routes = router(tags=["tui"])

_ERRORS = documented(400, 403)


class CommandToExecute(Wire):
    """By its name, or its old one (`agent_cycle`)."""

    command: str


class ControlRequest(Wire):
    path: str
    body: Any


@routes.post("/tui/append-prompt", operation_id="tui.appendPrompt", response_model=bool, responses=_ERRORS)
async def append_prompt(request: ServerRequest, where: Directory, body: PromptText) -> Response:
    """Put text behind what stands in the prompt."""
    return await _announce(request, where, PromptAppend(properties=body))


@routes.post("/tui/submit-prompt", operation_id="tui.submitPrompt", response_model=bool, responses=_ERRORS)
async def submit_prompt(request: ServerRequest, where: Directory) -> Response:
    return await _execute(request, where, commands.SUBMIT_PROMPT)


@routes.post("/tui/clear-prompt", operation_id="tui.clearPrompt", response_model=bool, responses=_ERRORS)
async def clear_prompt(request: ServerRequest, where: Directory) -> Response:
    return await _execute(request, where, commands.CLEAR_PROMPT)


@routes.post("/tui/open-help", operation_id="tui.openHelp", response_model=bool, responses=_ERRORS)
async def open_help(request: ServerRequest, where: Directory) -> Response:
    return await _execute(request, where, commands.SHOW_HELP)


@routes.post("/tui/open-sessions", operation_id="tui.openSessions", response_model=bool, responses=_ERRORS)
async def open_sessions(request: ServerRequest, where: Directory) -> Response:
    return await _execute(request, where, commands.LIST_SESSIONS)


@routes.post("/tui/open-themes", operation_id="tui.openThemes", response_model=bool, responses=_ERRORS)
async def open_themes(request: ServerRequest, where: Directory) -> Response:
    return await _execute(request, where, commands.SWITCH_THEME)


@routes.post("/tui/open-models", operation_id="tui.openModels", response_model=bool, responses=_ERRORS)
async def open_models(request: ServerRequest, where: Directory) -> Response:
    return await _execute(request, where, commands.LIST_MODELS)


@routes.post("/tui/execute-command", operation_id="tui.executeCommand", response_model=bool, responses=_ERRORS)
async def execute_command(request: ServerRequest, where: Directory, body: CommandToExecute) -> Response:
    return await _execute(request, where, commands.current_name(body.command))


@routes.post("/tui/show-toast", operation_id="tui.showToast", response_model=bool, responses=_ERRORS)
async def show_toast(request: ServerRequest, where: Directory, body: Toast) -> Response:
    return await _announce(request, where, ToastShow(properties=body))


@routes.post("/tui/select-session", operation_id="tui.selectSession", response_model=bool, responses=documented(400, 403, 404))
async def select_session(request: ServerRequest, where: Directory, body: SelectedSession) -> Response:
    """Show a session."""
    app = request.services
    await require_session(app, request.principal, body.session_id)
    await app.sessions.store.session(body.session_id)
    return await _announce(request, where, SessionSelect(properties=body))


@routes.post("/tui/publish", operation_id="tui.publish", response_model=bool, responses=_ERRORS)
async def publish(request: ServerRequest, where: Directory, body: SteeringRequest) -> Response:
    """Any of what the other routes announce."""
    return await _announce(request, where, body)


@routes.get(
    "/tui/control/next", operation_id="tui.control.next", response_model=ControlRequest, responses=documented(400, 403, 429)
)
async def next_control(request: ServerRequest, where: Directory) -> Response:
    """The next of these requests, waited for: for programs that do not follow the events. What comes within a minute
    after the last fetch is kept for the next one."""
    app = request.services
    directory = (await location_of(request, where)).directory
    require_place_for_stream(app)
    queue = app.steering.control.of(directory, request.principal.name)
    return KeepaliveJson(queue.next(), ends_with_client=True)


@routes.post("/tui/control/response", operation_id="tui.control.response", response_model=bool, responses=_ERRORS)
async def control_response(body: Any = Body()) -> Response:
    """Accepted and not kept, as in OpenCode: whoever made the request was answered when it was announced."""
    return json_bytes(TRUE)


async def _execute(request: ServerRequest, where: str | None, command: str) -> Response:
    return await _announce(request, where, CommandExecute(properties=TerminalCommandName(command=command)))


async def _announce(request: ServerRequest, where: str | None, asked: SteeringRequest) -> Response:
    directory = (await location_of(request, where)).directory
    await request.services.steering.announce(directory, request.principal.name, asked)
    return json_bytes(TRUE)
