"""The SDK's client for a configured server, with its answers translated to our values. Importing this module imports the SDK,
which takes most of a second."""

import json
import logging
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, assert_never

import httpx2
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from mcp.shared.auth_utils import calculate_token_expiry
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Implementation,
    PaginatedResult,
    Prompt,
    PromptListChangedNotification,
    ReadResourceResult,
    ResourceLink,
    ResourceListChangedNotification,
    TextContent,
    TextResourceContents,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import AnyUrl, BaseModel, ValidationError

from app import __version__
from app.events.telemetry.telemetry import put_trace
from app.schema.config import McpLocalConfig, McpOAuthConfig, McpRemoteConfig
from app.schema.part import FileContent
from app.tools.mcp import stdio
from app.tools.mcp.values import (
    Content,
    Credentials,
    McpFailure,
    McpTarget,
    McpWatch,
    ServerOffers,
    ServerPrompt,
    ServerResource,
    ServerTool,
    SignIn,
    SignInNeeded,
    takes_sign_in,
)
from app.util.bounds import IDENTITY, AnswerPassedLimit, body_of, require_few_values, require_identity, whole_events
from app.util.environment import system_tls

UNTYPED = "application/octet-stream"
log = logging.getLogger(__name__)
P = TypeVar("P", bound=PaginatedResult)
MAX_PAGES = 100
MAX_LISTED_BYTES = 4 * 1024 * 1024
"""The JSON of all pages of one list together."""
_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""In seconds. An answer may be a stream that is silent for long; the connection limits the time of a call."""
_EVENT_END = re.compile(rb"\n\r?\n|\r\r")
_CHANGES = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)


async def bound(response: httpx2.Response) -> None:
    """Reading an answer that is compressed or too large raises httpx2.StreamError: for the SDK, a failure of that request
    alone."""
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    response.stream = _BoundedStream(response, _events if is_stream else _document)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, read: Callable[[AsyncIterable[bytes]], AsyncIterator[bytes]]) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._headers = response.headers
        self._read = read

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            require_identity(self._headers)
            async for chunk in self._read(self._stream):
                yield chunk
        except AnswerPassedLimit as passed:
            raise httpx2.StreamError(str(passed)) from passed

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _events(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    async for piece in whole_events(chunks):
        for event in _EVENT_END.split(piece):
            require_few_values(event)
        yield piece


async def _document(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    body = await body_of(chunks)
    require_few_values(body)
    yield body


def content_of(result: CallToolResult | GetPromptResult | ReadResourceResult) -> Content:
    """A tool's result that is only data becomes JSON text."""
    match result:
        case CallToolResult():
            items = [_of_block(block) for block in result.content]
            if result.structured_content is not None and not items:
                items = [json.dumps(result.structured_content, ensure_ascii=False)]
        case GetPromptResult():
            items = [_of_block(message.content) for message in result.messages]
        case ReadResourceResult():
            items = [_of_contents(contents, None) for contents in result.contents]
    texts = [item for item in items if isinstance(item, str)]
    files = [item for item in items if isinstance(item, FileContent)]
    return Content(texts, files, is_error=isinstance(result, CallToolResult) and bool(result.is_error))


def _of_block(block: ContentBlock) -> str | FileContent:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _file(block.mime_type, block.data)
        case EmbeddedResource():
            return _of_contents(block.resource, block.resource.uri.rpartition("/")[2] or None)
        case ResourceLink():
            described = f": {block.description}" if block.description else ""
            return f"[Resource {block.name} at {block.uri}{described}]"
        case _:
            assert_never(block)


def _of_contents(contents: TextResourceContents | BlobResourceContents, filename: str | None) -> str | FileContent:
    if isinstance(contents, TextResourceContents):
        return contents.text
    return _file(contents.mime_type or UNTYPED, contents.blob, filename)


def _file(mime: str, base64: str, filename: str | None = None) -> FileContent:
    return FileContent(mime=mime, filename=filename, url=f"data:{mime};base64,{base64}")


def _tool(server: str, found: Tool) -> ServerTool:
    schema = {"type": "object", "properties": {}, **found.input_schema}
    return ServerTool(server, found.name, found.description or found.title or "", schema)


def _prompt(server: str, found: Prompt) -> ServerPrompt:
    arguments = tuple(argument.name for argument in found.arguments or ())
    return ServerPrompt(server, found.name, found.description or found.title, arguments)


def authentication(target: McpTarget, config: McpRemoteConfig) -> httpx2.Auth | None:
    """None without a sign-in and stored tokens: a server that wants them says so."""
    if not takes_sign_in(config):
        return None
    stored = target.credentials.get(config.url)
    if target.sign_in is not None:
        return _provider(target, config, target.sign_in.redirect_uri, stored)
    return _provider(target, config, stored.redirect_uri, stored) if stored and stored.tokens else None


def _provider(target: McpTarget, config: McpRemoteConfig, redirect_uri: str, stored: Credentials | None) -> OAuthClientProvider:
    storage = _OAuthStorage(target, config, redirect_uri)
    browser = _Browser(target.sign_in)
    own = config.oauth or McpOAuthConfig()
    metadata = OAuthClientMetadata(client_name="opensession", redirect_uris=[AnyUrl(redirect_uri)], scope=own.scope)
    provider = OAuthClientProvider(config.url, metadata, storage, browser.open, browser.answer)
    storage.provider = provider
    if stored is not None:
        # The SDK treats stored tokens as fresh, and forgets where they are renewed.
        provider.context.token_expiry_time = stored.expires_at
        provider.context.oauth_metadata = OAuthMetadata.model_validate(stored.metadata) if stored.metadata else None
    return provider


class _Browser:
    def __init__(self, sign_in: SignIn | None) -> None:
        self._sign_in = sign_in

    async def open(self, address: str) -> None:
        """The user has been asked for one sign-in: when that is over, as when its tokens are revoked, another is needed."""
        if self._sign_in is None or self._sign_in.address.done():
            raise SignInNeeded
        self._sign_in.address.set_result(address)

    async def answer(self) -> AuthorizationCodeResult:
        if self._sign_in is None:
            raise SignInNeeded
        code, issuer = await self._sign_in.answer
        return AuthorizationCodeResult(code=code, state=self._sign_in.state, iss=issuer)


class _OAuthStorage:
    """The SDK's TokenStorage for one server."""

    provider: OAuthClientProvider

    def __init__(self, target: McpTarget, config: McpRemoteConfig, redirect_uri: str) -> None:
        self._store = target.credentials
        self._url = config.url
        self._own = config.oauth or McpOAuthConfig()
        self._redirect_uri = redirect_uri

    async def get_tokens(self) -> OAuthToken | None:
        tokens = self._stored().tokens
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._put(
            tokens=_dump(tokens),
            expires_at=calculate_token_expiry(tokens.expires_in),
            metadata=_dump(self.provider.context.oauth_metadata),
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._own.client_id is None:
            client = self._stored().client
            return OAuthClientInformationFull.model_validate(client) if client else None
        secret = self._own.client_secret
        return OAuthClientInformationFull(
            client_id=self._own.client_id,
            client_secret=secret,
            redirect_uris=[AnyUrl(self._redirect_uri)],
            token_endpoint_auth_method="client_secret_post" if secret else "none",
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._put(client=_dump(client_info))

    def _stored(self) -> Credentials:
        """A registration is valid only for the redirect address it was made with, which changes with this server's port."""
        stored = self._store.get(self._url)
        fits = stored is not None and stored.redirect_uri == self._redirect_uri
        return stored if stored is not None and fits else Credentials(redirect_uri=self._redirect_uri)

    def _put(self, **changes: Any) -> None:
        self._store.put(self._url, self._stored().model_copy(update=changes))


def _dump(value: BaseModel | None) -> dict[str, Any] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


# The SDK logs a traceback for every line that it cannot read and every sign-in that fails; the server's status shows both.
for _name in ("mcp.client.streamable_http", "mcp.client.auth.oauth2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@asynccontextmanager
async def open_client(target: McpTarget, watch: McpWatch) -> AsyncIterator[Client]:
    """Connected and initialised. `watch` receives the server's announcements. Raises the SDK's errors, in groups, and
    McpFailure."""

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, _CHANGES):
            watch.changed()

    identity = Implementation(name="opensession", version=__version__)
    client = Client(_transport(target, watch), message_handler=on_message, client_info=identity, cache=None)
    async with client, AsyncExitStack() as stack:
        client.session.validate_tool_result = _accept  # type: ignore[method-assign]
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await _listen(client, stack)
        yield client


async def _accept(name: str, result: CallToolResult) -> None:
    """Takes every result. The SDK's check matches it, on the event loop, against patterns of the same server's schema: that can
    take for ever."""


def _transport(target: McpTarget, watch: McpWatch) -> AbstractAsyncContextManager[TransportStreams]:
    match target.config:
        case McpLocalConfig():
            return stdio.streams(target, target.config, watch)
        case McpRemoteConfig():
            return _http(target, target.config, watch)
        case _:
            assert_never(target.config)


@asynccontextmanager
async def _http(target: McpTarget, config: McpRemoteConfig, watch: McpWatch) -> AsyncIterator[TransportStreams]:
    endpoint = httpx2.URL(config.url)

    async def note(response: httpx2.Response) -> None:
        if response.request.url != endpoint:
            return  # of the sign-in
        watch.last_status = response.status_code
        if response.status_code == httpx2.codes.NOT_FOUND and "mcp-session-id" in response.request.headers:
            watch.ended(McpFailure("The server no longer knows this connection"))

    async def prepare(request: httpx2.Request) -> None:
        put_trace(request.headers)
        request.headers.update(IDENTITY)

    auth = authentication(target, config)
    hooks: dict[str, list[Callable[..., Awaitable[None]]]] = {"request": [prepare], "response": [note, bound]}
    async with (
        httpx2.AsyncClient(headers=config.headers, timeout=_TIMEOUT, auth=auth, event_hooks=hooks, verify=system_tls()) as http,
        streamable_http_client(config.url, http_client=http) as streams,
    ):
        yield streams


async def _listen(client: Client, stack: AsyncExitStack) -> None:
    """Newer servers announce changes only on a stream that a client has opened."""
    can = client.server_capabilities
    tools, prompts, resources = (bool(kind and kind.list_changed) for kind in (can.tools, can.prompts, can.resources))
    if not (tools or prompts or resources):
        return
    changes = client.listen(tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources)
    try:
        await stack.enter_async_context(changes)
    except (MCPError, SubscriptionLost) as error:
        log.warning("an MCP server will not tell of its changes: %s", error)


async def offers(client: Client, server: str) -> ServerOffers:
    can = client.server_capabilities
    tools = await _pages(client.list_tools) if can.tools else []
    prompts = await _optional(client.list_prompts, server) if can.prompts else []
    resources = await _optional(client.list_resources, server) if can.resources else []
    return ServerOffers(
        tuple(_tool(server, tool) for page in tools for tool in page.tools),
        tuple(_prompt(server, prompt) for page in prompts for prompt in page.prompts),
        tuple(ServerResource(server, r.name, r.uri, r.description, r.mime_type) for page in resources for r in page.resources),
    )


async def _optional(fetch: Callable[..., Awaitable[P]], server: str) -> list[P]:
    """A server whose prompts or resources cannot be listed still has its tools."""
    try:
        return await _pages(fetch)
    except (MCPError, ValidationError, McpFailure) as error:
        log.warning("the MCP server %s does not list what it offers: %s", server, error)
        return []


async def _pages(fetch: Callable[..., Awaitable[P]]) -> list[P]:
    """Raises McpFailure."""
    pages: list[P] = []
    size, cursor = 0, None
    while not pages or (cursor and len(pages) < MAX_PAGES):
        pages.append(await fetch(cursor=cursor) if cursor else await fetch())
        size, cursor = size + len(pages[-1].model_dump_json()), pages[-1].next_cursor
        if size > MAX_LISTED_BYTES:
            raise McpFailure(f"The server lists more than {MAX_LISTED_BYTES} bytes")
    return pages
