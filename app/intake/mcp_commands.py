"""The prompts of MCP servers, as commands `<server>:<prompt>`."""

from collections.abc import Sequence

from app.mcp.values import Content, McpFailure, ServerPrompt
from app.schema.agent import Command
from app.schema.errors import BadRequest
from app.tool.external import sanitised
from app.workspace.instance import Instance


async def all_commands(instance: Instance) -> list[Command]:
    """The directory's own, and those of its MCP servers that have no name of theirs."""
    own = {command.name for command in instance.extensions.commands}
    prompts = [_command(prompt) for prompt in await _prompts(instance)]
    return [*instance.extensions.commands, *(command for command in prompts if command.name not in own)]


async def ask(instance: Instance, name: str, words: Sequence[str]) -> Content:
    """What the server makes of a prompt; its last argument gets all words that are left. Raises BadRequest."""
    prompt = next((prompt for prompt in await _prompts(instance) if _name(prompt) == name), None)
    if prompt is None:
        raise BadRequest(f"The MCP server of the command {name!r} is no longer there", ["command"], name)
    try:
        return await instance.extensions.mcp.prompt(prompt.server, prompt.name, _arguments(prompt.arguments, words))
    except McpFailure as failure:
        raise BadRequest(f"The MCP server {prompt.server} did not give its prompt: {failure}", ["command"], name) from failure


def _arguments(names: Sequence[str], words: Sequence[str]) -> dict[str, str]:
    last = len(names) - 1
    values = [*words[:last], " ".join(words[last:])] if names else []
    return {name: value for name, value in zip(names, values, strict=False) if value}


async def _prompts(instance: Instance) -> list[ServerPrompt]:
    return [prompt for offers in await instance.extensions.mcp.offers() for prompt in offers.prompts]


def _command(prompt: ServerPrompt) -> Command:
    """The text is the server's to make: as a template stand its arguments."""
    hints = [f"${number}" for number in range(1, len(prompt.arguments) + 1)]
    return Command(
        name=_name(prompt), description=prompt.description, mcp=True, source="mcp", template=" ".join(hints), hints=hints
    )


def _name(prompt: ServerPrompt) -> str:
    return f"{sanitised(prompt.server)}:{sanitised(prompt.name)}"
