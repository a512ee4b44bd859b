"""A server made with the SDK, over streamable HTTP. Run as a program: PORT, then `oauth` to let in only who signs in, and
`expiring` to tell that the first tokens are over in a second."""

import json
import secrets
import sys
import time
from typing import Any

import uvicorn
from mcp.server.auth import provider
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

PORT, OPTIONS = int(sys.argv[1]), set(sys.argv[2:])
BASE = f"http://127.0.0.1:{PORT}"
LIFE = 3600
TOLD_LIFE = 1 if "expiring" in OPTIONS else LIFE


class Everybody(provider.OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Signs in whoever comes."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: provider.AuthorizationParams) -> str:
        code = secrets.token_urlsafe(24)
        asked = params.model_dump(exclude={"state", "scopes"})
        self.codes[code] = AuthorizationCode(
            **asked, code=code, scopes=params.scopes or [], expires_at=time.time() + 60, client_id=client.client_id
        )
        return provider.construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: OAuthClientInformationFull, code: str) -> AuthorizationCode | None:
        return self.codes.get(code)

    async def exchange_authorization_code(self, client: OAuthClientInformationFull, code: AuthorizationCode) -> OAuthToken:
        del self.codes[code.code]
        return self._issue(client.client_id)

    async def load_refresh_token(self, client: OAuthClientInformationFull, token: str) -> RefreshToken | None:
        return self.refresh.get(token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        return self._issue(client.client_id, told_life=LIFE)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.access.get(token)
        return found if found and (found.expires_at or 0) > time.time() else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    def _issue(self, client_id: str, told_life: int = TOLD_LIFE) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=[], expires_at=int(time.time()) + LIFE)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=[])
        return OAuthToken(access_token=access, expires_in=told_life, refresh_token=refresh)


EVERYBODY = Everybody()


def made() -> MCPServer[Any]:
    if "oauth" not in OPTIONS:
        return MCPServer("over-http")
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(BASE),
        resource_server_url=AnyHttpUrl(f"{BASE}/mcp"),
        validate_token_resource=False,
        client_registration_options=ClientRegistrationOptions(enabled=True),
    )
    return MCPServer("over-http", auth_server_provider=EVERYBODY, auth=settings)


server = made()


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers"""
    return a + b


@server.tool()
async def headers(context: Context) -> str:
    """The header x-team of the request"""
    request = context.request_context.request
    return str(request.headers.get("x-team")) if request else ""


@server.tool()
async def trace(context: Context) -> str:
    """The trace that the request belongs to"""
    request, meta = context.request_context.request, context.request_context.meta
    sent = request.headers if request else {}
    in_meta = (meta or {}).get("traceparent")
    return json.dumps({"header": sent.get("traceparent"), "meta": in_meta, "baggage": sent.get("baggage")})


@server.tool()
async def grow(context: Context) -> str:
    """Offers one more tool"""
    server.add_tool(lambda: "was not there before", name="grown", description="Grown")
    await context.notify_tools_changed()
    return "grown"


@server.tool()
def forget() -> str:
    """Ends all sign-ins"""
    EVERYBODY.access.clear()
    EVERYBODY.refresh.clear()
    return "forgotten"


@server.prompt()
def praise(name: str) -> str:
    """Praises someone"""
    return f"Praise {name}"


@server.resource("demo://motto")
def motto() -> str:
    """What it stands for"""
    return "Sum of all"


if __name__ == "__main__":
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=PORT, log_level="error")
