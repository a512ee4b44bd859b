"""The command `opensession`: each of its commands is in the module of its name or its kind.

Begin at `serve.py`, or at `run.py` for a prompt from the terminal. Commands that need a server find it by `support.py` and call
it by `app.api.client`; `prompt_run.py` follows a prompt, `render.py` makes and prints the output. Slow imports that only some
commands need are within their functions, so that completing a word in a shell does not wait.
"""

import errno
import os
import sys
from typing import Annotated

import typer

from app import __version__
from app.cli import acp, copies, run, serve, stored, users

app = typer.Typer(help="The OpenCode session system as an HTTP and SSE server.", no_args_is_help=True)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")]


@app.callback()
def _options(version: Version = False) -> None:
    pass


app.add_typer(users.token, name="token")
app.add_typer(users.user, name="user")
app.add_typer(users.secret, name="secret")
app.add_typer(run.session, name="session")
app.add_typer(run.mcp, name="mcp")
app.command("run")(run.run)
app.command("acp")(acp.acp)
app.command("models")(run.models)
app.command("agents")(run.agents)
app.command("export")(copies.export)
app.command("import")(copies.import_document)
app.command("stats")(stored.stats)
app.command("prune")(stored.prune)
app.command("backup")(copies.backup)
app.command("restore")(copies.restore)
app.command("import-opencode")(copies.import_opencode)
app.command("serve")(serve.serve)
app.command("migrate")(stored.migrate)
app.command("doctor")(stored.doctor)
app.command("openapi")(serve.openapi)


def main() -> None:
    try:
        app()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        typer.echo(f"{error.filename or 'The output'} cannot be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left of the output would fail at the end once more
        sys.exit(1)
