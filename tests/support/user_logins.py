"""Users of a running app, each with a client that is logged in as them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
from running_app import RunningApp

from app.api.client import StreamingTransport
from app.users.principal import Role
from app.users.tokens import TokenStore
from app.users.users import User


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def add_user(
    app: RunningApp, name: str, role: str = "member", *, roots: Sequence[Path] = (), **limits: float | int | None
) -> str:
    """A token of theirs."""
    paths = tuple(str(root.resolve()) for root in roots)
    await app.services.users.add(User(name, Role(role), paths, **limits))
    return TokenStore(app.data_dir).create(name, user=name)


@asynccontextmanager
async def logged_in(app: RunningApp, token: str) -> AsyncIterator[RunningApp]:
    """The same server, as seen by whoever has the token."""
    transport = StreamingTransport(app.fastapi)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:4096", headers=bearer(token)) as client:
        yield replace(app, client=client)


@asynccontextmanager
async def user(
    app: RunningApp, name: str, role: str = "member", *, roots: Sequence[Path] = (), **limits: float | int | None
) -> AsyncIterator[RunningApp]:
    async with logged_in(app, await add_user(app, name, role, roots=roots, **limits)) as client:
        yield client
