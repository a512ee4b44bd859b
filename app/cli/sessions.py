"""The commands `opensession session`, `models`, `agents` and `mcp`: what a server has."""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.attach import Attach, Where, with_server
from app.cli.support import OutputFormat, fail

if TYPE_CHECKING:
    from app.api_client.client import ApiClient

session = typer.Typer(help="Sessions: list, show and delete them.", no_args_is_help=True)
mcp = typer.Typer(help="MCP servers that the agent uses, and this one for other agents.", no_args_is_help=True)

AsFormat = Annotated[OutputFormat, typer.Option("--format", help="json: as the API has it.")]
Most = Annotated[int | None, typer.Option("-n", "--max-count", min=1, help="At most so many.")]
SessionId = Annotated[str, typer.Argument(metavar="ID")]


@session.command("list")
def list_sessions(most: Most = None, form: AsFormat = OutputFormat.DEFAULT, attach: Attach = None, where: Where = None) -> None:
    """The sessions of this directory without those of subagents, the newest first."""
    found = with_server(attach, where, lambda api: api.get("/session", roots="true"))
    newest = sorted(found, key=lambda each: -each["time"]["updated"])[:most]
    if form is OutputFormat.JSON:
        _print_json(newest)
    else:
        _table([(each["id"], _when(each["time"]["updated"]), each["title"]) for each in newest])


@session.command("show")
def show_session(
    session_id: SessionId, form: AsFormat = OutputFormat.DEFAULT, attach: Attach = None, where: Where = None
) -> None:
    """A session with its messages: the texts, and what tools did."""
    from app.cli.console import Screen
    from app.cli.render import transcript

    info, messages = with_server(attach, where, lambda api: _conversation(api, session_id))
    if form is OutputFormat.JSON:
        _print_json({"info": info, "messages": messages})
    else:
        Screen().show(*transcript(info, messages))


async def _conversation(api: "ApiClient", session_id: str) -> tuple[Any, Any]:
    return await api.get(f"/session/{session_id}"), await api.get(f"/session/{session_id}/message")


@session.command("delete")
def delete_session(session_id: SessionId, attach: Attach = None, where: Where = None) -> None:
    """Delete a session with all its messages and its subagents' sessions."""
    with_server(attach, where, lambda api: api.delete(f"/session/{session_id}"))


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
    from app.mcp_server.over_stdio import serve

    with_server(attach, where, serve)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _when(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000).strftime("%Y-%m-%d %H:%M")


def _table(rows: list[tuple[str, str, str]]) -> None:
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for first, second, last in rows:
        typer.echo(f"{first.ljust(widths[0])}  {second.ljust(widths[1])}  {' '.join(last.split())}".rstrip())
