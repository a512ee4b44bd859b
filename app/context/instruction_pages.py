"""Web pages in a configuration's `instructions`: fetched once, cached, and revalidated in the background."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.util.bounds import IDENTITY, require_identity

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

MAX_BYTES = 1_000_000
MAX_PAGES = 64
_GONE = frozenset({404, 410})


@dataclass(frozen=True, slots=True)
class PageTimes:
    """In seconds. `first_wait`: how long a turn waits for all new pages together. `fetch`: the timeout of a fetch. `refresh`: the
    interval of revalidation. `retry`: the delay after a failure, doubled with every failure."""

    first_wait: float = 5.0
    fetch: float = 30.0
    refresh: float = 300.0
    retry: float = 60.0
    longest_retry: float = 3600.0


@dataclass(slots=True)
class _CachedPage:
    url: str
    waited_for_until: float
    text: str = ""
    validators: Mapping[str, str] = field(default_factory=dict)
    """The headers of a conditional request."""
    due: float = 0.0
    failures: int = 0
    fetching: asyncio.Task[None] | None = None


class InstructionPages:
    """Texts by URL. A page that cannot be fetched keeps its last text, or is empty."""

    def __init__(self, times: PageTimes | None = None) -> None:
        self._times = times or PageTimes()
        self._pages: dict[str, _CachedPage] = {}

    async def texts(self, urls: Sequence[str]) -> list[tuple[str, str]]:
        """(url, text) of each page. Waits only for a page's first fetch, up to `first_wait`."""
        pages = [self._get(url) for url in urls]
        await self._first_fetches(pages)
        return [(page.url, page.text) for page in pages]

    async def close(self) -> None:
        fetching = [page.fetching for page in self._pages.values() if page.fetching]
        for url in [*self._pages]:
            self._drop(url)
        await asyncio.gather(*fetching, return_exceptions=True)

    def _get(self, url: str) -> _CachedPage:
        """Returns a page and starts a fetch if one is due. Evicts the least recently used page."""
        now = time.monotonic()
        page = self._pages.pop(url, None) or _CachedPage(url, now + self._times.first_wait)
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

    async def _first_fetches(self, pages: Sequence[_CachedPage]) -> None:
        now = time.monotonic()
        new = {page.fetching: page.waited_for_until - now for page in pages if page.fetching and page.waited_for_until > now}
        if new:
            await asyncio.wait(new, timeout=max(new.values()))

    async def _fetch(self, page: _CachedPage) -> None:
        try:
            async with asyncio.timeout(self._times.fetch):
                await self._ask(page)
        except Exception as error:  # noqa: BLE001  a turn goes on without the page
            self._failed(page, str(error) or type(error).__name__)
        finally:
            page.fetching = None

    async def _ask(self, page: _CachedPage) -> None:
        import httpx2

        async with (
            httpx2.AsyncClient(timeout=self._times.fetch, follow_redirects=True) as client,
            client.stream("GET", page.url, headers={**page.validators, **IDENTITY}) as answer,
        ):
            if answer.is_success:
                page.text = await _read(answer)
                page.validators = _validators(answer)
            elif answer.status_code != httpx2.codes.NOT_MODIFIED:
                if answer.status_code in _GONE:
                    page.text, page.validators = "", {}
                self._failed(page, f"HTTP status {answer.status_code}")
                return
        page.failures = 0
        page.due = time.monotonic() + self._times.refresh

    def _failed(self, page: _CachedPage, reason: str) -> None:
        if page.failures == 0:
            log.warning("the instructions at %s cannot be fetched: %s", page.url, reason)
        page.due = time.monotonic() + min(self._times.retry * 2**page.failures, self._times.longest_retry)
        page.failures += 1


async def _read(answer: "httpx2.Response") -> str:
    require_identity(answer.headers)
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) >= MAX_BYTES:
            break
    return body[:MAX_BYTES].decode(answer.encoding or "utf-8", "replace")


def _validators(answer: "httpx2.Response") -> dict[str, str]:
    asked = {"If-None-Match": answer.headers.get("etag"), "If-Modified-Since": answer.headers.get("last-modified")}
    return {name: value for name, value in asked.items() if value}
