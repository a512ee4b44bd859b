"""The client of the official openai SDK, for OpenAI itself and for every server that speaks its formats."""

from typing import TYPE_CHECKING

from app.provider.wire.connection import ProviderAddress
from app.provider.wire.errors import missing_key
from app.provider.wire.sdk_adapter import NO_KEY, SdkAdapter

if TYPE_CHECKING:
    import httpx2


class OpenAIAdapter(SdkAdapter):
    """Without a base URL it is OpenAI, which needs a key. Elsewhere no key means no Authorization header: a server that asks for
    none may refuse a made-up one."""

    def _address(self, unused: "httpx2.AsyncClient") -> ProviderAddress:
        key, headers = self._api_key, self._headers
        signed = any(name.lower() == "authorization" for name in headers)
        if not (key or self._base_url or signed):
            raise missing_key(self._provider_id)
        from openai import AsyncOpenAI, Omit

        sdk = AsyncOpenAI(api_key=key or NO_KEY, base_url=self._base_url or None, http_client=unused)
        return ProviderAddress.of(sdk, headers if key or signed else {**headers, "Authorization": Omit()})
