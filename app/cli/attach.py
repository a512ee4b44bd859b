"""Which server a command speaks to, and what goes wrong there as a sentence."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from app.cli.support import database_must_do, fail, sandbox_must_do

if TYPE_CHECKING:
    from app.api_client.client import ApiClient

T = TypeVar("T")

INTERRUPTED = 130

Attach = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A server that runs, `http://127.0.0.1:4096`; without it one within this command."),
]
Where = Annotated[
    Path | None, typer.Option("--dir", help="The directory to work in; default: this one, or the server's own with --attach.")
]


def with_server(attach: str | None, where: Path | None, work: "Callable[[ApiClient], Awaitable[T]]") -> T:
    """Ends the command with 1 where the server refuses, and with 130 at Ctrl-C."""
    from app.api_client.client import ApiRefused

    address = checked(attach)

    async def run() -> T:
        async with server_at(address, where) as api:
            return await work(api)

    try:
        with database_must_do(), sandbox_must_do():
            return asyncio.run(run())
    except ApiRefused as refused:
        fail(str(refused))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(INTERRUPTED) from None


def checked(attach: str | None) -> str | None:
    if attach is not None and not attach.startswith(("http://", "https://")):
        raise typer.BadParameter("must be the address of a server, such as http://127.0.0.1:4096", param_hint="--attach")
    return attach


def directory_of(where: Path | None) -> Path:
    directory = (where or Path()).resolve()
    if not directory.is_dir():
        raise typer.BadParameter(f"there is no directory {directory}", param_hint="--dir")
    return directory


@asynccontextmanager
async def server_at(attach: str | None, where: Path | None) -> "AsyncIterator[ApiClient]":
    from app.cli.connection import remote, within

    if attach is not None:
        async with remote(attach, str(where) if where else None) as api:
            yield api
        return
    async with within(directory_of(where)) as (api, others):
        for address in others:
            url = f"http://127.0.0.1:{address.rpartition(':')[2]}"
            typer.echo(f"Another server works with these sessions; its clients see this live with --attach {url}", err=True)
        yield api
