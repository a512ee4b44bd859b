"""How OpenAI's SDK asks, OpenAI and every server that speaks its formats."""

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from app.provider.wire.errors import missing_key
from app.provider.wire.sdk_adapter import Headers, SdkAdapter, environment_headers

if TYPE_CHECKING:
    from openai import AsyncAPIResponse, AsyncOpenAI


class OpenAIAdapter(SdkAdapter["AsyncOpenAI", "AsyncAPIResponse[Any]"]):
    """Without a base URL it is OpenAI, which needs a key. Elsewhere no key means no Authorization header: a server that asks for
    none may refuse a made-up one."""

    def _address(self) -> str:
        if not (self._api_key or self._base_url or self._configures("authorization")):
            raise missing_key(self._provider_id)
        base_url = self._base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        return base_url.rstrip("/")

    def _own_headers(self) -> Headers:
        """Without what the environment says of OpenAI's own server."""
        unsaid: Headers = {"openai-organization": None, "openai-project": None, **environment_headers("OPENAI_CUSTOM_HEADERS")}
        return {**unsaid, "authorization": f"Bearer {self._api_key}" if self._api_key else None}

    def _make(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        return AsyncOpenAI(
            api_key=self._api_key or "none",
            base_url=self._address(),
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(**self._http()),
        )

    async def _events(self, response: "AsyncAPIResponse[Any]") -> AsyncIterator[object]:
        from openai import AsyncStream

        return await response.parse(to=AsyncStream[object])
