"""The command `opensession`: here are its commands, each in the module of its name or its kind.

Begin at `serve.py`, or at `run.py` for a prompt from the terminal. Commands that need a server find it by `attach.py` and speak
to it by `app.api_client`; `prompt_run.py` follows a prompt, `render.py` decides what is shown, `console.py` shows it. What
takes long to import, and only some commands need, is imported within their functions: no shell that completes a word waits.
"""

import typer

from app.cli import acp, backup, doctor, import_opencode, run, serve, sessions, stored, transfer, users

app = typer.Typer(help="The OpenCode session system as an HTTP and SSE server.", no_args_is_help=True)
app.add_typer(users.token, name="token")
app.add_typer(users.user, name="user")
app.add_typer(users.secret, name="secret")
app.add_typer(sessions.session, name="session")
app.add_typer(sessions.mcp, name="mcp")
app.command("run")(run.run)
app.command("acp")(acp.acp)
app.command("models")(sessions.models)
app.command("agents")(sessions.agents)
app.command("export")(transfer.export)
app.command("import")(transfer.import_document)
app.command("stats")(stored.stats)
app.command("prune")(stored.prune)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("import-opencode")(import_opencode.import_opencode)
app.command("serve")(serve.serve)
app.command("migrate")(stored.migrate)
app.command("doctor")(doctor.doctor)
app.command("openapi")(serve.openapi)


def main() -> None:
    app()
