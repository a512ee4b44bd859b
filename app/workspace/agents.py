"""The agents of a workspace: the seven built-in ones, and those of its configuration."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from app.permissions.rules import evaluate
from app.project.config.keys import ruleset
from app.providers.selection import parse_model
from app.schema.config import AgentConfig, Config
from app.schema.errors import BadRequest
from app.schema.model import Agent
from app.schema.permission import Action, Rule, Ruleset

_DESCRIPTIONS = {
    "build": "Reads, changes and runs the project with all tools.",
    "plan": "Studies the project and writes a plan; changes no file.",
    "general": "Carries out a task of several steps on its own, such as research that needs many searches and edits.",
    "explore": "Finds its way through a codebase fast: which files, where a name is used, how a part works. Reads only. "
    "Say how thorough it should be: quick, medium or very thorough.",
}
"""The descriptions of the agents that users and models choose from; the others are hidden."""
_SUBAGENTS = {"general", "explore"}
_WITH_PROMPT = {"explore", "compaction", "title", "summary"}


@cache
def prompt_text(name: str) -> str:
    return (resources.files("app.workspace") / "prompts" / f"{name}.txt").read_text("utf-8").strip()


def _each(action: Action, *permissions: str) -> Ruleset:
    return [Rule(permission=permission, pattern="*", action=action) for permission in permissions]


def _rule(permission: str, pattern: str, action: Action) -> Rule:
    return Rule(permission=permission, pattern=pattern, action=action)


def _tool_output(tool_output_dir: Path) -> Ruleset:
    """Allows every agent to read truncated tool outputs, which are stored in full in this directory."""
    return [
        _rule("external_directory", str(tool_output_dir), "allow"),
        _rule("external_directory", f"{tool_output_dir}/*", "allow"),
    ]


def _defaults(tool_output_dir: Path) -> Ruleset:
    return [
        _rule("*", "*", "allow"),
        _rule("doom_loop", "*", "ask"),
        _rule("external_directory", "*", "ask"),
        *_tool_output(tool_output_dir),
        *_each("deny", "question", "plan_enter", "plan_exit"),
        _rule("read", "*", "allow"),
        _rule("read", "*.env", "ask"),
        _rule("read", "*.env.*", "ask"),
        _rule("read", "*.env.example", "allow"),
    ]


def _built_in_rules(tool_output_dir: Path) -> dict[str, Ruleset]:
    nothing = _each("deny", "*")
    reads = _each("allow", "grep", "glob", "list", "bash", "webfetch", "websearch", "codesearch", "read")
    plan_edits = [_rule("edit", "*", "deny"), _rule("edit", ".opencode/plans/*.md", "allow")]
    return {
        "build": _each("allow", "question", "plan_enter"),
        "plan": [*_each("allow", "question", "plan_exit"), *plan_edits],
        "general": _each("deny", "todoread", "todowrite"),
        "explore": [*nothing, *reads, *_tool_output(tool_output_dir)],
        "compaction": nothing,
        "title": nothing,
        "summary": nothing,
    }


def _built_in(name: str, rules: Ruleset) -> Agent:
    return Agent(
        name=name,
        description=_DESCRIPTIONS.get(name),
        mode="subagent" if name in _SUBAGENTS else "primary",
        native=True,
        hidden=None if name in _DESCRIPTIONS else True,
        temperature=0.5 if name == "title" else None,
        permission=rules,
        prompt=prompt_text(name) if name in _WITH_PROMPT else None,
    )


_OVERRIDDEN = {"mode", "description", "prompt", "temperature", "top_p", "color", "hidden", "steps", "variant"}


def _configured(base: Agent | None, name: str, config: AgentConfig, defaults: Ruleset, user: Ruleset) -> Agent:
    agent = base or Agent(name=name, mode="all", native=False, permission=[*defaults, *user])
    model = {"model": parse_model(config.model)} if config.model else {}
    return agent.model_copy(
        update={
            **config.model_dump(include=_OVERRIDDEN, exclude_none=True),
            **model,
            "options": {**agent.options, **config.options},
            "permission": [*agent.permission, *ruleset(config.permission)],
        }
    )


def _with_tool_output(agent: Agent, tool_output_dir: Path) -> Agent:
    """Keeps the tool-output directory allowed if the configuration denies external directories or has them asked for, unless it
    names this one."""
    rules = _tool_output(tool_output_dir)
    denied = {(rule.permission, rule.pattern) for rule in agent.permission if rule.action == "deny"}
    if any((rule.permission, rule.pattern) in denied for rule in rules):
        return agent
    return agent.model_copy(update={"permission": [*agent.permission, *rules]})


def define(config: Config, tool_output_dir: Path) -> dict[str, Agent]:
    """All agents by name, the default one first."""
    defaults, user = _defaults(tool_output_dir), ruleset(config.permission)
    built_in = _built_in_rules(tool_output_dir).items()
    agents = {name: _built_in(name, [*defaults, *own, *user]) for name, own in built_in}
    for name, entry in config.agent.items():
        if entry.disable:
            agents.pop(name, None)
            continue
        agents[name] = _configured(agents.get(name), name, entry, defaults, user)
    complete = {name: _with_tool_output(agent, tool_output_dir) for name, agent in agents.items()}
    first = config.default_agent or "build"
    return dict(sorted(complete.items(), key=lambda item: item[0] != first))


def default_agent(agents: Mapping[str, Agent], config: Config) -> Agent:
    """Raises BadRequest if the configured default agent, or none at all, can lead a session."""
    if config.default_agent:
        agent = agents.get(config.default_agent)
        if agent is None or agent.mode == "subagent" or agent.hidden:
            raise BadRequest(
                f"default_agent {config.default_agent!r} in the configuration is not an agent that can lead a session",
                ["default_agent"],
            )
        return agent
    for agent in agents.values():
        if agent.mode != "subagent" and not agent.hidden:
            return agent
    raise BadRequest("The configuration leaves no agent that can lead a session", ["agent"])


def find(agents: Mapping[str, Agent], name: str) -> Agent:
    agent = agents.get(name)
    if agent is None:
        visible = ", ".join(agent.name for agent in agents.values() if not agent.hidden)
        raise BadRequest(f"There is no agent {name!r}. There are: {visible}", ["agent"], name)
    return agent


def subagents_for(caller: Agent, agents: Mapping[str, Agent]) -> list[Agent]:
    """The agents that an agent may give tasks to. Includes hidden agents, which are hidden only from the user's choice."""
    return [
        agent
        for agent in agents.values()
        if agent.mode != "primary" and evaluate("task", agent.name, caller.permission).action != "deny"
    ]
