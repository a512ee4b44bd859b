from pathlib import Path
from typing import Any

import pytest

from app.permissions.rules import evaluate
from app.schema.config import Config
from app.schema.errors import BadRequest
from app.schema.model import Agent
from app.workspace.agents import default_agent, define, find, prompt_text, subagents_for

OUTPUTS = Path("/data/tool-output")


def agents(**config: Any) -> dict[str, Agent]:
    return define(Config.model_validate(config), OUTPUTS)


def action(agent: Agent, permission: str, pattern: str = "*") -> str:
    return evaluate(permission, pattern, agent.permission).action


def test_the_seven_agents_are_there_the_default_first() -> None:
    assert list(agents()) == ["build", "plan", "general", "explore", "compaction", "title", "summary"]
    assert next(iter(agents(default_agent="plan"))) == "plan"


def test_modes_and_visibility() -> None:
    facts = {name: (agent.mode, bool(agent.hidden), bool(agent.native)) for name, agent in agents().items()}
    assert facts == {
        "build": ("primary", False, True),
        "plan": ("primary", False, True),
        "general": ("subagent", False, True),
        "explore": ("subagent", False, True),
        "compaction": ("primary", True, True),
        "title": ("primary", True, True),
        "summary": ("primary", True, True),
    }
    assert agents()["title"].temperature == 0.5


def test_those_with_a_job_of_their_own_have_a_prompt_of_their_own() -> None:
    assert {name for name, agent in agents().items() if agent.prompt} == {"explore", "compaction", "title", "summary"}


TABLE = [
    ("build", "bash", "ls", "allow"),
    ("build", "edit", "src/a.py", "allow"),
    ("build", "question", "*", "allow"),
    ("build", "plan_enter", "*", "allow"),
    ("build", "plan_exit", "*", "deny"),
    ("build", "doom_loop", "read", "ask"),
    ("build", "external_directory", "/etc/*", "ask"),
    ("build", "external_directory", "/data/tool-output/tool_1", "allow"),
    ("build", "read", "/p/a.py", "allow"),
    ("build", "read", "/p/.env", "ask"),
    ("build", "read", "/p/.env.local", "ask"),
    ("build", "read", "/p/.env.example", "allow"),
    ("plan", "edit", "src/a.py", "deny"),
    ("plan", "edit", ".opencode/plans/x.md", "allow"),
    ("plan", "question", "*", "allow"),
    ("plan", "plan_exit", "*", "allow"),
    ("plan", "plan_enter", "*", "deny"),
    ("general", "bash", "ls", "allow"),
    ("general", "todoread", "*", "deny"),
    ("general", "todowrite", "*", "deny"),
    ("general", "question", "*", "deny"),
    ("explore", "grep", "x", "allow"),
    ("explore", "glob", "x", "allow"),
    ("explore", "list", "x", "allow"),
    ("explore", "bash", "ls", "allow"),
    ("explore", "webfetch", "https://a", "allow"),
    ("explore", "websearch", "x", "allow"),
    ("explore", "codesearch", "x", "allow"),
    ("explore", "read", "/p/a", "allow"),
    ("explore", "edit", "a", "deny"),
    ("explore", "task", "general", "deny"),
    ("explore", "external_directory", "/etc/*", "deny"),
    ("explore", "external_directory", "/data/tool-output/tool_1", "allow"),
    ("compaction", "bash", "ls", "deny"),
    ("title", "read", "a", "deny"),
    ("summary", "edit", "a", "deny"),
]


@pytest.mark.parametrize(("name", "permission", "pattern", "expected"), TABLE)
def test_the_rules_of_the_built_in_agents(name: str, permission: str, pattern: str, expected: str) -> None:
    assert action(agents()[name], permission, pattern) == expected


def test_the_configuration_s_rules_stand_above_the_built_in_ones() -> None:
    configured = agents(permission={"bash": {"*": "ask", "git *": "allow"}, "question": "deny"})
    assert action(configured["build"], "bash", "rm x") == "ask"
    assert action(configured["build"], "bash", "git status") == "allow"
    assert action(configured["build"], "question") == "deny"
    assert action(agents(permission="allow")["plan"], "edit", "src/a.py") == "allow"


def test_an_agent_s_own_rules_stand_above_the_configuration_s() -> None:
    configured = agents(permission={"bash": "ask"}, agent={"build": {"permission": {"bash": "deny"}}})
    assert action(configured["build"], "bash", "ls") == "deny"
    assert action(configured["general"], "bash", "ls") == "ask"


def test_the_server_s_own_outputs_stay_readable_unless_they_are_named() -> None:
    assert (
        action(agents(permission={"external_directory": "deny"})["build"], "external_directory", "/data/tool-output/x") == "allow"
    )
    named = agents(permission={"external_directory": {"/data/tool-output/*": "deny"}})
    assert action(named["build"], "external_directory", "/data/tool-output/x") == "deny"


def test_an_unknown_name_makes_a_new_agent() -> None:
    review = agents(agent={"review": {"prompt": "You review.", "temperature": 0.2, "seed": 7}})["review"]
    assert (review.mode, review.native, review.prompt, review.temperature) == ("all", False, "You review.", 0.2)
    assert review.options == {"seed": 7}
    assert action(review, "read", "/p/.env") == "ask"


def test_a_known_name_is_overridden_in_what_is_set() -> None:
    changed = agents(
        agent={"plan": {"model": "acme/big", "description": "Plans.", "color": "#ff0000", "maxSteps": 5, "options": {"a": 1}}}
    )["plan"]
    assert changed.model is not None and (changed.model.provider_id, changed.model.model_id) == ("acme", "big")
    assert (changed.description, changed.color, changed.steps, changed.options) == ("Plans.", "#ff0000", 5, {"a": 1})
    assert changed.mode == "primary" and changed.native


def test_legacy_tools_are_rules() -> None:
    build = agents(agent={"build": {"tools": {"write": False, "bash": False}}})["build"]
    assert action(build, "edit", "a") == action(build, "bash", "ls") == "deny"


def test_an_agent_can_be_disabled() -> None:
    assert "general" not in agents(agent={"general": {"disable": True}})


def test_the_default_agent_is_the_configured_one_or_the_first_that_can_lead() -> None:
    config = Config.model_validate({"default_agent": "plan"})
    assert default_agent(define(config, OUTPUTS), config).name == "plan"
    without = Config.model_validate({"agent": {"build": {"disable": True}}})
    assert default_agent(define(without, OUTPUTS), without).name == "plan"


@pytest.mark.parametrize("name", ["nobody", "general", "title"])
def test_a_default_agent_that_cannot_lead_is_refused(name: str) -> None:
    config = Config.model_validate({"default_agent": name})
    with pytest.raises(BadRequest):
        default_agent(define(config, OUTPUTS), config)


def test_an_unknown_agent_is_refused_with_the_visible_ones() -> None:
    with pytest.raises(BadRequest) as caught:
        find(agents(), "nobody")
    assert "general" in caught.value.message and "title" not in caught.value.message


def test_tasks_go_to_subagents_that_the_caller_may_use() -> None:
    all_agents = agents(agent={"review": {"hidden": True}}, permission={"task": {"general": "deny"}})
    named = [agent.name for agent in subagents_for(all_agents["build"], all_agents)]
    assert named == ["explore", "review"], "hidden is hidden from people, who pick agents from a list"
    assert subagents_for(agents()["explore"], agents()) == []


def test_every_prompt_says_something() -> None:
    for name in (
        "default",
        "codex",
        "gpt",
        "gemini",
        "claude",
        "plan",
        "build-switch",
        "max-steps",
        "compaction-request",
        "subtask-continue",
        "title-request",
    ):
        assert prompt_text(name)
