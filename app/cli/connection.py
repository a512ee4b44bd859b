"""The server that a command speaks to: one that runs elsewhere, or one within this process for as long as the command takes."""

import logging
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from app.api_client.asgi_transport import StreamingTransport
from app.api_client.client import ApiClient
from app.cli.support import settings

_TIMEOUT = httpx2.Timeout(30, read=120, pool=None)


@asynccontextmanager
async def remote(url: str, directory: str | None) -> AsyncIterator[ApiClient]:
    """With the login of the environment: OPENSESSION_TOKEN, or OPENCODE_SERVER_PASSWORD."""
    token, password = os.environ.get("OPENSESSION_TOKEN"), os.environ.get("OPENCODE_SERVER_PASSWORD")
    headers = {**_directory_header(directory), **({"authorization": f"Bearer {token}"} if token else {})}
    login = (os.environ.get("OPENCODE_SERVER_USERNAME") or "opencode", password) if password and not token else None
    async with httpx2.AsyncClient(base_url=url, headers=headers, auth=login, timeout=_TIMEOUT) as http:
        yield ApiClient(http, f"The server at {_without_login(url)}")


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _directory_header(directory: str | None) -> dict[str, str]:
    return {"x-opencode-directory": quote(directory)} if directory else {}


@asynccontextmanager
async def within(directory: Path) -> AsyncIterator[tuple[ApiClient, list[str]]]:
    """A server of the same data directory that other servers may use too, and the addresses of those. It opens no port. At the
    end what turns leave to be done, such as a title, is finished. Raises StorageError and SandboxUnusable."""
    from app.main import create_app
    from app.server import Choices

    logging.basicConfig(level=logging.ERROR)
    password = secrets.token_urlsafe()
    application = create_app(settings(), workspace=directory, port=0, choices=Choices(recovers_all=False), password=password)
    server, login = application.state.server, (os.environ.get("OPENCODE_SERVER_USERNAME") or "opencode", password)
    async with application.router.lifespan_context(application):
        async with httpx2.AsyncClient(
            transport=StreamingTransport(application),
            base_url="http://127.0.0.1",
            auth=login,
            timeout=_TIMEOUT,
            headers=_directory_header(str(directory)),
        ) as http:
            yield ApiClient(http, "The server"), await _others(server)
        await server.wind_down()


async def _others(server: Any) -> list[str]:
    """Servers that listen, have this data directory, and whose clients do not hear what happens here: on SQLite."""
    replicas = server.replicas
    if server.is_shared:
        return []
    return [each.address for each in await replicas.all() if each.alive and not each.address.endswith(":0")]
