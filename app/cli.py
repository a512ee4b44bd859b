"""The command `opensession`."""

import gc
import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from app.settings import Settings

app = typer.Typer(help="The OpenCode session system as an HTTP and SSE server.", no_args_is_help=True, add_completion=False)

DEFAULT_PORT = 4096


@app.command()
def serve(
    hostname: Annotated[
        str, typer.Option(help="Address to listen on; beyond loopback OPENCODE_SERVER_PASSWORD must be set.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: 4096, or a free one when that is taken.")] = DEFAULT_PORT,
) -> None:
    """Serve the directory it is started in."""
    from app.api.security import is_loopback
    from app.config.flags import Flags

    flags = Flags.from_env()
    if not is_loopback(hostname) and not flags.server_password:
        _fail(
            f"Refusing to listen on {hostname} without a password: "
            "whoever reaches this server can run commands on this machine. Set OPENCODE_SERVER_PASSWORD, or listen on 127.0.0.1."
        )
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("httpx", "httpx2", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    _serve(hostname, port, flags.server_password is not None)


def _serve(hostname: str, port: int, has_password: bool) -> None:
    import uvicorn

    from app.main import create_app

    bound = _bind(hostname, port)
    with _database_must_do():
        application = create_app(hostname=hostname)

    class StreamEndingServer(uvicorn.Server):
        """Event streams have no end of their own: they are ended before open connections are waited for."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            application.state.server.close_streams()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
        server_header=False,
        proxy_headers=False,
        ws="none",
    )
    _spare_what_is_loaded()
    _greet(hostname, bound.getsockname()[1], has_password)
    StreamEndingServer(config).run(sockets=[bound])


def _spare_what_is_loaded() -> None:
    """The modules stay for good. Left to itself the garbage collector walks all they hold again and again, which stops every
    session for a tenth of a second each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _bind(hostname: str, port: int) -> socket.socket:
    """The port asked for; with 0 the usual one, else any that is free."""
    try:
        return _bind_to(hostname, port or DEFAULT_PORT)
    except OSError as error:
        if port:
            _fail(f"Cannot listen on {hostname}:{port}: {error.strerror}. Choose another with --port.")
        return _bind_to(hostname, 0)


def _bind_to(hostname: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in hostname else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((hostname, port))
    except OSError:
        bound.close()
        raise
    return bound


def _greet(hostname: str, port: int, has_password: bool) -> None:
    host = f"[{hostname}]" if ":" in hostname else hostname
    url = f"http://{host}:{port}"
    typer.echo(f"opensession server listening on {url}")
    typer.echo(f"It works in {Path.cwd()}")
    login = '-u "opencode:$OPENCODE_SERVER_PASSWORD" ' if has_password else ""
    typer.echo(f"Try:  curl -s {login}-X POST {url}/session")


@app.command()
def migrate() -> None:
    """Bring the database (OPENSESSION_DATABASE_URL, or the embedded one) to the newest schema."""
    from app.storage.engine import make_engine
    from app.storage.migrate import HEAD, upgrade

    with _database_must_do():
        upgrade(make_engine(Settings().resolved_database_url))
    typer.echo(f"The database is at revision {HEAD}.")


@app.command()
def openapi(
    output: Annotated[Path | None, typer.Option(help="File to write; standard output if absent.")] = None,
) -> None:
    """Write the API's description as YAML."""
    from app.main import openapi_yaml

    text = openapi_yaml()
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, "utf-8")


@contextmanager
def _database_must_do() -> Iterator[None]:
    """A database that cannot be used is the reader's to mend: said in a sentence, without a traceback."""
    from app.storage.engine import DatabaseUnusable, StorageError

    try:
        yield
    except DatabaseUnusable as error:
        _fail(str(error))
    except StorageError as error:
        _fail(f"The database cannot be used: {getattr(error, 'orig', None) or error}")


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
