"""The OAuth authorization code flow: to a server's sign-in page and back."""

import asyncio
from urllib.parse import parse_qs, urlsplit

from app.mcp.values import McpFailure


def state_of(page: str) -> str | None:
    """That the address of a sign-in page has."""
    return parse_qs(urlsplit(page).query).get("state", [None])[0]


class SignIn:
    """`address` is the page to open, once it is known; the browser comes back to `redirect_uri` with a code."""

    def __init__(self, redirect_uri: str) -> None:
        loop = asyncio.get_running_loop()
        self.redirect_uri = redirect_uri
        self.address: asyncio.Future[str] = loop.create_future()
        self.answer: asyncio.Future[tuple[str, str | None]] = loop.create_future()
        """The code and the issuer that came with it, if one did."""

    @property
    def state(self) -> str | None:
        """What the browser must bring back, so that nobody else's code is taken."""
        return state_of(self.address.result()) if self.address.done() else None

    def finish(self, code: str, issuer: str | None = None) -> None:
        if not self.answer.done():
            self.answer.set_result((code, issuer))

    def refuse(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(McpFailure(f"The sign-in was refused: {why}"))
