"""The command `opensession`."""

import asyncio
import gc
import logging
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from pydantic import ValidationError

from app.settings import Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from app.util.finding import Finding

app = typer.Typer(help="The OpenCode session system as an HTTP and SSE server.", no_args_is_help=True, add_completion=False)
token = typer.Typer(help="Bearer tokens, with which clients log in.", no_args_is_help=True)
app.add_typer(token, name="token")

DEFAULT_PORT = 4096


@app.command()
def serve(
    hostname: Annotated[
        str,
        typer.Option(help="Address to listen on; beyond loopback a login must be set up (OPENCODE_SERVER_PASSWORD, or a token)."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: 4096, or a free one when that is taken.")] = DEFAULT_PORT,
) -> None:
    """Serve the directory it is started in."""
    from app.api.security import is_loopback

    settings = _settings()
    login = _login(settings)
    if not is_loopback(hostname) and login is None:
        _fail(
            f"Refusing to listen on {hostname} without a login: whoever reaches this server can run commands on this machine. "
            "Set OPENCODE_SERVER_PASSWORD, make a token with `opensession token create`, or listen on 127.0.0.1."
        )
    _require_data_dir(settings)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("httpx", "httpx2", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    _serve(settings, hostname, port, login or "")


def _require_data_dir(settings: Settings) -> None:
    from app.storage.engine import require_writable

    with _database_must_do():
        require_writable(settings.data_dir)


def _login(settings: Settings) -> str | None:
    """The login option for curl; None if no login is needed."""
    from app.api.tokens import TokenStore
    from app.config.flags import Flags

    if Flags.from_env().server_password:
        return '-u "opencode:$OPENCODE_SERVER_PASSWORD" '
    return '-H "Authorization: Bearer $TOKEN" ' if TokenStore(settings.data_dir).in_use() else None


def _serve(settings: Settings, hostname: str, port: int, login: str) -> None:
    from app.http_server import http_server
    from app.main import create_app
    from app.mode import mode

    bound = _bind(hostname, port)
    with _database_must_do():
        application = create_app(settings, hostname=hostname, port=bound.getsockname()[1])
        found = mode(settings)
    server = http_server(application, settings)
    _freeze_gc()
    _greet(hostname, bound.getsockname()[1], login, found)
    server.run(sockets=[bound])


def _freeze_gc() -> None:
    """Exempts loaded modules from garbage collection. Otherwise each full collection walks them and blocks every session for a
    tenth of a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _bind(hostname: str, port: int) -> socket.socket:
    """Binds the given port; for 0 the default port, or a free one if that is taken."""
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


def _greet(hostname: str, port: int, login: str, found: list[str]) -> None:
    host = f"[{hostname}]" if ":" in hostname else hostname
    url = f"http://{host}:{port}"
    typer.echo(f"opensession server listening on {url}")
    typer.echo(f"It works in {Path.cwd()}")
    typer.echo("\n".join(found))
    typer.echo(f"Open {url} in a browser, or try:  curl -s {login}-X POST {url}/session")


@app.command()
def migrate() -> None:
    """Upgrade the database (OPENSESSION_DATABASE_URL, or the embedded one) to the newest schema."""
    from app.storage.engine import make_engine
    from app.storage.migrate import HEAD, upgrade

    with _database_must_do():
        upgrade(make_engine(_settings().resolved_database_url))
    typer.echo(f"The database is at revision {HEAD}.")


@app.command()
def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired.")] = False,
) -> None:
    """Look over the database, the snapshots, the data directory and this directory's configuration. 1 when a fault is left."""
    from app.doctor import examine

    findings = asyncio.run(examine(_settings(), Path.cwd()))
    left = [finding for finding in findings if not _report(finding, repair) and finding.level == "fault"]
    if left:
        hint = " `opensession doctor --repair` would repair some." if any(finding.act for finding in left) else ""
        typer.echo(f"{len(left)} faults.{hint}")
        raise typer.Exit(1)


def _report(finding: "Finding", repair: bool) -> bool:
    """Prints the finding; returns whether it was repaired."""
    is_repaired = repair and finding.act is not None
    if is_repaired and finding.act:
        finding.act()
    remedy = f" ({'repaired' if is_repaired else '--repair would'}: {finding.repair})" if finding.repair else ""
    typer.echo(f"{finding.level:5}  {finding.subject}: {finding.text}{remedy}")
    return is_repaired


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


@token.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="What the token is for; it stands in the audit log.")],
    days: Annotated[int | None, typer.Option(min=1, help="Days for which it holds; without, until it is revoked.")] = None,
) -> None:
    """Make a token and print it: this once, only its hash is kept. From now on every request to the server needs a login."""
    from app.api.tokens import TokenNameTaken, TokenStore

    if not re.fullmatch(r"[\w.@-]{1,60}", name):
        _fail("A token's name may have up to 60 letters, digits and . _ @ -")
    try:
        made = TokenStore(_settings().data_dir).create(name, days * 24 * 3600 * 1000 if days else None)
    except TokenNameTaken:
        _fail(f"There is a token {name} already: revoke it first, or choose another name.")
    typer.echo(made)


@token.command("list")
def list_tokens() -> None:
    """The names of the tokens, and how long they hold."""
    from app.api.tokens import TokenStore

    for entry in TokenStore(_settings().data_dir).entries():
        typer.echo(f"{entry.name}\tmade {_day(entry.created)}\t{_until(entry.expires, entry.holds())}")


def _until(expires: int | None, holds: bool) -> str:
    if expires is None:
        return "until revoked"
    return f"{'until' if holds else 'expired'} {_day(expires)}"


def _day(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000).date().isoformat()


@token.command("revoke")
def revoke_token(name: str) -> None:
    """Take a token back, at once; open event streams go on until they end."""
    from app.api.tokens import TokenStore

    if not TokenStore(_settings().data_dir).revoke(name):
        _fail(f"There is no token {name}.")


@contextmanager
def _database_must_do() -> Iterator[None]:
    """Prints a database error as one sentence without a traceback."""
    from app.storage.engine import DatabaseUnusable, StorageError

    try:
        yield
    except DatabaseUnusable as error:
        _fail(str(error))
    except StorageError as error:
        _fail(f"The database cannot be used: {getattr(error, 'orig', None) or error}")


def _settings() -> Settings:
    """Prints an invalid value as one sentence without a traceback."""
    try:
        return Settings()
    except ValidationError as invalid:
        _fail("\n".join(map(_sentence, invalid.errors())))


def _sentence(error: "ErrorDetails") -> str:
    return f"OPENSESSION_{str(error['loc'][0]).upper()}: {error['msg'].removeprefix('Value error, ')}"


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
