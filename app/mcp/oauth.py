"""The SDK's OAuth client with our storage behind it."""

from typing import Any

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from mcp.shared.auth_utils import calculate_token_expiry
from pydantic import AnyUrl, BaseModel

from app.mcp.credentials import Credentials
from app.mcp.sign_in import SignIn
from app.mcp.target import McpTarget, takes_sign_in
from app.mcp.values import SignInNeeded
from app.schema.config import McpOAuthConfig, McpRemoteConfig


def authentication(target: McpTarget, config: McpRemoteConfig) -> httpx2.Auth | None:
    """None where there is nothing to show: a server that wants more then says so."""
    if not takes_sign_in(config):
        return None
    stored = target.credentials.get(config.url)
    if target.sign_in is not None:
        return _provider(target, config, target.sign_in.redirect_uri, stored)
    return _provider(target, config, stored.redirect_uri, stored) if stored and stored.tokens else None


def _provider(target: McpTarget, config: McpRemoteConfig, redirect_uri: str, stored: Credentials | None) -> OAuthClientProvider:
    storage = _OAuthStorage(target, config, redirect_uri)
    browser = _Browser(target.sign_in)
    provider = OAuthClientProvider(config.url, _metadata(config, redirect_uri), storage, browser.open, browser.answer)
    storage.provider = provider
    if stored is not None:
        # The SDK takes stored tokens for fresh, and forgets where they are renewed.
        provider.context.token_expiry_time = stored.expires_at
        provider.context.oauth_metadata = OAuthMetadata.model_validate(stored.metadata) if stored.metadata else None
    return provider


def _metadata(config: McpRemoteConfig, redirect_uri: str) -> OAuthClientMetadata:
    own = config.oauth or McpOAuthConfig()
    return OAuthClientMetadata(client_name="opensession", redirect_uris=[AnyUrl(redirect_uri)], scope=own.scope)


class _Browser:
    def __init__(self, sign_in: SignIn | None) -> None:
        self._sign_in = sign_in

    async def open(self, address: str) -> None:
        if self._sign_in is None:
            raise SignInNeeded
        self._sign_in.address.set_result(address)

    async def answer(self) -> AuthorizationCodeResult:
        if self._sign_in is None:
            raise SignInNeeded
        code, issuer = await self._sign_in.answer
        return AuthorizationCodeResult(code=code, state=self._sign_in.state, iss=issuer)


class _OAuthStorage:
    """The SDK's TokenStorage for one server."""

    provider: OAuthClientProvider

    def __init__(self, target: McpTarget, config: McpRemoteConfig, redirect_uri: str) -> None:
        self._store = target.credentials
        self._url = config.url
        self._own = config.oauth or McpOAuthConfig()
        self._redirect_uri = redirect_uri

    async def get_tokens(self) -> OAuthToken | None:
        tokens = self._stored().tokens
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._put(
            tokens=_dump(tokens),
            expires_at=calculate_token_expiry(tokens.expires_in),
            metadata=_dump(self.provider.context.oauth_metadata),
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._own.client_id is not None:
            return self._configured(self._own.client_id)
        client = self._stored().client
        return OAuthClientInformationFull.model_validate(client) if client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._put(client=_dump(client_info))

    def _configured(self, client_id: str) -> OAuthClientInformationFull:
        secret = self._own.client_secret
        return OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret,
            redirect_uris=[AnyUrl(self._redirect_uri)],
            token_endpoint_auth_method="client_secret_post" if secret else "none",
        )

    def _stored(self) -> Credentials:
        """A registration holds for the address it was made with, which changes with this server's port."""
        stored = self._store.get(self._url)
        fits = stored is not None and stored.redirect_uri == self._redirect_uri
        return stored if stored is not None and fits else Credentials(redirect_uri=self._redirect_uri)

    def _put(self, **changes: Any) -> None:
        self._store.put(self._url, self._stored().model_copy(update=changes))


def _dump(value: BaseModel | None) -> dict[str, Any] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)
