"""The choices of an editor for a session: the agent (as a mode and as an option), the model, its variant; its commands; and the
MCP servers that the editor gives to it."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from acp import RequestError, schema

from app.api.client import ApiClient, Json

DEFAULT_VARIANT = "default"
COMPACT = "compact"
"""A command of this server's own; OpenCode's clients have a key for it."""

MODE, MODEL, VARIANT = "mode", "model", "variant"


@dataclass(frozen=True)
class DirectoryChoices:
    """The choices in a directory. `models` by `provider/model`."""

    agents: dict[str, Json]
    models: dict[str, Json]
    default_agent: str
    default_model: str

    @classmethod
    async def of(cls, server: ApiClient, directory: str) -> "DirectoryChoices":
        agents, providers, config = await asyncio.gather(
            *(server.get(path, directory=directory) for path in ("/agent", "/config/providers", "/config"))
        )
        leading = {agent["name"]: agent for agent in agents if agent["mode"] != "subagent" and not agent.get("hidden")}
        return cls(
            leading,
            {
                f"{provider['id']}/{model['id']}": model
                for provider in providers["providers"]
                for model in provider["models"].values()
                if (model["providerID"], model["id"]) != ("scripted", "title")
            },
            next(iter(leading)),
            config.get("model") or _preselected(providers, set(config.get("provider") or {})),
        )


def _preselected(providers: Json, configured: set[str]) -> str:
    """The server's choice if nothing is configured."""
    known = [provider["id"] for provider in providers["providers"]]
    first = next((each for each in known if each in configured), known[0] if known else "")
    return f"{first}/{providers['default'].get(first, '')}"


class SessionChoices:
    """The choices for one session. `last`: its newest prompt, in a stored session."""

    def __init__(self, catalogue: DirectoryChoices, info: Json, last: Json | None) -> None:
        self._catalogue = catalogue
        prompted = last or {}
        agent = prompted.get("agent") or info.get("agent")
        self.agent = agent if agent in catalogue.agents else catalogue.default_agent
        self.model = _name(prompted.get("model")) or _name(info.get("model")) or self._agents_model or catalogue.default_model
        self.variant = prompted.get("variant") or DEFAULT_VARIANT
        self._is_models_chosen = last is not None or bool(info.get("model"))

    @property
    def _agents_model(self) -> str | None:
        return _name(self._catalogue.agents[self.agent].get("model"))

    @property
    def context_size(self) -> int:
        """The model's window in tokens; 0 if unknown."""
        return int((self._catalogue.models.get(self.model) or {}).get("limit", {}).get("context", 0))

    def of_prompt(self) -> Json:
        """The fields of a prompt. The server chooses a model that nobody has chosen."""
        provider, _, model = self.model.partition("/")
        chosen = {"model": {"providerID": provider, "modelID": model}} if self._is_models_chosen else {}
        return {"agent": self.agent, **chosen, **self._variant_field()}

    def of_command(self) -> Json:
        chosen = {"model": self.model} if self._is_models_chosen else {}
        return {"agent": self.agent, **chosen, **self._variant_field()}

    def _variant_field(self) -> Json:
        return {} if self.variant == DEFAULT_VARIANT else {"variant": self.variant}

    def follow(self, prompt: Json) -> bool:
        """Takes over the choices in another client's prompt. Returns whether they differ."""
        before = (self.agent, self.model)
        if prompt["agent"] in self._catalogue.agents:
            self.agent = prompt["agent"]
        self.model = _name(prompt["model"]) or self.model
        return before != (self.agent, self.model)

    def choose(self, option: str, value: str | bool) -> None:
        """Raises RequestError."""
        known = {each.id: [one.value for one in each.options] for each in self.options()}
        if option not in known or value not in known[option]:
            problem = f"{option} cannot be {value!r}" if option in known else f"There is no option {option}"
            raise RequestError.invalid_params({"details": f"{problem}. There are: {', '.join(known.get(option, known))}"})
        if option == MODE:
            self.agent = str(value)
            self.model = self.model if self._is_models_chosen else self._agents_model or self._catalogue.default_model
        elif option == MODEL:
            self.model, self.variant, self._is_models_chosen = str(value), DEFAULT_VARIANT, True
        else:
            self.variant = str(value)

    def modes(self) -> schema.SessionModeState:
        modes = [
            schema.SessionMode(id=name, name=name.capitalize(), description=agent.get("description"))
            for name, agent in self._catalogue.agents.items()
        ]
        return schema.SessionModeState(available_modes=modes, current_mode_id=self.agent)

    def options(self) -> list[schema.SessionConfigOptionSelect]:
        agents = {name: name.capitalize() for name in self._catalogue.agents}
        models = {name: f"{model['providerID']}/{model['name']}" for name, model in self._catalogue.models.items()}
        variants = (self._catalogue.models.get(self.model) or {}).get("variants") or {}
        offered = [_select(MODE, "Agent", "mode", self.agent, agents)]
        if self.model in models:
            offered.append(_select(MODEL, "Model", "model", self.model, models))
        if variants:
            named = {name: name.capitalize() for name in (DEFAULT_VARIANT, *variants)}
            current = self.variant if self.variant in named else DEFAULT_VARIANT
            offered.append(_select(VARIANT, "Variant", "thought_level", current, named))
        return offered


def _name(model: Json | None) -> str | None:
    """Sessions and messages name a model differently."""
    return f"{model['providerID']}/{model.get('modelID') or model['id']}" if model else None


def _select(option: str, name: str, category: Any, current: str, values: dict[str, str]) -> schema.SessionConfigOptionSelect:
    return schema.SessionConfigOptionSelect(
        type="select",
        id=option,
        name=name,
        category=category,
        current_value=current,
        options=[schema.SessionConfigSelectOption(value=value, name=shown) for value, shown in values.items()],
    )


def offered_commands(commands: list[Json]) -> list[schema.AvailableCommand]:
    return [*map(_offered_command, commands), schema.AvailableCommand(name=COMPACT, description="Sum the conversation up")]


def _offered_command(command: Json) -> schema.AvailableCommand:
    name, takes_arguments = command["name"], command.get("hints") or "$ARGUMENTS" in command["template"]
    arguments = schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint="arguments")) if takes_arguments else None
    return schema.AvailableCommand(name=name, description=command.get("description") or name, input=arguments)


# The MCP servers that an editor gives to a session. The server's MCP servers belong to a directory, so each is named with
# the id of its session, and rules keep other sessions from its tools.

EditorMcpServer = schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio
McpServerList = list[EditorMcpServer] | None

_MARK = "-acp-"

OTHERS_TOOLS: Json = {"permission": f"*{_MARK}*", "pattern": "*", "action": "deny"}
"""The rule of every session that an editor makes."""


def mcp_name(name: str, session_id: str) -> str:
    """Stands in addresses, too."""
    return re.sub(r"[^\w-]", "_", name) + _MARK + session_id[-8:]


def mcp_config(server: EditorMcpServer) -> Json:
    """Raises RequestError for an MCP server that only the editor reaches."""
    match server:
        case schema.McpServerStdio():
            environment = {variable.name: variable.value for variable in server.env}
            return {"type": "local", "command": [server.command, *server.args], "environment": environment}
        case schema.HttpMcpServer() | schema.SseMcpServer():
            return {"type": "remote", "url": server.url, "headers": {header.name: header.value for header in server.headers}}
    raise RequestError.invalid_params({"details": f"The MCP server {server.name} has a transport that is not offered"})


def mcp_rules(session_id: str, agent: Json) -> list[Json]:
    """The session may use only the tools of its own editor's servers, as far as the agent's rules for all tools allow."""
    for_all = [rule["action"] for rule in agent.get("permission") or [] if rule["permission"] == "*" and rule["pattern"] == "*"]
    own = {"permission": f"*{_MARK}{session_id[-8:]}_*", "pattern": "*", "action": for_all[-1] if for_all else "ask"}
    return [OTHERS_TOOLS, own]
