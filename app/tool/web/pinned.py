"""HTTP requests to checked addresses: the connection goes to the address that was checked, which prevents DNS rebinding."""

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.tool.web import addresses
from app.tool.web.addresses import Address, Resolve
from app.util.environment import system_tls

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    import httpx2


class AddressDenied(Exception):
    """The message says why no request may be sent there, or why none can be."""


class PinnedRequests:
    """`allow_private` permits addresses for which `is_public` is false; `resolve` returns a host's addresses; `tls` returns the
    TLS context."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        is_public: Callable[[Address], bool] = addresses.is_public,
        resolve: Resolve = addresses.resolve,
        tls: Callable[[], ssl.SSLContext] = system_tls,
    ) -> None:
        self._allow_private = allow_private
        self._is_public = is_public
        self._resolve = resolve
        self._tls = tls

    def client(self, connect_seconds: float, headers: dict[str, str] | None = None) -> "httpx2.AsyncClient":
        """Keeps connections by address. Ignores the proxies of the environment, because the address behind a
        proxy cannot be checked, and follows no redirect."""
        import httpx2

        return httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(verify=self._tls()),
            headers=headers,
            timeout=httpx2.Timeout(None, connect=connect_seconds),
            cookies=_no_cookies(),
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

        *alternatives, last = [_pinned(url, address) for address in await self.checked_addresses(url)]
        for pinned in alternatives:
            try:
                return await client.send(_request(client, method, pinned, url, headers, content), stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await client.send(_request(client, method, last, url, headers, content), stream=True)

    async def checked_addresses(self, url: "httpx2.URL") -> list[Address]:
        """At least one. Raises AddressDenied."""
        if url.scheme not in ("http", "https") or not url.host:
            raise AddressDenied(f"Cannot reach {url}: only http:// and https:// addresses can be")
        try:
            found = await self._resolve(url.host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, UnicodeError) as error:
            raise AddressDenied(f"The host {url.host} cannot be found: {error}") from error
        if not found:
            raise AddressDenied(f"The host {url.host} has no address")
        if not self._allow_private and not all(map(self._is_public, found)):
            # Not which: who asks may not know the addresses of a network's own names.
            raise AddressDenied(f"The address of {url.host} is not a public address; requests to it are not allowed")
        return found


def _no_cookies() -> "CookieJar":
    """httpx2 stores cookies by the host in the URL, here an address: hosts with the same address would receive each other's."""
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    return CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))


def _pinned(url: "httpx2.URL", address: Address) -> "httpx2.URL":
    return url.copy_with(host=str(address))


def _request(
    client: "httpx2.AsyncClient",
    method: str,
    pinned: "httpx2.URL",
    url: "httpx2.URL",
    headers: dict[str, str],
    content: bytes | None,
) -> "httpx2.Request":
    """A request to the address, with the host in the Host header and as the name that the TLS certificate must have."""
    return client.build_request(
        method,
        pinned,
        headers={**headers, "Host": url.netloc.decode("ascii")},
        content=content,
        extensions={"sni_hostname": url.raw_host.decode("ascii")},
    )
