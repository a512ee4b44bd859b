"""The organisation's layer: `<url>/.well-known/opencode`, for each url that the user has signed in to."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.project.config.errors import ConfigInvalidError
from app.project.config.parse import Substitution, parse_layer
from app.schema.model import Auth, WellKnownAuth
from app.util.bounds import IDENTITY, AnswerPassedLimit, body_of, plain_json, require_few_values, require_identity

if TYPE_CHECKING:
    import httpx2

TIMEOUT_SECONDS = 10.0
MAX_BYTES = 1_000_000
RETRY_SECONDS = 10.0
_WEB = ("https://", "http://")


@dataclass(frozen=True)
class OrganisationConfig:
    """The layers of all organisations. `environ`: the server's environment with the user's sign-in tokens."""

    layers: Sequence[Mapping[str, Any]]
    environ: Mapping[str, str]


class Organisations:
    """The organisations that the user has signed in to. Each is asked once for each set of sign-ins; one that cannot be reached
    is asked again after RETRY_SECONDS."""

    def __init__(self, auth: Callable[[], Mapping[str, Auth]], environ: Mapping[str, str]) -> None:
        self._auth = auth
        self._environ = environ
        self._asked: tuple[list[str], dict[str, str]] | None = None
        self._answer: asyncio.Task[OrganisationConfig] | None = None
        self._failed_at = 0.0

    async def config(self) -> OrganisationConfig:
        """Returns the same object while nothing changes. Raises ConfigInvalidError, ConfigJsonError."""
        asked = sign_ins(self._auth())
        may_try_again = self._failed_at > 0 and time.monotonic() - self._failed_at > RETRY_SECONDS
        if self._answer is None or asked != self._asked or (may_try_again and self._answer.done()):
            self._asked = asked
            self._answer = asyncio.create_task(self._ask(*asked))
        return await asyncio.shield(self._answer)

    async def _ask(self, urls: list[str], tokens: dict[str, str]) -> OrganisationConfig:
        self._failed_at = 0.0
        environ = {**self._environ, **tokens} if tokens else self._environ
        try:
            return OrganisationConfig(await fetch_well_known(urls, environ), environ)
        except Exception:
            self._failed_at = time.monotonic()
            raise


def sign_ins(auth: Mapping[str, Auth]) -> tuple[list[str], dict[str, str]]:
    """The organisations' URLs, and their sign-in tokens as environment variables."""
    urls, tokens = [], {}
    for url, entry in auth.items():
        if isinstance(entry, WellKnownAuth) and url.startswith(_WEB):
            urls.append(url)
            tokens[entry.key] = entry.token
    return urls, tokens


async def fetch_well_known(
    urls: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    transport: "httpx2.AsyncBaseTransport | None" = None,
    timeout: float = TIMEOUT_SECONDS,
) -> list[dict[str, Any]]:
    """A validated layer for each url, in order. `timeout` is seconds for each. Raises ConfigInvalidError, ConfigJsonError."""
    if not urls:
        return []
    import httpx2

    addresses = [url.rstrip("/") + "/.well-known/opencode" for url in urls]
    async with httpx2.AsyncClient(transport=transport, timeout=timeout, follow_redirects=True, headers=IDENTITY) as client:
        answers = await asyncio.gather(*(_fetch(client, address) for address in addresses))
    values = Substitution(environ, lambda path: None)
    configs = [answer.get("config") or {} if isinstance(answer, dict) else answer for answer in answers]
    texts = [json.dumps(config, indent=2) for config in configs]
    return [parse_layer(text, address, None, values) for text, address in zip(texts, addresses, strict=True)]


async def _fetch(client: "httpx2.AsyncClient", address: str) -> Any:
    import httpx2

    try:
        async with client.stream("GET", address) as response:
            require_identity(response.headers)
            body = await body_of(response.aiter_bytes(), MAX_BYTES)
    except (httpx2.HTTPError, httpx2.InvalidURL, AnswerPassedLimit) as error:
        reason = str(error) or type(error).__name__
        raise ConfigInvalidError(address, f"the organisation's configuration cannot be fetched: {reason}") from error
    if not response.is_success:
        raise ConfigInvalidError(
            address, f"the organisation's configuration cannot be fetched: HTTP status {response.status_code}"
        )
    try:
        require_few_values(body)
        return plain_json(json.loads(body))
    except (ValueError, RecursionError, AnswerPassedLimit) as error:
        raise ConfigInvalidError(address, "the answer is not JSON") from error
