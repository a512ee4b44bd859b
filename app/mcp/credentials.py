"""What signing in to remote servers left: `mcp-auth.json`, a map from an address to its tokens, readable by its owner alone."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from app.util.data_files import PrivateJson


class Credentials(BaseModel):
    """`client` is how this program is registered there, `metadata` where tokens are renewed; both in the SDK's form.
    `expires_at` is in seconds since 1970."""

    redirect_uri: str
    client: dict[str, Any] | None = None
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None
    metadata: dict[str, Any] | None = None


class CredentialStore:
    def __init__(self, data_dir: Path) -> None:
        self._file = PrivateJson(data_dir / "mcp-auth.json")

    def get(self, url: str) -> Credentials | None:
        """None also for an invalid entry: the user signs in again."""
        try:
            return Credentials.model_validate(self._file.read().get(url))
        except ValidationError:
            return None

    def put(self, url: str, credentials: Credentials) -> None:
        with self._file.updating() as content:
            content[url] = credentials.model_dump(mode="json", exclude_none=True)

    def remove(self, url: str) -> None:
        with self._file.updating() as content:
            content.pop(url, None)
