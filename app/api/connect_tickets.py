"""Tickets for one connection to one terminal each: a browser's WebSocket can send no header."""

import re
import secrets
from collections import OrderedDict

from app.users.principal import Principal
from app.util import clock

LIFETIME_SECONDS = 60
MOST = 1_000
_CONNECT = re.compile(r"(?:/api)?/pty/([^/]+)/connect")


def connected_terminal(path: str) -> str | None:
    """The terminal that a path connects to."""
    found = _CONNECT.fullmatch(path)
    return found[1] if found else None


class ConnectTickets:
    """In this server's memory, as the terminals are. Of too many that wait, the oldest goes."""

    def __init__(self) -> None:
        self._issued: OrderedDict[str, tuple[str, int, Principal]] = OrderedDict()
        """The terminal of each, when it expires, and whose login it is."""

    def issue(self, principal: Principal, pty_id: str) -> str:
        ticket, expires = secrets.token_urlsafe(32), clock.now_ms() + LIFETIME_SECONDS * 1000
        self._issued[ticket] = pty_id, expires, principal
        if len(self._issued) > MOST:
            self._issued.popitem(last=False)
        return ticket

    def redeem(self, ticket: str, path: str) -> Principal | None:
        """Only once, at whatever path it is tried."""
        pty_id, expires, principal = self._issued.pop(ticket, (None, 0, None))
        return principal if expires > clock.now_ms() and connected_terminal(path) == pty_id else None
