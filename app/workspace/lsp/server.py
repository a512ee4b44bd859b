"""One language server: a kind at a root, from its first file on, and how long calls wait for it."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.project.sandbox.scope import Program
from app.schema.project import FileErrors
from app.util.tasks import TaskSet
from app.workspace.lsp.kinds import ServerKind, language_of
from app.workspace.lsp.server_messages import LspFailure, PublishedErrors, pulled_errors, supports_pull

if TYPE_CHECKING:
    from app.workspace.lsp.client import LspClient

RESTARTS = 3
START_SECONDS = 45.0
_SILENCE_SECONDS = 0.15
"""Seconds of silence after which a server that names no versions has published all errors of a file."""
_UNCHANGED_SECONDS = 1.0
"""Seconds after an answer within which such a server publishes a file's errors, unless they have not changed."""
_MAX_TEXT = 2 * 1024 * 1024
_MAX_OPEN = 100
_MAX_FILES = 200
_MAX_PULLS = 20
"""The most requests for errors that are not answered yet."""
_CAPABILITIES = {
    "textDocument": {
        "synchronization": {},
        "publishDiagnostics": {"versionSupport": True},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
    },
    "workspace": {"configuration": True, "didChangeWatchedFiles": {"dynamicRegistration": True}},
    "window": {"workDoneProgress": True},
}
_CHANGED = 2
"""The type of a change, as LSP numbers them."""
_ABOUT_A_PLACE = {
    "goToDefinition": "textDocument/definition",
    "findReferences": "textDocument/references",
    "hover": "textDocument/hover",
    "goToImplementation": "textDocument/implementation",
    "prepareCallHierarchy": "textDocument/prepareCallHierarchy",
}
_CALLS = {"incomingCalls": "callHierarchy/incomingCalls", "outgoingCalls": "callHierarchy/outgoingCalls"}

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _SentFile:
    """A file as it was sent to the server. `published`: errors of this version were published; `is_exact`: with its number."""

    version: int = 0
    published: asyncio.Event = field(default_factory=asyncio.Event)
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class LspTarget:
    """`program` makes the program to start; it may block and raises OSError. `top`: errors count in files below it. `diagnosed`
    is called for each file with published errors, `changed` when the server is ready, and when it is not any more."""

    kind: ServerKind
    root: Path
    top: Path
    settings: Mapping[str, Any]
    program: Callable[[], Program]
    diagnosed: Callable[[Path], None]
    changed: Callable[[], None]


class LanguageServer:
    """Starts at once, and again after a crash. After a call that waited in vain the server is `behind`: no other call waits until
    it has caught up."""

    def __init__(self, target: LspTarget) -> None:
        self.target = target
        self.is_behind = False
        self.has_failed = False
        self._client: LspClient | None = None
        self._start_ended = asyncio.Event()
        """Set when the server is ready or has failed."""
        self._files: OrderedDict[Path, _SentFile] = OrderedDict()
        self.errors: OrderedDict[Path, FileErrors] = OrderedDict()
        """Of the files that have some."""
        self._names_versions: bool | None = None
        """None until the server has published something."""
        self._supports_pull = False
        self._pulls = TaskSet()
        self._task = asyncio.create_task(self._run(), name=f"language server {target.kind.id}")

    @property
    def is_ready(self) -> bool:
        return self._client is not None

    async def close(self) -> None:
        """Returns when the server's processes have ended."""
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._pulls.cancel()

    # Messages to and from the server.

    async def check(self, path: Path, text: str, deadline: float) -> None:
        """Sends the file's text, and returns when `errors` has its errors, or at the `deadline`, by the loop's clock."""
        try:
            async with asyncio.timeout_at(deadline):
                if not self.is_behind:
                    await self._start_ended.wait()
                sent = self._send(path, text)
                if sent is not None and not self.is_behind:
                    await self._wait_for_errors(path, sent)
        except TimeoutError:
            self.is_behind = True

    async def symbols(self, query: str, deadline: float) -> Any:
        """The answer to `workspace/symbol`; None if there is none by the `deadline`."""
        return await self._answered(lambda client: client.request("workspace/symbol", {"query": query}), deadline)

    async def answer(self, operation: str, path: Path, text: str, position: tuple[int, int], deadline: float) -> Any:
        """The answer to an operation of the tool `lsp`, about a file with this text. None if there is none by the `deadline`."""

        async def ask(client: "LspClient") -> Any:
            self._send(path, text)
            return await _answer_to(client, operation, path.as_uri(), *position)

        return await self._answered(ask, deadline)

    async def _answered(self, ask: "Callable[[LspClient], Awaitable[Any]]", deadline: float) -> Any:
        if self.is_behind:
            return None
        try:
            async with asyncio.timeout_at(deadline):
                await self._start_ended.wait()
                return await ask(self._client) if self._client else None
        except TimeoutError:
            self.is_behind = True
        except LspFailure as failure:
            log.debug("the language server %s does not answer: %s", self.target.kind.id, failure)
        return None

    def _send(self, path: Path, text: str) -> _SentFile | None:
        """None if the server is not ready, or the text too long for it."""
        client = self._client
        if client is None or len(text) > _MAX_TEXT:
            return None
        file = self._files.setdefault(path, _SentFile())
        self._files.move_to_end(path)
        file.version += 1
        file.is_exact = False
        file.published.clear()
        self.errors.pop(path, None)
        closed = self._files.popitem(last=False)[0] if len(self._files) > _MAX_OPEN else None
        with suppress(LspFailure):
            _send_text(client, path, file.version, text)
            if closed:
                client.notify("textDocument/didClose", {"textDocument": {"uri": closed.as_uri()}})
        if self._supports_pull and self._names_versions is None and len(self._pulls) < _MAX_PULLS:
            self._pulls.start(self._pull_errors(client, path, file.version), "ask a language server for errors")
        return file

    async def _wait_for_errors(self, path: Path, file: _SentFile) -> None:
        """Returns when the server has published all errors of the file, has no news of it, or has ended."""
        published = asyncio.create_task(file.published.wait())
        unchanged = asyncio.create_task(self._wait_if_unchanged(path))
        try:
            await asyncio.wait({published, unchanged}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            published.cancel()
            unchanged.cancel()
        while file.published.is_set() and not file.is_exact:
            file.published.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_SILENCE_SECONDS):
                    await file.published.wait()

    async def _wait_if_unchanged(self, path: Path) -> None:
        """Returns when the server answers and still publishes nothing of the file: some servers are silent about a file that has
        stayed without errors. A server that names versions publishes the errors of each."""
        client = self._client
        assert client is not None
        with suppress(LspFailure):
            await client.request("textDocument/documentSymbol", {"textDocument": {"uri": path.as_uri()}})
        if self._names_versions is False:
            await asyncio.sleep(_UNCHANGED_SECONDS)
        else:
            await client.ended()

    async def _pull_errors(self, client: "LspClient", path: Path, version: int) -> None:
        """For servers that publish nothing and wait for requests. Outlasts the call that waits, so that one that is behind
        catches up."""
        uri = path.as_uri()
        try:
            answer = await client.request("textDocument/diagnostic", {"textDocument": {"uri": uri}})
        except LspFailure as failure:
            log.debug("the language server %s does not tell errors: %s", self.target.kind.id, failure)
            return
        if published := pulled_errors(answer, uri, version):
            self._accept(path, published)

    def _on_published(self, params: Any) -> None:
        published = PublishedErrors.of(params)
        path = published.path if published else None
        if published is None or path is None or not path.is_relative_to(self.target.top):
            return
        self._names_versions = published.version is not None
        self._accept(path, published)

    def _accept(self, path: Path, published: PublishedErrors) -> None:
        file = self._files.get(path)
        if file is not None and published.version not in (None, file.version):
            return  # of the file's earlier text
        errors = published.errors()
        self.errors.pop(path, None)
        if errors.total:
            self.errors[path] = errors
        if len(self.errors) > _MAX_FILES:
            self.errors.popitem(last=False)
        if file is not None:
            file.is_exact = published.version is not None
            file.published.set()
            self.is_behind = False
        self.target.diagnosed(path)

    # Running.

    async def _run(self) -> None:
        kind, root = self.target.kind.id, self.target.root
        module = await asyncio.to_thread(import_module, "app.workspace.lsp.client")
        for left in range(RESTARTS, -1, -1):
            reason = await self._serve(module.connected)
            log.warning("the language server %s of %s stopped: %s%s", kind, root, reason, "; started again" if left else "")
        self.has_failed = True
        self._start_ended.set()
        self.target.changed()

    async def _serve(self, connected: "Callable[..., AbstractAsyncContextManager[LspClient]]") -> str:
        """Returns when the server has ended: the reason."""
        target = self.target
        try:
            program = await asyncio.to_thread(target.program)
            async with connected(program, target.settings, self._on_published) as client:
                async with asyncio.timeout(START_SECONDS):
                    self._supports_pull = supports_pull(await _initialize(client, target.root, target.settings))
                self._client, self.is_behind = client, False
                self._start_ended.set()
                target.changed()
                return await client.ended()
        except TimeoutError:
            return f"it did not start within {START_SECONDS:g} seconds"
        except (OSError, LspFailure) as error:
            return str(error)
        except Exception as error:
            log.exception("the language server %s cannot be run", target.kind.id)
            return str(error)
        finally:
            self._is_gone()

    def _is_gone(self) -> None:
        was_ready, self._client = self._client is not None, None
        files, self._files = self._files, OrderedDict()
        self.errors.clear()
        self._start_ended.clear()
        for file in files.values():
            file.is_exact = True  # nothing follows
            file.published.set()
        if was_ready:
            self.target.changed()


async def _initialize(client: "LspClient", root: Path, settings: Mapping[str, Any]) -> Any:
    folder = {"uri": root.as_uri(), "name": "workspace"}
    workspace = {"rootUri": root.as_uri(), "workspaceFolders": [folder], "initializationOptions": dict(settings)}
    answer = await client.request("initialize", {"processId": None, "capabilities": _CAPABILITIES, **workspace})
    client.notify("initialized", {})
    if settings:
        client.notify("workspace/didChangeConfiguration", {"settings": dict(settings)})
    return answer


def _send_text(client: "LspClient", path: Path, version: int, text: str) -> None:
    """Version 1 opens the file."""
    document = {"uri": path.as_uri(), "version": version}
    client.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": path.as_uri(), "type": _CHANGED}]})
    if version == 1:
        opened = {**document, "languageId": language_of(path), "text": text}
        client.notify("textDocument/didOpen", {"textDocument": opened})
    else:
        client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})


async def _answer_to(client: "LspClient", operation: str, uri: str, line: int, character: int) -> Any:
    """The answer to one of OpenCode's operations. `line` and `character` count from 0. Raises LspFailure."""
    if operation == "documentSymbol":
        return await client.request("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
    if operation == "workspaceSymbol":
        return await client.request("workspace/symbol", {"query": ""})
    if operation in _CALLS:
        items = await _answer_to(client, "prepareCallHierarchy", uri, line, character)
        return await client.request(_CALLS[operation], {"item": items[0]}) if isinstance(items, list) and items else []
    place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
    context = {"context": {"includeDeclaration": True}} if operation == "findReferences" else {}
    return await client.request(_ABOUT_A_PLACE[operation], {**place, **context})
