"""The client of the official openai SDK, for OpenAI itself and for every server that speaks its formats."""

from typing import TYPE_CHECKING, Any

from app.provider.wire.connection import IDLE_SECONDS, ProviderConnection, SdkClient, idle_seconds
from app.provider.wire.errors import missing_key

if TYPE_CHECKING:
    import httpx2

_NO_KEY = "none"


def openai_connection(
    provider_id: str,
    api_key: str | None,
    base_url: str | None,
    headers: dict[str, str],
    options: dict[str, Any],
    idle: float = IDLE_SECONDS,
) -> ProviderConnection:
    """Without a base URL it is OpenAI, which needs a key. Elsewhere no key means no Authorization header: a server that asks for
    none may refuse a made-up one."""

    def make(timeout: "httpx2.Timeout") -> SdkClient:
        signed = any(name.lower() == "authorization" for name in headers)
        if not (api_key or base_url or signed):
            raise missing_key(provider_id)
        from openai import AsyncOpenAI, Omit

        client = AsyncOpenAI(api_key=api_key or _NO_KEY, base_url=base_url or None, max_retries=0, timeout=timeout)
        own = headers if api_key or signed else {**headers, "Authorization": Omit()}
        return SdkClient(client, own)

    return ProviderConnection(make, idle_seconds=idle_seconds(options, idle))
