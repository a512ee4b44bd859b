"""The commands `opensession serve` and `openapi`."""

import gc
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.support import NO_UTF8, fail, failures_as_log_lines, failures_as_sentences, freeze_gc, is_utf8
from app.cli.support import settings as read_settings
from app.events.telemetry.log_lines import LogFormat, LogThreshold, format_of_environment, set_up_log, writes_json
from app.project.config.flags import Flags
from app.settings import Settings, unknown_variables
from app.users.tokens import TokenStore

log = logging.getLogger(__name__)

DEFAULT_PORT = 4096
SWITCH_SECONDS = 0.001
"""How long a thread waits for a busy event loop, a fifth of Python's own time: a part's first text is shown when the thread of
the writer has stored it."""


def serve(
    hostname: Annotated[
        str,
        typer.Option(help="Address to listen on; beyond loopback a login must be set up (OPENCODE_SERVER_PASSWORD, or a token)."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: 4096, or a free one when that is taken.")] = DEFAULT_PORT,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="text, or json: an object a line (OPENSESSION_LOG_FORMAT).")
    ] = None,
    log_level: Annotated[
        LogThreshold | None, typer.Option(help="The least that is logged (OPENSESSION_LOG_LEVEL).", case_sensitive=False)
    ] = None,
) -> None:
    """Serve the directory it is started in."""
    gc.disable()  # What the imports below make stays: `freeze_gc` switches it on.
    sys.setswitchinterval(SWITCH_SECONDS)
    from app.api.security import is_loopback

    set_up_log(log_format or format_of_environment())  # what is wrong with the settings is said in it too
    settings = read_settings(log_format=log_format, log_level=log_level)
    set_up_log(settings.log_format, settings.log_level)
    if settings.data_dir.exists():
        _require_data_dir(settings)  # first, as tokens may be among what a killed restore left to be done
    login = _login(settings)
    if not is_loopback(hostname) and login is None:
        fail(
            f"Refusing to listen on {hostname} without a login: whoever reaches this server can run commands on this machine. "
            "Set OPENCODE_SERVER_PASSWORD, make a token with `opensession token create`, or listen on 127.0.0.1."
        )
    if not is_utf8(Path.cwd()):
        fail(NO_UTF8)
    _require_data_dir(settings)
    with failures_as_log_lines():
        _serve(settings, hostname, port, login or "")


def _require_data_dir(settings: Settings) -> None:
    from app.record.engine import require_writable
    from app.transfer.backup.placing import finish_restore

    with failures_as_sentences():
        require_writable(settings.data_dir)
        finish_restore(settings.data_dir)


def _login(settings: Settings) -> str | None:
    """The login option for curl; None if no login is needed."""
    if Flags.from_env().server_password:
        return '-u "opencode:$OPENCODE_SERVER_PASSWORD" '
    has_tokens = settings.oidc_issuer is not None or TokenStore(settings.data_dir).in_use()
    return '-H "Authorization: Bearer $TOKEN" ' if has_tokens else None


def _serve(settings: Settings, hostname: str, port: int, login: str) -> None:
    from app.cli.checks import startup_lines
    from app.http_server import http_server
    from app.main import create_app

    bound = _bind(hostname, port)
    with failures_as_sentences():
        application = create_app(settings, hostname=hostname, port=bound.getsockname()[1])
        found = [*startup_lines(settings), *unknown_variables(os.environ)]
    server = http_server(application, settings)
    freeze_gc()
    advice = (
        "It runs as root: as an ordinary user of its own it is safer, as the walls around commands are then not the only ones."
    )
    as_root = [advice] if os.geteuid() == 0 else []
    _greet(hostname, bound.getsockname()[1], login, [*found, application.state.server.sandbox.state, *as_root])
    try:
        server.run(sockets=[bound])
    except KeyboardInterrupt:  # raised anew by uvicorn, when all is stopped
        raise typer.Exit(130) from None


def _bind(hostname: str, port: int) -> socket.socket:
    """Binds the given port; for 0 the default port, or a free one if that is taken."""
    try:
        return _bind_to(hostname, port or DEFAULT_PORT)
    except OSError as error:
        if port:
            fail(f"Cannot listen on {hostname}:{port}: {error.strerror}. Choose another with --port.")
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
    lines = [f"opensession server listening on {url}", f"It works in {Path.cwd()}", *found]
    if writes_json():
        for line in lines:
            log.info("%s", line)
        return
    typer.echo("\n".join(lines))
    typer.echo(f"Open {url} in a browser, or try:  curl -s {login}-X POST {url}/session")


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
