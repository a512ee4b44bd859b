"""Where OpenAI's requests go, and those to every server that speaks its formats."""

import os

from app.provider.wire.connection import ProviderAddress
from app.provider.wire.errors import missing_key
from app.provider.wire.http_adapter import HttpAdapter


class OpenAIAdapter(HttpAdapter):
    """Without a base URL it is OpenAI, which needs a key. Elsewhere no key means no Authorization header: a server that asks for
    none may refuse a made-up one."""

    def _address(self) -> ProviderAddress:
        if not (self._api_key or self._base_url or self._configures("authorization")):
            raise missing_key(self._provider_id)
        base_url = self._base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        signed = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        return ProviderAddress(base_url.rstrip("/"), {**signed, **self._headers})
