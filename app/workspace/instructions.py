"""The instructions that a project, its configuration and its user give every model: AGENTS.md and the like, and web pages."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from app.project.config.flags import Flags
from app.schema.message import MessageWithParts
from app.schema.part import Completed
from app.util.bounds import IDENTITY, require_identity
from app.util.environment import home, opencode_config_dir, system_tls
from app.util.project_files import (
    MAX_ALL_BYTES,
    MAX_BYTES,
    BoundedReader,
    ProjectBounds,
    Within,
    anywhere,
    matching_paths,
    read_bytes,
    warn_once,
)
from app.workspace.instance import Instance

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

MAX_PAGE_BYTES = 1_000_000
MAX_PAGES = 64
FETCH_SECONDS = 30.0
_GONE = frozenset({404, 410})


@dataclass(slots=True)
class _InstructionPage:
    url: str
    waited_for_until: float
    text: str = ""
    due: float = 0.0
    has_failed: bool = False
    fetching: asyncio.Task[None] | None = None


class InstructionPages:
    """Texts of the web pages in a configuration's `instructions`, by URL. A page is fetched with its first use, and again in the
    background. If that fails it keeps its last text, or is empty."""

    def __init__(self, *, first_wait: float = 5.0, refresh: float = 300.0) -> None:
        """`first_wait`: seconds that a turn waits for all new pages together. `refresh`: seconds from one fetch to the next."""
        self._first_wait = first_wait
        self._refresh = refresh
        self._pages: dict[str, _InstructionPage] = {}

    async def texts(self, urls: Sequence[str]) -> list[tuple[str, str]]:
        """(url, text) of each page, of MAX_PAGES at most. Waits only for a page's first fetch, up to `first_wait`."""
        if len(urls) > MAX_PAGES:
            warn_once(log, f"left out of the instructions: {len(urls) - MAX_PAGES} pages, from {urls[MAX_PAGES]} on")
        pages = [self._get(url) for url in urls[:MAX_PAGES]]
        now = time.monotonic()
        new = {page.fetching: page.waited_for_until - now for page in pages if page.fetching and page.waited_for_until > now}
        if new:
            await asyncio.wait(new, timeout=max(new.values()))
        return [(page.url, page.text) for page in pages]

    async def close(self) -> None:
        fetching = [page.fetching for page in self._pages.values() if page.fetching]
        for url in [*self._pages]:
            self._drop(url)
        await asyncio.gather(*fetching, return_exceptions=True)

    def _get(self, url: str) -> _InstructionPage:
        """Returns a page and starts a fetch if one is due. Evicts the least recently used page."""
        now = time.monotonic()
        page = self._pages.pop(url, None) or _InstructionPage(url, now + self._first_wait)
        self._pages[url] = page
        if len(self._pages) > MAX_PAGES:
            self._drop(next(iter(self._pages)))
        if page.due <= now and page.fetching is None:
            page.fetching = asyncio.create_task(self._fetch(page), name="instruction page")
        return page

    def _drop(self, url: str) -> None:
        page = self._pages.pop(url)
        if page.fetching is not None:
            page.fetching.cancel()

    async def _fetch(self, page: _InstructionPage) -> None:
        failure = None
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                failure = await _download(page)
        except Exception as error:  # noqa: BLE001  a turn goes on without the page
            failure = str(error) or type(error).__name__
        finally:
            page.fetching = None
            page.due = time.monotonic() + self._refresh
        if failure is not None and not page.has_failed:
            log.warning("the instructions at %s cannot be fetched: %s", page.url, failure)
        page.has_failed = failure is not None


async def _download(page: _InstructionPage) -> str | None:
    """Sets the page's text. Returns the problem, if there is one."""
    import httpx2

    async with (
        httpx2.AsyncClient(timeout=FETCH_SECONDS, follow_redirects=True, verify=system_tls()) as client,
        client.stream("GET", page.url, headers=IDENTITY) as answer,
    ):
        if answer.is_success:
            page.text = await _read(answer)
            return None
        if answer.status_code in _GONE:
            page.text = ""
        return f"HTTP status {answer.status_code}"


async def _read(answer: "httpx2.Response") -> str:
    require_identity(answer.headers)
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) >= MAX_PAGE_BYTES:
            break
    return body[:MAX_PAGE_BYTES].decode(answer.encoding or "utf-8", "replace")


LOCAL_NAMES = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
MAX_NEARBY_CHARACTERS = 32_000
"""The limit for a file that is sent with a tool's output."""


@dataclass(frozen=True, slots=True)
class InstructionScope:
    """Where to look: from `directory` up to `worktree`. `may_read`: if what a project names or links to is its user's."""

    directory: Path
    worktree: Path
    flags: Flags
    configured: Sequence[str] = ()
    bounds: ProjectBounds | None = None
    may_read: Within = anywhere

    @classmethod
    def of(cls, instance: Instance) -> "InstructionScope":
        directory, worktree = Path(instance.location.directory), Path(instance.location.worktree)
        configured, may_read = instance.config.instructions, instance.may_read or anywhere
        return cls(directory, worktree, instance.flags, configured, instance.bounds, may_read)

    @property
    def project(self) -> ProjectBounds:
        return self.bounds or ProjectBounds.of(self.directory, self.worktree)

    @property
    def upward(self) -> list[Path]:
        """The directory and its parents up to the worktree. Outside git only the directory, because its parents may be
        unrelated."""
        if self.worktree in (self.directory, Path("/")):
            return [self.directory]
        parents = [self.directory, *self.directory.parents]
        return parents[: parents.index(self.worktree) + 1] if self.worktree in parents else [self.directory]


def _left_out(error: OSError) -> None:
    warn_once(log, f"left out of the instructions: {error}")


async def blocks(scope: InstructionScope, pages: InstructionPages) -> list[str]:
    """One text for each non-empty file and page, in the order of discovery."""
    found = await asyncio.to_thread(read_files, scope)
    urls = [pattern for pattern in scope.configured if _is_url(pattern)]
    fetched = await pages.texts(urls) if urls else []
    return [f"Instructions from: {file}\n{text}" for file, text in (*found, *fetched) if text.strip()]


async def nearby(path: Path, scope: InstructionScope, seen: set[str]) -> dict[str, str]:
    """Path → text of the instruction files between a file's directory and the scope's directory, without those in the system
    prompt and in `seen`. Adds them to `seen` at once, so that concurrent calls do not repeat them."""
    found = [file for file in await asyncio.to_thread(_nearby, path, scope) if str(file) not in seen]
    seen.update(map(str, found))
    texts = await asyncio.to_thread(_texts, [(str(file), _of_project(scope)) for file in found])
    return {path: text[:MAX_NEARBY_CHARACTERS] for path, text in texts if text.strip()}


def seen_in(history: Sequence[MessageWithParts]) -> set[str]:
    """The instruction files in the outputs of read calls that are still sent to the model."""
    reads = (part.state for message in history for part in message.parts if part.type == "tool" and part.tool == "read")
    sent = (state for state in reads if isinstance(state, Completed) and state.time.compacted is None)
    return {path for state in sent for path in state.metadata.get("loaded", ())}


def _nearby(path: Path, scope: InstructionScope) -> list[Path]:
    if scope.flags.disable_project_config or scope.directory not in path.parents:
        return []
    below = takewhile(lambda folder: folder != scope.directory, path.parents)
    found = [file for folder in below if (file := _first_of(folder)) is not None and file != path]
    in_system = {path for path, _ in _configured(scope)} if found else set()
    return [file for file in found if str(file) not in in_system]


def _first_of(folder: Path) -> Path | None:
    return next((Path(path) for path in _files((folder, name) for name in LOCAL_NAMES)), None)


def read_files(scope: InstructionScope, refuse: Callable[[OSError], None] = _left_out) -> list[tuple[str, str]]:
    """(path, text) of each. `refuse` is called for those that cannot be read."""
    local = [(path, _of_project(scope)) for path in _local(scope)]
    own = [(path, anywhere) for path in _global(scope.flags)]
    return _texts([*local, *own, *_configured(scope, refuse)], refuse)


def _texts(wanted: Iterable[tuple[str, Within]], refuse: Callable[[OSError], None] = _left_out) -> list[tuple[str, str]]:
    """Each path once, up to a limit for all together."""
    texts, left = list[tuple[str, str]](), MAX_ALL_BYTES
    first: dict[str, Within] = {}
    for path, within in wanted:
        first.setdefault(path, within)
    for path, within in first.items():
        try:
            data = read_bytes(path, within, min(left, MAX_BYTES))
        except OSError as error:
            refuse(error)
            continue
        if data is not None:
            left -= len(data)
            texts.append((path, data.decode("utf-8", "replace")))
    return texts


def _of_project(scope: InstructionScope) -> Within:
    project, may_read = scope.project, scope.may_read
    return lambda real: project.hold(real) and may_read(real)


def _local(scope: InstructionScope) -> list[str]:
    """All files of the first name that exists anywhere, the nearest first."""
    if scope.flags.disable_project_config:
        return []
    folders = list(map(str, scope.upward))
    return next((found for name in LOCAL_NAMES if (found := _files((folder, name) for folder in folders))), [])


def _files(candidates: Iterable[tuple[str | Path, str]]) -> list[str]:
    """The files that exist, of folders and names. As texts: this runs before each step, and making a Path takes as long as the
    look."""
    found = (os.path.join(folder, name) for folder, name in candidates)  # noqa: PTH118
    return [path for path in found if os.path.exists(path) and not os.path.isdir(path)]  # noqa: PTH110, PTH112


def _global(flags: Flags) -> list[str]:
    candidates: list[tuple[str | Path, str]] = [(opencode_config_dir(), "AGENTS.md")]
    if not flags.disable_claude_code_prompt:
        candidates.append((home(), ".claude/CLAUDE.md"))
    if flags.config_dir:
        candidates.append((flags.config_dir, "AGENTS.md"))
    return _files(candidates)[:1]


def _configured(scope: InstructionScope, refuse: Callable[[OSError], None] = _left_out) -> Iterator[tuple[str, Within]]:
    """Paths with the bounds of each. A pattern that begins at the home directory or at `/` is the user's own, or was checked when
    the configuration was read."""
    project, may_read = scope.project, scope.may_read
    inside, own = BoundedReader(_of_project(scope)), BoundedReader(may_read)
    above = BoundedReader(lambda real: project.may_name(real) and may_read(real))
    for pattern in scope.configured:
        if _is_url(pattern):
            continue
        reader = above if ".." in pattern.split("/") else inside
        if pattern.startswith(("~/", "/")) or scope.flags.disable_project_config:
            reader = own
        for folder in _bases(pattern, scope):
            relative = pattern.removeprefix("~/").removeprefix("/")
            found = _files(("/", path) for path in matching_paths(reader, str(folder), relative))
            yield from ((path, reader.within) for path in found)
    for error in (*inside.refused, *above.refused, *own.refused):
        refuse(error)


def _bases(pattern: str, scope: InstructionScope) -> list[Path]:
    """The directories that a pattern is relative to."""
    if pattern.startswith("~/"):
        return [home()]
    if Path(pattern).is_absolute():
        return [Path("/")]
    if scope.flags.disable_project_config:
        return [Path(scope.flags.config_dir)] if scope.flags.config_dir else []
    return scope.upward


def _is_url(pattern: str) -> bool:
    return pattern.startswith(("http://", "https://"))
