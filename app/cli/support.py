"""What commands share: settings from the environment, errors as one sentence without a traceback, and the server that a command
calls."""

import asyncio
import gc
import logging
import os
import re
import secrets
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.events.telemetry.log_lines import writes_json
from app.settings import Settings

if TYPE_CHECKING:
    from app.api.client import ApiClient

log = logging.getLogger(__name__)


T = TypeVar("T")


@contextmanager
def failures_as_sentences() -> Iterator[None]:
    """Prints an error of the database, or why a required sandbox does not work, as one sentence without a traceback."""
    from app.project.sandbox.machine import SandboxUnusable
    from app.record.engine import DatabaseUnusable, StorageError, words_of

    try:
        yield
    except (DatabaseUnusable, SandboxUnusable) as error:
        fail(str(error))
    except StorageError as error:
        fail(f"The database cannot be used: {words_of(error)}")


def settings(**options: Any) -> Settings:
    """The settings, from the environment and from the command's options that were given. Prints one sentence for an invalid
    value, without a traceback."""
    try:
        found = Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as invalid:
        fail("\n".join(map(_sentence, invalid.errors())))
    if found.script is not None:
        _require_script(found.script)
    return found


def _require_script(script: Path) -> None:
    from app.providers.scripted import ScriptError, load_script

    try:
        load_script(script)
    except ScriptError as error:
        fail(f"OPENSESSION_SCRIPT: {error}")


def _sentence(error: ErrorDetails) -> str:
    message = error["msg"].removeprefix("Value error, ")
    return f"OPENSESSION_{str(error['loc'][0]).upper()}: {message}" if error["loc"] else message


@contextmanager
def failures_as_log_lines() -> Iterator[None]:
    """If the log is JSON, an error that ends the server is a line of it, not a traceback."""
    try:
        yield
    except typer.Exit:
        raise
    except Exception:
        if not writes_json():
            raise
        log.critical("the server ended", exc_info=True)
        raise typer.Exit(1) from None


def fail(message: str) -> NoReturn:
    """A server whose log is JSON says it there."""
    if writes_json():
        log.error("%s", message)
    else:
        typer.echo(message, err=True)
    raise typer.Exit(1)


INTERRUPTED = 130


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _checked(attach: str | None) -> str | None:
    if attach is not None and not _is_address(attach):
        raise typer.BadParameter("must be the address of a server, such as http://127.0.0.1:4096", param_hint="--attach")
    return attach


_ATTACH = "A server that runs, `http://127.0.0.1:4096`; without it one within this command."
Attach = Annotated[str | None, typer.Option(metavar="URL", help=_ATTACH, callback=_checked)]
Where = Annotated[
    Path | None, typer.Option("--dir", help="The directory to work in; default: this one, or the server's own with --attach.")
]


def with_server(attach: str | None, where: Path | None, work: "Callable[[ApiClient], Awaitable[T]]") -> T:
    """Ends the command with 1 if the server refuses, and with 130 at Ctrl-C."""
    from app.api.client import ApiRefused

    async def run() -> T:
        async with server_at(attach, where) as api:
            return await work(api)

    try:
        with failures_as_sentences():
            return asyncio.run(run())
    except ApiRefused as refused:
        fail(str(refused))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(INTERRUPTED) from None


def directory_of(where: Path | None) -> Path:
    directory = (where or Path()).resolve()
    if not directory.is_dir():
        raise typer.BadParameter(f"there is no directory {directory}", param_hint="--dir")
    if not is_utf8(directory):
        raise typer.BadParameter(NO_UTF8, param_hint="--dir")
    return directory


NO_UTF8 = "The directory's path is not UTF-8, as all that clients are sent is. Rename it."


def is_utf8(path: Path) -> bool:
    try:
        return bool(os.fsencode(path).decode())
    except UnicodeDecodeError:
        return False


def readable(argument: str) -> str:
    """A word of the command line; what is not UTF-8 in it is replaced, as in what is piped in."""
    return os.fsencode(argument).decode(errors="replace")


_HIDING = frozenset({"Cc", "Cf", "Zl", "Zp"})
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]")


def revealed(text: str) -> str:
    """A character that hides or reorders others is shown by its number, so that what is allowed is what is read. As on the page
    (text.js)."""
    return "".join(f"⟨U+{ord(char):04X}⟩" if _hides(char) else char for char in text)


def _hides(char: str) -> bool:
    return char not in "\t\n" and (unicodedata.category(char) in _HIDING or _BLANK.match(char) is not None)


def subject(request: dict[str, Any]) -> str:
    """What a permission request is about."""
    return revealed(f"{request['permission']} {', '.join(request['patterns'])}".strip())


def session_path(session_id: str) -> str:
    """Ends the command for an id with a `/`: even quoted, it would lead to something else."""
    if "/" in session_id:
        fail(f"{session_id} is no session's id: `opensession session list` shows them.")
    return f"/session/{quote(session_id, safe='')}"


async def sessions_here(api: "ApiClient") -> list[Any]:
    """The sessions of the directory that the command works in, without those of subagents."""
    directory = (await api.get("/path"))["directory"]
    return list(await api.get("/session", directory=directory, roots="true"))


@asynccontextmanager
async def server_at(attach: str | None, where: Path | None) -> "AsyncIterator[ApiClient]":
    """A server elsewhere, with the login of the environment (OPENSESSION_TOKEN, or OPENCODE_SERVER_PASSWORD); or one within this
    process for as long as the command takes."""
    if attach is not None:
        token, password = os.environ.get("OPENSESSION_TOKEN"), os.environ.get("OPENCODE_SERVER_PASSWORD")
        parts = urlsplit(attach)
        name = f"The server at {parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()}"  # without a login
        async with _client(name, str(where) if where else None, password, token, base_url=attach) as api:
            yield api
        return
    async with _server_within(directory_of(where)) as (api, others):
        for address in others:
            url = f"http://127.0.0.1:{address.rpartition(':')[2]}"
            typer.echo(f"Another server works with these sessions; its clients see this live with --attach {url}", err=True)
        yield api


@asynccontextmanager
async def _client(
    name: str, directory: str | None, password: str | None, token: str | None = None, **options: Any
) -> "AsyncIterator[ApiClient]":
    import httpx2

    from app.api.client import ApiClient

    login = (os.environ.get("OPENCODE_SERVER_USERNAME") or "opencode", password) if password and not token else None
    headers = {"x-opencode-directory": quote(directory)} if directory else {}
    headers |= {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(
        auth=login, headers=headers, timeout=httpx2.Timeout(30, read=120, pool=None), **options
    ) as http:
        yield ApiClient(http, name)


@asynccontextmanager
async def _server_within(directory: Path) -> "AsyncIterator[tuple[ApiClient, list[str]]]":
    """A server in this process, with a data directory that other servers may use too, and the addresses of those. It opens no
    port. At its end it finishes what turns leave to be done, such as a title. Raises StorageError and SandboxUnusable."""
    gc.disable()  # until `freeze_gc`: it would take a quarter of the start
    from app.api.client import StreamingTransport
    from app.main import create_app
    from app.server import Choices

    logging.basicConfig(level=logging.ERROR)
    password = secrets.token_urlsafe()
    application = create_app(settings(), workspace=directory, port=0, choices=Choices(recovers_all=False), password=password)
    freeze_gc()
    server, way = application.state.server, StreamingTransport(application)
    async with application.router.lifespan_context(application):
        async with _client("The server", str(directory), password, transport=way, base_url="http://127.0.0.1") as api:
            yield api, await _others(server)
        await server.wind_down()


def freeze_gc() -> None:
    """Exempts loaded modules from garbage collection. Otherwise each full collection walks them and blocks every session for a
    tenth of a second. Nothing is collected before: that takes as long, and finds next to nothing."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


async def _others(server: Any) -> list[str]:
    """Servers that listen, have this data directory, and whose clients do not see changes made here: on SQLite."""
    if server.is_shared:
        return []
    return [each.address for each in await server.replicas.all() if each.alive and not each.address.endswith(":0")]
