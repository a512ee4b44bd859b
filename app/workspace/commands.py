"""Commands: prompt templates with arguments, shell output and file references."""

import asyncio
import re
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import SandboxWorkspace
from app.providers.selection import parse_model
from app.schema.errors import BadRequest, TooLarge
from app.schema.message import CommandInput, PromptInput
from app.schema.model import Agent, Command
from app.schema.part import AgentPartInput, FilePartInput, ModelRef, PartInput, SubtaskPartInput, TextPartInput
from app.tools.command_output import CommandOutput
from app.tools.external import sanitised
from app.tools.mcp.values import Content, McpFailure, ServerPrompt
from app.tools.process import run as run_process
from app.util import environment
from app.workspace.instance import Instance

_TOKEN = re.compile(r'\[Image \d+\]|"[^"]*"|\'[^\']*\'|[^\s"\']+')
_PLACEHOLDER = re.compile(r"\$(\d{1,9})(?!\d)")
_SHELL = re.compile(r"!`([^`]+)`")
_REFERENCE = re.compile(r"(?<![A-Za-z0-9_`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)")
SHELL_SECONDS = 60.0
MAX_CHARACTERS = 16 * 2**20
"""Of a filled template, and of what its shell lines print: a project's template may name the arguments 100,000 times."""


def fill(template: str, arguments: str) -> str:
    """`$1`… become the words of the arguments, the highest number all words that are left; `$ARGUMENTS` becomes all of them as
    typed. A template with neither gets the arguments at its end. Raises TooLarge."""
    words = split_arguments(arguments)
    numbers = [int(number) for number in _PLACEHOLDER.findall(template)]
    highest = max(numbers, default=0)

    def word(match: re.Match[str]) -> str:
        number = int(match[1])
        if number == 0:
            return ""
        return " ".join(words[number - 1 :]) if number == highest else "".join(words[number - 1 : number])

    _require_room(len(numbers) * len(arguments))
    filled = _PLACEHOLDER.sub(word, template)
    _require_room(filled.count("$ARGUMENTS") * len(arguments))
    filled = filled.replace("$ARGUMENTS", arguments)
    takes_arguments = bool(numbers) or "$ARGUMENTS" in template
    return filled if takes_arguments else _followed_by(filled, arguments)


def _require_room(characters: int) -> None:
    if characters > MAX_CHARACTERS:
        raise TooLarge(f"A command, with its arguments and what it prints, has at most {MAX_CHARACTERS} characters.")


def _followed_by(text: str, arguments: str) -> str:
    return f"{text}\n\n{arguments}" if arguments.strip() else text


def split_arguments(arguments: str) -> list[str]:
    return [_unquoted(word) for word in _TOKEN.findall(arguments)]


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word


def references(text: str) -> list[str]:
    """The names in `@name`, each once, in order."""
    return list(dict.fromkeys(match for match in _REFERENCE.findall(text) if match))


def resolve_references(text: str, worktree: Path, agents: Mapping[str, Agent]) -> list[PartInput]:
    """The files, directories or agents of these names, looked for in this order; other names are ignored."""
    found: list[PartInput] = []
    for name in references(text):
        path = environment.home() / name[2:] if name.startswith("~/") else worktree / name
        if _exists(path):
            mime = "application/x-directory" if path.is_dir() else "text/plain"
            found.append(FilePartInput(mime=mime, filename=name, url=path.resolve().as_uri()))
        elif name in agents:
            found.append(AgentPartInput(name=name))
    return found


def _exists(path: Path) -> bool:
    """False for what cannot be a path, as any word after an @ may be."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


class Commands:
    """`shell` and `environment` run the shell lines of a template, !`…`, in the sandbox."""

    def __init__(self, shell: str, environment: Mapping[str, str], sandbox: Sandbox) -> None:
        self._shell = shell
        self._sandbox = sandbox
        self._environment = environment

    async def prompt(self, instance: Instance, wanted: CommandInput, last_model: ModelRef | None) -> PromptInput:
        """The prompt that a command stands for. Raises BadRequest for an unknown command or agent,
        ProviderModelNotFoundError for an unknown model, TooLarge."""
        own = [command for command in instance.extensions.commands if command.name == wanted.command]
        command = _find(own or await all_commands(instance), wanted.command)
        agent = instance.agent(command.agent or wanted.agent)
        model = _model(instance, command, wanted) or last_model
        if model is not None:
            instance.models.find(model)
        text, attached = await self._content(instance, command, wanted.arguments)
        base = PromptInput(message_id=wanted.message_id, variant=wanted.variant or command.variant, parts=[])
        is_subtask = agent.mode == "subagent" if command.subtask is None else command.subtask
        if is_subtask:
            task = SubtaskPartInput(
                agent=agent.name,
                description=command.description or "",
                command=command.name,
                model=model or instance.default_model(),
                prompt=text,
            )
            asked = parse_model(wanted.model) if wanted.model else last_model
            return base.model_copy(update={"agent": wanted.agent, "model": asked, "parts": [task]})
        parts = [TextPartInput(text=text), *attached, *(wanted.parts or [])]
        return base.model_copy(update={"agent": agent.name, "model": model, "parts": parts})

    async def _content(self, instance: Instance, command: Command, arguments: str) -> tuple[str, Sequence[PartInput]]:
        """The text and the parts of a command. An MCP server's text is taken as it is: it runs nothing and names no files."""
        if command.mcp:
            given = await _ask_server(instance, command.name, split_arguments(arguments))
            text = given.text if command.hints else _followed_by(given.text, arguments)
            return text.strip(), [FilePartInput(mime=f.mime, filename=f.filename, url=f.url) for f in given.files]
        text = (await self._with_shell(fill(command.template, arguments), instance.sandbox_workspace)).strip()
        worktree = Path(instance.location.worktree if instance.location.is_git else instance.location.directory)
        return text, await asyncio.to_thread(resolve_references, text, worktree, instance.agents)

    async def _with_shell(self, text: str, workspace: SandboxWorkspace) -> str:
        """Replaces each !`command` by its standard output, run in the session's directory. Raises TooLarge."""
        outputs: list[str] = []
        for command in _SHELL.findall(text):
            outputs.append(await self._output(command, workspace))
            _require_room(sum(map(len, outputs)))
        replacements = iter(outputs)
        return _SHELL.sub(lambda _: next(replacements), text)

    async def _output(self, command: str, workspace: SandboxWorkspace) -> str:
        output = CommandOutput()
        try:
            program = await asyncio.to_thread(self._sandbox.program, [self._shell, "-c", command], workspace, self._environment)
            ended = await run_process(program, timeout=SHELL_SECONDS, on_output=output.add, stderr=DEVNULL)
        except (OSError, ValueError) as error:
            return f"(The command {command!r} could not be run: {error})"
        stopped = f"\n(The command was stopped after {SHELL_SECONDS:g} s.)" if ended.timed_out else ""
        return output.text() + stopped


def _find(commands: Sequence[Command], name: str) -> Command:
    command = next((command for command in commands if command.name == name), None)
    if command is None:
        known = ", ".join(command.name for command in commands)
        raise BadRequest(f"There is no command {name!r}. There are: {known}", ["command"], name)
    return command


def _model(instance: Instance, command: Command, wanted: CommandInput) -> ModelRef | None:
    """The command's own model, else its agent's, else the request's."""
    if command.model:
        return parse_model(command.model)
    if command.agent and (agent := instance.agents.get(command.agent)) and agent.model:
        return agent.model
    return parse_model(wanted.model) if wanted.model else None


async def all_commands(instance: Instance) -> list[Command]:
    """The directory's own commands, and those of its MCP servers with other names."""
    own = {command.name for command in instance.extensions.commands}
    prompts = [_command(prompt) for prompt in await _prompts(instance)]
    return [*instance.extensions.commands, *(command for command in prompts if command.name not in own)]


async def _ask_server(instance: Instance, name: str, words: Sequence[str]) -> Content:
    """The server's text for a prompt; the prompt's last argument gets all words that are left. Raises BadRequest."""
    prompt = next((prompt for prompt in await _prompts(instance) if _name(prompt) == name), None)
    if prompt is None:
        raise BadRequest(f"The MCP server of the command {name!r} is no longer there", ["command"], name)
    try:
        connection = await instance.extensions.mcp.connection(prompt.server)
        return await connection.get_prompt(prompt.name, _arguments(prompt.arguments, words))
    except McpFailure as failure:
        raise BadRequest(f"The MCP server {prompt.server} did not give its prompt: {failure}", ["command"], name) from failure


def _arguments(names: Sequence[str], words: Sequence[str]) -> dict[str, str]:
    last = len(names) - 1
    values = [*words[:last], " ".join(words[last:])] if names else []
    return {name: value for name, value in zip(names, values, strict=False) if value}


async def _prompts(instance: Instance) -> list[ServerPrompt]:
    return [prompt for offers in await instance.extensions.mcp.offers() for prompt in offers.prompts]


def _command(prompt: ServerPrompt) -> Command:
    """The server makes the text, so the template only shows the arguments."""
    hints = [f"${number}" for number in range(1, len(prompt.arguments) + 1)]
    return Command(
        name=_name(prompt), description=prompt.description, mcp=True, source="mcp", template=" ".join(hints), hints=hints
    )


def _name(prompt: ServerPrompt) -> str:
    return f"{sanitised(prompt.server)}:{sanitised(prompt.name)}"
