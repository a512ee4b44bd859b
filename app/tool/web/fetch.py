"""Fetches what is at a web address: from checked addresses, each redirect too, and no more bytes than the caller takes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.tool.web.pinned import PinnedRequests

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 10.0
MAX_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PLAIN_AGENT = "opensession"


class FetchFailed(Exception):
    """The message says why, for users and models."""


@dataclass(frozen=True, slots=True)
class WebPage:
    """`url` is where the last redirect led to."""

    url: str
    content_type: str
    body: bytes


async def fetch(requests: PinnedRequests, url: str, headers: dict[str, str], max_bytes: int) -> WebPage:
    """Takes as long as the server does: the caller sets the timeout. Raises FetchFailed, AddressDenied."""
    import httpx2

    try:
        async with requests.client(CONNECT_SECONDS, headers) as client:
            return await _follow(requests, client, httpx2.URL(url), max_bytes)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise FetchFailed(f"The request to {url} failed: {error or type(error).__name__}") from error


async def _follow(requests: PinnedRequests, client: "httpx2.AsyncClient", url: "httpx2.URL", max_bytes: int) -> WebPage:
    for _ in range(MAX_REDIRECTS + 1):
        async with _get(requests, client, url) as response:
            location = response.headers.get("location")
            if response.status_code not in _REDIRECTS or not location:
                return await _read(response, str(url), max_bytes)
            url = url.join(location)
    raise FetchFailed(f"Stopped after {MAX_REDIRECTS} redirects, the last one to {url}")


@asynccontextmanager
async def _get(requests: PinnedRequests, client: "httpx2.AsyncClient", url: "httpx2.URL") -> AsyncIterator["httpx2.Response"]:
    response = await requests.send(client, "GET", url, {})
    try:
        if _is_browser_challenge(response):
            await response.aclose()
            response = await requests.send(client, "GET", url, {"User-Agent": _PLAIN_AGENT})
        yield response
    finally:
        await response.aclose()


def _is_browser_challenge(response: "httpx2.Response") -> bool:
    """Cloudflare challenges clients that claim to be a browser and fail its checks."""
    return response.status_code == 403 and response.headers.get("cf-mitigated") == "challenge"


async def _read(response: "httpx2.Response", url: str, max_bytes: int) -> WebPage:
    if not response.is_success:
        raise FetchFailed(f"Request failed with status code: {response.status_code}")
    too_large = FetchFailed(f"The answer of {url} is larger than {max_bytes / 1024 / 1024:.3g} MiB")
    announced = response.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > max_bytes:
        raise too_large
    if "," in response.headers.get("content-encoding", ""):
        raise FetchFailed(f"The answer of {url} is compressed more than once")  # a kilobyte could unpack to gigabytes at once
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > max_bytes:
            raise too_large
    return WebPage(url=url, content_type=response.headers.get("content-type", ""), body=bytes(body))
