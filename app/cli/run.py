"""The command `opensession run`: one prompt, answered on the terminal or in a pipe."""

import base64
import mimetypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.attach import Attach, Where, with_server
from app.cli.support import OutputFormat

if TYPE_CHECKING:
    from app.api_client.client import ApiClient
    from app.cli.prompt_run import PromptOptions

Prompt = Annotated[list[str] | None, typer.Argument(help="What to ask; standard input joins it when it is no terminal.")]
Files = Annotated[list[Path] | None, typer.Option("-f", "--file", help="A file that goes along; may be given again.")]
ModelName = Annotated[str | None, typer.Option("-m", "--model", metavar="PROVIDER/MODEL", help="The model that answers.")]


def run(
    prompt: Prompt = None,
    session: Annotated[str | None, typer.Option("-s", "--session", metavar="ID", help="The session that goes on.")] = None,
    continues: Annotated[bool, typer.Option("-c", "--continue", help="The newest session here goes on.")] = False,
    fork: Annotated[bool, typer.Option("--fork", help="A copy of that session goes on (with -s or -c).")] = False,
    model: ModelName = None,
    agent: Annotated[str | None, typer.Option(help="The agent that answers: build, plan, or one of yours.")] = None,
    files: Files = None,
    title: Annotated[str | None, typer.Option(help="Of the new session; without it a model makes one.")] = None,
    format: Annotated[OutputFormat, typer.Option(help="json: a line for each part, tool call and error.")] = OutputFormat.DEFAULT,
    allow: Annotated[bool, typer.Option("--allow", help="Grant what the agent asks permission for, unasked.")] = False,
    attach: Attach = None,
    where: Where = None,
) -> None:
    """Prompt a session and show the answer. Ends with 0: answered, 1: error, 2: wrong usage, 130: stopped by Ctrl-C."""
    from app.cli.prompt_run import PromptOptions

    if session and continues:
        raise typer.BadParameter("takes no --continue: it names the session", param_hint="--session")
    if fork and not (session or continues):
        raise typer.BadParameter("needs the session to copy: --session ID or --continue", param_hint="--fork")
    if title and (session or continues):
        raise typer.BadParameter("is of a new session, and takes no --session or --continue", param_hint="--title")
    options = PromptOptions(
        parts=_parts(" ".join(prompt or ()), files or []),
        session_id=session,
        continues=continues,
        forks=fork,
        model=_model(model),
        agent=agent,
        title=title,
    )
    raise typer.Exit(
        with_server(attach, where, lambda api: _run(api, options, as_json=format is OutputFormat.JSON, allows=allow))
    )


async def _run(api: "ApiClient", options: "PromptOptions", *, as_json: bool, allows: bool) -> int:
    from app.cli.prompt_run import PromptRun, open_session
    from app.cli.view import RunView

    session = await open_session(api, options)
    return await PromptRun(api, RunView(session["id"], as_json=as_json, allows=allows), session).run(options)


def _model(name: str | None) -> tuple[str, str] | None:
    if name is None:
        return None
    provider, _, model = name.partition("/")
    if not (provider and model):
        raise typer.BadParameter("must be PROVIDER/MODEL: anthropic/claude-sonnet-4-5", param_hint="--model")
    return provider, model


def _parts(prompt: str, files: list[Path]) -> list[dict[str, Any]]:
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read().decode(errors="replace")
    text = "\n".join(each for each in (prompt, piped) if each.strip())
    if not text:
        raise typer.BadParameter("is missing: give it as an argument, or on standard input", param_hint="PROMPT")
    return [*map(_file_part, files), {"type": "text", "text": text}]


def _file_part(path: Path) -> dict[str, Any]:
    """A file of the caller's machine: its content goes along, so the server need not see it."""
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}", param_hint="--file")
    content = path.read_bytes()
    url = f"data:{(mime := _mime(path, content))};base64,{base64.b64encode(content).decode()}"
    return {"type": "file", "mime": mime, "filename": path.name, "url": url}


def _mime(path: Path, content: bytes) -> str:
    """Text is text, whatever its name: models read it."""
    guessed = mimetypes.guess_type(path.name)[0]
    if guessed and guessed.startswith(("image/", "application/pdf")):
        return guessed
    try:
        content.decode()
    except UnicodeDecodeError:
        return guessed or "application/octet-stream"
    return "text/plain"
