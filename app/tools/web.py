"""HTTP requests to public addresses only. The connection goes to the address that was checked, which prevents DNS rebinding."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

from app.util.environment import system_tls

if TYPE_CHECKING:
    import httpx2

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[Address]]]

_ALSO_DENIED = (
    ip_network("192.0.0.0/24"),  # protocol assignments; contains Oracle's metadata service
    ip_network("168.63.129.16/32"),  # Azure's platform service
    ip_network("192.88.99.0/24"),  # relays to IPv6, which are no more
    ip_network("3fff::/20"),  # documentation
)
_NAT64 = ip_network("64:ff9b::/96")

CONNECT_SECONDS = 10.0
MAX_REDIRECTS = 10
MAX_PORT = 65535
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PLAIN_AGENT = "opensession"


async def resolve(host: str, port: int) -> list[Address]:
    """All addresses of a host, in the order to try them. Raises OSError if there is none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))


def is_public(address: Address) -> bool:
    """False for loopback, private, shared (CGNAT), link-local (cloud metadata), multicast, reserved and unspecified addresses.
    For an IPv6 address that contains an IPv4 address, the latter decides."""
    embedded = _embedded_ipv4(address)
    if embedded is not None:
        return is_public(embedded)
    if any(address in network for network in _ALSO_DENIED):
        return False
    site_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or site_local)


def _embedded_ipv4(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


class AddressDenied(Exception):
    """The message says why no request may be sent to the address, or why none can be."""


class PinnedRequests:
    """`allow_private` permits addresses for which `is_public` is false; `resolve` returns a host's addresses; `tls` returns the
    TLS context."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        is_public: Callable[[Address], bool] = is_public,
        resolve: Resolve = resolve,
        tls: Callable[[], ssl.SSLContext] = system_tls,
    ) -> None:
        self._allow_private = allow_private
        self._is_public = is_public
        self._resolve = resolve
        self._tls = tls

    def client(self, connect_seconds: float, headers: dict[str, str] | None = None) -> "httpx2.AsyncClient":
        """Keeps connections by address. Ignores the proxies of the environment, because the address behind a
        proxy cannot be checked, and follows no redirect."""
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        import httpx2

        return httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(verify=self._tls()),
            headers=headers,
            timeout=httpx2.Timeout(None, connect=connect_seconds),
            # No cookies: httpx2 stores them by the host in the URL, here an address, which several hosts may share.
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            trust_env=False,
        )

    async def send(
        self,
        client: "httpx2.AsyncClient",
        method: str,
        url: "httpx2.URL",
        headers: dict[str, str],
        content: bytes | None = None,
    ) -> "httpx2.Response":
        """Connects to the addresses in turn until one accepts. The body of the answer is still to be read. Raises AddressDenied,
        httpx2.HTTPError."""
        import httpx2

        host = {"Host": url.netloc.decode("ascii")}
        named = {"sni_hostname": url.raw_host.decode("ascii")}  # the name that the TLS certificate must have
        addresses = await self.checked_addresses(url)
        for address in addresses:
            pinned = url.copy_with(host=str(address))
            request = client.build_request(method, pinned, headers={**headers, **host}, content=content, extensions=named)
            try:
                return await client.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if address == addresses[-1]:
                    raise
        raise AssertionError("there is at least one address")

    async def checked_addresses(self, url: "httpx2.URL") -> list[Address]:
        """At least one. Raises AddressDenied."""
        if url.scheme not in ("http", "https") or not url.host:
            raise AddressDenied(f"Cannot reach {url}: only http:// and https:// addresses can be")
        if url.port is not None and url.port > MAX_PORT:
            raise AddressDenied(f"Cannot reach {url}: there is no port {url.port}")
        try:
            found = await self._resolve(url.host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, UnicodeError) as error:
            raise AddressDenied(f"The host {url.host} cannot be found: {error}") from error
        if not found:
            raise AddressDenied(f"The host {url.host} has no address")
        if not self._allow_private and not all(map(self._is_public, found)):
            # The message names no address: a user may not learn the addresses of a network's own names.
            raise AddressDenied(f"The address of {url.host} is not a public address; requests to it are not allowed")
        return found


class FetchFailed(Exception):
    """The message says why, for users and models."""


@dataclass(frozen=True, slots=True)
class WebPage:
    """`url`: where the last redirect led."""

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
        # Cloudflare challenges clients that claim to be a browser and fail its checks.
        if response.status_code == 403 and response.headers.get("cf-mitigated") == "challenge":
            await response.aclose()
            response = await requests.send(client, "GET", url, {"User-Agent": _PLAIN_AGENT})
        yield response
    finally:
        await response.aclose()


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
