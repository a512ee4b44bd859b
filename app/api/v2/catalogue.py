"""What a directory offers to its sessions: agents, commands, skills and references."""

from typing import Any, Literal

from app.api.roles import READS
from app.api.v2.errors import ForbiddenError
from app.api.v2.shapes import Located, PlaceInstance, located, router
from app.intake.command import all_commands
from app.provider.models.selection import parse_model
from app.schema.agent import Agent, AgentMode, Command, Skill
from app.schema.base import Wire
from app.schema.part import ModelRef
from app.schema.permission import Action, Ruleset
from app.schema.session import SessionModel
from app.util.secrets import masked

routes = router("", ForbiddenError)


class ProviderRequest(Wire):
    """What is added to each request to the provider."""

    headers: dict[str, str] = {}
    body: dict[str, Any] = {}


class PermissionV2Rule(Wire):
    action: str
    resource: str
    effect: Action


class AgentV2Info(Wire):
    id: str
    model: SessionModel | None = None
    request: ProviderRequest
    system: str | None = None
    description: str | None = None
    mode: AgentMode
    hidden: bool
    color: str | None = None
    steps: int | None = None
    permissions: list[PermissionV2Rule]


class CommandV2Info(Wire):
    name: str
    template: str
    description: str | None = None
    agent: str | None = None
    model: SessionModel | None = None
    subtask: bool | None = None


class ReferenceLocalSource(Wire):
    type: Literal["local"] = "local"
    path: str


class ReferenceInfo(Wire):
    name: str
    path: str
    source: ReferenceLocalSource


@routes.get("/agent", tags=["agent"], operation_id="v2.agent.list", dependencies=READS)
async def agents(instance: PlaceInstance) -> Located[list[AgentV2Info]]:
    return located(instance.location, list(map(_agent, instance.agents.values())))


@routes.get("/command", tags=["command"], operation_id="v2.command.list", dependencies=READS)
async def commands(instance: PlaceInstance) -> Located[list[CommandV2Info]]:
    return located(instance.location, list(map(_command, await all_commands(instance))))


@routes.get("/skill", tags=["skill"], operation_id="v2.skill.list", dependencies=READS)
async def skills(instance: PlaceInstance) -> Located[list[Skill]]:
    return located(instance.location, list(instance.extensions.skills))


@routes.get("/reference", tags=["reference"], operation_id="v2.reference.list", dependencies=READS)
async def references(instance: PlaceInstance) -> Located[list[ReferenceInfo]]:
    """Always empty: the references of the configuration are not read."""
    return located(instance.location, [])


def _agent(agent: Agent) -> AgentV2Info:
    sampling = {"temperature": agent.temperature, "topP": agent.top_p}
    body = {name: value for name, value in sampling.items() if value is not None}
    return AgentV2Info(
        id=agent.name,
        model=_model(agent.model, agent.variant),
        request=ProviderRequest(body=masked({**agent.options, **body})),
        system=agent.prompt,
        description=agent.description,
        mode=agent.mode,
        hidden=bool(agent.hidden),
        color=agent.color,
        steps=agent.steps,
        permissions=_rules(agent.permission),
    )


def _rules(rules: Ruleset) -> list[PermissionV2Rule]:
    return [PermissionV2Rule(action=rule.permission, resource=rule.pattern, effect=rule.action) for rule in rules]


def _command(command: Command) -> CommandV2Info:
    return CommandV2Info(
        name=command.name,
        template=command.template,
        description=command.description,
        agent=command.agent,
        model=_model(parse_model(command.model) if command.model else None, command.variant),
        subtask=command.subtask,
    )


def _model(model: ModelRef | None, variant: str | None) -> SessionModel | None:
    return SessionModel(id=model.model_id, provider_id=model.provider_id, variant=variant) if model else None
