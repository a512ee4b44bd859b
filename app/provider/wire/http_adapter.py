"""What the adapters of all wire formats have in common: how a provider is reached, and a connection that is made when needed."""

from abc import ABC, abstractmethod
from typing import Any

from app.provider.wire.connection import IDLE_SECONDS, ProviderAddress, ProviderConnection, idle_seconds
from app.util.secrets import secrets_of


class HttpAdapter(ABC):
    """`options` are the provider's own: `chunkTimeout`, else `timeout`, in milliseconds of silence; false: for ever."""

    def __init__(
        self,
        provider_id: str,
        *,
        api_key: str | None,
        base_url: str | None,
        headers: dict[str, str],
        options: dict[str, Any],
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._provider_id = provider_id
        self._api_key = api_key
        self._base_url = base_url
        self._headers = headers
        self._options = options
        secrets = secrets_of({"key": api_key, "url": base_url, "headers": headers, "options": options})
        self._connection = ProviderConnection(self._address, idle_seconds=idle_seconds(options, idle), secrets=list(secrets))

    async def close(self) -> None:
        await self._connection.close()

    @abstractmethod
    def _address(self) -> ProviderAddress:
        """Raises MissingKey."""

    def _configures(self, header: str) -> bool:
        return any(name.lower() == header for name in self._headers)
