"""The command `opensession run`: one prompt, answered on the terminal or in a pipe; and commands that list what it can use:
`session`, `models`, `agents` and `mcp`."""

import base64
import json
import mimetypes
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.cli.support import Attach, Where, fail, readable, session_path, sessions_here, with_server

if TYPE_CHECKING:
    from app.api.client import ApiClient

OutputFormat = Literal["default", "json"]


def run(
    prompt: Annotated[
        list[str] | None, typer.Argument(help="What to ask; standard input joins it when it is no terminal.")
    ] = None,
    session: Annotated[str | None, typer.Option("-s", "--session", metavar="ID", help="The session that goes on.")] = None,
    continues: Annotated[bool, typer.Option("-c", "--continue", help="The newest session here goes on.")] = False,
    fork: Annotated[bool, typer.Option("--fork", help="A copy of that session goes on (with -s or -c).")] = False,
    model: Annotated[str | None, typer.Option("-m", "--model", metavar="PROVIDER/MODEL", help="The model that answers.")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent that answers: build, plan, or one of yours.")] = None,
    files: Annotated[list[Path] | None, typer.Option("-f", "--file", help="A file that goes along; may be given again.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the new session; without it a model makes one.")] = None,
    format: Annotated[OutputFormat, typer.Option(help="json: a line for each part, tool call and error.")] = "default",
    allow: Annotated[bool, typer.Option("--allow", help="Grant what the agent asks permission for, unasked.")] = False,
    attach: Attach = None,
    where: Where = None,
) -> None:
    """Prompt a session and show the answer. Ends with 0: answered, 1: error, 2: wrong usage, 130: stopped by Ctrl-C."""
    from app.cli.prompt_run import PromptRun, RunView, open_session

    if session and continues:
        raise typer.BadParameter("takes no --continue: it names the session", param_hint="--session")
    if fork and not (session or continues):
        raise typer.BadParameter("needs the session to copy: --session ID or --continue", param_hint="--fork")
    if title and (session or continues):
        raise typer.BadParameter("is of a new session, and takes no --session or --continue", param_hint="--title")
    title = readable(title) if title else None
    text = readable(" ".join(prompt or ()))
    sent = {"parts": _parts(text, files or []), **_model(model), **({"agent": agent} if agent else {})}

    async def answered(api: "ApiClient") -> int:
        opened = await open_session(api, session, title, continues=continues, forks=fork)
        view = RunView(opened["id"], as_json=format == "json", allows=allow)
        return await PromptRun(api, view, opened).run(sent)

    raise typer.Exit(with_server(attach, where, answered))


def _model(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    provider, _, model = name.partition("/")
    if not (provider and model):
        raise typer.BadParameter("must be PROVIDER/MODEL: anthropic/claude-sonnet-4-5", param_hint="--model")
    return {"model": {"providerID": provider, "modelID": model}}


def _parts(prompt: str, files: list[Path]) -> list[dict[str, Any]]:
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read().decode(errors="replace")
    text = "\n".join(each for each in (prompt, piped) if each.strip())
    if not text:
        raise typer.BadParameter("is missing: give it as an argument, or on standard input", param_hint="PROMPT")
    return [*map(_file_part, files), {"type": "text", "text": text}]


def _file_part(path: Path) -> dict[str, Any]:
    """A file of the caller's machine is sent with its content, so the server need not see it."""
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}", param_hint="--file")
    content = path.read_bytes()
    url = f"data:{(mime := _mime(path, content))};base64,{base64.b64encode(content).decode()}"
    return {"type": "file", "mime": mime, "filename": readable(path.name), "url": url}


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


session = typer.Typer(help="Sessions: list, show and delete them.", no_args_is_help=True)
mcp = typer.Typer(help="MCP servers that the agent uses, and this one for other agents.", no_args_is_help=True)

AsFormat = Annotated[OutputFormat, typer.Option("--format", help="json: as the API has it.")]
Most = Annotated[int | None, typer.Option("-n", "--max-count", min=1, help="At most so many.")]
SessionId = Annotated[str, typer.Argument(metavar="ID")]


@session.command("list")
def list_sessions(most: Most = None, form: AsFormat = "default", attach: Attach = None, where: Where = None) -> None:
    """The sessions of this directory without those of subagents, the newest first."""
    found = with_server(attach, where, sessions_here)
    newest = sorted(found, key=lambda each: -each["time"]["updated"])[:most]
    if form == "json":
        _print_json(newest)
    else:
        _table([(each["id"], _when(each["time"]["updated"]), each["title"]) for each in newest])


@session.command("show")
def show_session(session_id: SessionId, form: AsFormat = "default", attach: Attach = None, where: Where = None) -> None:
    """A session with its messages: the texts, and what tools did."""
    from app.cli.render import Screen, transcript

    async def conversation(api: "ApiClient") -> tuple[Any, Any]:
        path = session_path(session_id)
        return await api.get(path), await api.get(f"{path}/message")

    info, messages = with_server(attach, where, conversation)
    if form == "json":
        _print_json({"info": info, "messages": messages})
    else:
        Screen().show(*transcript(info, messages))


@session.command("delete")
def delete_session(session_id: SessionId, attach: Attach = None, where: Where = None) -> None:
    """Delete a session with all its messages and its subagents' sessions."""
    with_server(attach, where, lambda api: api.delete(session_path(session_id)))


def models(
    provider: Annotated[str | None, typer.Argument(help="Those of one provider.")] = None,
    attach: Attach = None,
    where: Where = None,
) -> None:
    """The models that can answer, as `run --model` takes them."""
    found = with_server(attach, where, lambda api: api.get("/config/providers"))["providers"]
    chosen = [each for each in found if provider in (None, each["id"])]
    if not chosen:
        fail(f"There is no provider {provider} with a key here. Connected: {', '.join(each['id'] for each in found) or 'none'}.")
    for each in chosen:
        for model in sorted(each["models"]):
            typer.echo(f"{each['id']}/{model}")


def agents(attach: Attach = None, where: Where = None) -> None:
    """The agents of this directory, as `run --agent` takes them."""
    found = with_server(attach, where, lambda api: api.get("/agent"))
    _table([(each["name"], each["mode"], each.get("description") or "") for each in found if not each.get("hidden")])


@mcp.command("list")
def list_mcp(attach: Attach = None, where: Where = None) -> None:
    """The MCP servers of this directory, and whether they are connected."""
    found = with_server(attach, where, lambda api: api.get("/mcp"))
    _table([(name, status["status"], status.get("error") or "") for name, status in sorted(found.items())])


@mcp.command("serve")
def serve_mcp(attach: Attach = None, where: Where = None) -> None:
    """Offer the sessions to the program that starts this, as tools and resources of the Model Context Protocol (stdio)."""
    from app.api.mcp_server.server import serve_over_stdio
    from app.util.processes import is_pipe

    if sys.stdin is None or not is_pipe(sys.stdin.fileno()):
        fail("opensession mcp serve speaks with the program that starts it: its standard input is a pipe.")
    with_server(attach, where, serve_over_stdio)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _when(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000).strftime("%Y-%m-%d %H:%M")


def _table(rows: list[tuple[str, str, str]]) -> None:
    from app.cli.render import Screen, answer

    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for first, second, last in rows:
        Screen().show(answer(f"{first.ljust(widths[0])}  {second.ljust(widths[1])}  {' '.join(last.split())}".rstrip()))
