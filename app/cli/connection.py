"""The server that a command speaks to: one that runs elsewhere, or one within this process for as long as the command takes."""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import typer

from app.cli.api_client import ApiClient, ApiRefused
from app.cli.asgi_transport import StreamingTransport
from app.cli.support import database_must_do, fail, sandbox_must_do, settings

T = TypeVar("T")

INTERRUPTED = 130
_TIMEOUT = httpx.Timeout(30, read=120, pool=None)

Attach = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A server that runs, `http://127.0.0.1:4096`; without it one within this command."),
]
Where = Annotated[
    Path | None, typer.Option("--dir", help="The directory to work in; default: this one, or the server's own with --attach.")
]


def with_server(attach: str | None, where: Path | None, work: Callable[[ApiClient], Awaitable[T]]) -> T:
    """Ends the command with 1 where the server refuses, and with 130 at Ctrl-C."""
    if attach is not None and not attach.startswith(("http://", "https://")):
        raise typer.BadParameter("must be the address of a server, such as http://127.0.0.1:4096", param_hint="--attach")

    async def run() -> T:
        async with _server(attach, where) as api:
            return await work(api)

    try:
        with database_must_do(), sandbox_must_do():
            return asyncio.run(run())
    except ApiRefused as refused:
        fail(str(refused))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(INTERRUPTED) from None


@asynccontextmanager
async def _server(attach: str | None, where: Path | None) -> AsyncIterator[ApiClient]:
    if attach is not None:
        async with remote(attach, str(where) if where else None) as api:
            yield api
        return
    directory = (where or Path()).resolve()
    if not directory.is_dir():
        raise typer.BadParameter(f"there is no directory {directory}", param_hint="--dir")
    async with within(directory) as (api, others):
        for address in others:
            url = f"http://127.0.0.1:{address.rpartition(':')[2]}"
            typer.echo(f"Another server works with these sessions; its clients see this live with --attach {url}", err=True)
        yield api


@asynccontextmanager
async def remote(url: str, directory: str | None) -> AsyncIterator[ApiClient]:
    """With the login of the environment: OPENSESSION_TOKEN, or OPENCODE_SERVER_PASSWORD."""
    token, password = os.environ.get("OPENSESSION_TOKEN"), os.environ.get("OPENCODE_SERVER_PASSWORD")
    headers = {**_directory_header(directory), **({"authorization": f"Bearer {token}"} if token else {})}
    login = (os.environ.get("OPENCODE_SERVER_USERNAME") or "opencode", password) if password and not token else None
    async with httpx.AsyncClient(base_url=url, headers=headers, auth=login, timeout=_TIMEOUT) as http:
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
        async with httpx.AsyncClient(
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
