"""Routes whose JSON bodies are read strictly: what is not valid UTF-8 JSON within bounds is a 400, no accident further in."""

import traceback
import warnings
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import cached_property, partial
from json import JSONDecodeError
from typing import Any, cast

import orjson
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from app.api.access import PROMPTING, access_of, principal_of, require_access, require_rate, require_visible
from app.api.audit import WHO
from app.api.draining import starts_work
from app.api.incoming_body import BODY
from app.api.request_headers import RequestHeaders, headers_of
from app.api.route_arguments import InvalidArguments, RouteArguments, is_plain
from app.api.services import Services
from app.schema.errors import NotFound
from app.telemetry.log_lines import SESSION_OF_LINES
from app.users.principal import OPERATOR, Principal
from app.util.json_bounds import DEEPEST, has_more_values, is_deeper

warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)
"""FastAPI gives the adapter of a body an alias that has no effect, and silences the warning where it makes the adapter. Ours are
built later, when they are used."""

_WITHOUT_WORKSPACE = ("/global/", "/api/", "/auth/", "/log")
"""The paths of what is about the whole server, or has its own way of naming a place."""

MOST_VALUES = 20_000
"""Megabytes of tiny values would take gigabytes once they are validated; text may be as long as a body may be."""


class ServerRequest(Request):
    """What routes call is found on it: as a dependency it would cost every request a twentieth of its time."""

    @cached_property
    def services(self) -> Services:
        return cast(Services, self.app.state.services)

    @property
    def headers(self) -> RequestHeaders:
        return headers_of(self.scope)

    @property
    def principal(self) -> Principal:
        return principal_of(self.scope)

    async def body(self) -> bytes:
        """Without the generator of chunks that Starlette makes of it. Raises ClientDisconnect."""
        if not hasattr(self, "_body"):
            chunks, more = [], True
            while more:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    self._is_disconnected = True
                    raise ClientDisconnect
                chunks.append(message.get("body", b""))
                more = message.get("more_body", False)
            self._body = b"".join(chunks)
        return self._body

    async def json(self) -> Any:
        """Raises json.JSONDecodeError; lone surrogates, NaN, nesting beyond DEEPEST and more than MOST_VALUES are errors."""
        body = await self.body()
        if has_more_values(body, MOST_VALUES):
            raise JSONDecodeError(f"more than {MOST_VALUES} values", "", 0)
        value = orjson.loads(body)
        if body.count(b"{") + body.count(b"[") > DEEPEST and is_deeper(value, DEEPEST):
            raise JSONDecodeError(f"nested more than {DEEPEST} deep", body.decode(), 0)
        if incoming := self.scope.get(BODY):
            incoming.parsed()
        return value


Handler = Callable[[ServerRequest], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """Made in three steps. At the start it has what a request is matched by. With its first request it gets what reads and checks
    one: clients call a dozen of two hundred routes, and for all of them that took 7 MB and a sixth of a second of each start. The
    models of its answers are for the API's description alone: `described` makes the route that has them."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.described = partial(APIRoute, path, endpoint, **options)
        if _gives_response(endpoint):
            options |= {"response_model": None, "responses": None}
        self._make: Callable[[], None] | None = partial(super().__init__, path, endpoint, **options)
        self.path, self.endpoint, self.operation_id = path, endpoint, options.get("operation_id")
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods: set[str] = set(options["methods"])
        self._answer: Handler

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in self.methods:
            raise HTTPException(405, headers={"Allow": ", ".join(self.methods)})
        if self._make is not None:
            self._make()
            self._make = None
            self._answer = self.answering()
        response = await self._answer(ServerRequest(scope, receive))
        await response(scope, receive, send)

    def answering(self) -> Handler:
        """What answers each request."""
        handle = _with_stacks(self.get_route_handler())
        if _gives_response(self.endpoint) and is_plain(self.dependant):
            handle = _reading_quickly(RouteArguments(self.dependant), self.endpoint, handle)
        if starts_work(self.methods or (), self.operation_id):
            handle = _unless_stopping(handle)

        operation = self.operation_id or self.path
        access, prompts = access_of(operation), operation in PROMPTING

        takes_workspace = self.operation_id is not None and not self.path.startswith(_WITHOUT_WORKSPACE)

        async def answer(request: ServerRequest) -> Response:
            if session_id := request.path_params.get("sessionID"):
                SESSION_OF_LINES.set(session_id)
            if request.principal is not OPERATOR:
                require_access(request.principal, access)
                await require_visible(request.services, request.principal, request.path_params)
            if takes_workspace:
                _require_no_workspace(request)
            if prompts:
                await require_rate(request.services, request.principal, request.scope.get(WHO, ""))
            try:
                return await handle(request)
            except RequestValidationError as refusal:
                # The frames hold the refusal and it holds them; between them is a body of megabytes, and no collector hurries.
                traceback.clear_frames(refusal.__traceback__)
                raise

        return answer


_STACKS = ("fastapi_middleware_astack", "fastapi_inner_astack", "fastapi_function_astack")
"""Where in a request's scope FastAPI puts what it closes behind it."""


def _with_stacks(handle: Callable[[Request], Coroutine[Any, Any, Response]]) -> Handler:
    async def handle_with_stacks(request: ServerRequest) -> Response:
        async with AsyncExitStack() as stack:
            request.scope.update(dict.fromkeys(_STACKS, stack))
            return await handle(request)

    return handle_with_stacks


def _gives_response(endpoint: Callable[..., Any]) -> bool:
    returned = endpoint.__annotations__.get("return")
    return isinstance(returned, type) and issubclass(returned, Response)


def _reading_quickly(
    arguments: RouteArguments, endpoint: Callable[..., Coroutine[Any, Any, Response]], otherwise: Handler
) -> Handler:
    async def handle(request: ServerRequest) -> Response:
        try:
            values = await arguments.read(request)
        except InvalidArguments:
            return await otherwise(request)
        return await endpoint(**values)

    return handle


def _require_no_workspace(asked: ServerRequest) -> None:
    """By the query, else by the header that OpenCode's clients send."""
    is_named = b"workspace=" in asked.scope["query_string"]
    if name := asked.query_params.get("workspace") if is_named else asked.headers.get("x-opencode-workspace"):
        raise NotFound(f"Workspace not found: {name}. There are no workspaces here: name a directory")


def _unless_stopping(handle: Handler) -> Handler:
    async def handle_work(request: ServerRequest) -> Response:
        draining = request.services.draining
        if draining.has_begun:
            await request.body()  # a connection closed upon unread bytes is reset, and the client would not hear why
        with draining.work():
            return await handle(request)

    return handle_work


def router(**options: Any) -> APIRouter:
    return APIRouter(route_class=StrictRoute, **options)
