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
    facts = {name: (agent.mode, bool(agent.hidden), bool(agent.prompt)) for name, agent in agents().items()}
    assert list(facts) == ["build", "plan", "general", "explore", "compaction", "title", "summary"]
    assert facts["build"] == facts["plan"] == ("primary", False, False)
    assert (facts["general"], facts["explore"]) == (("subagent", False, False), ("subagent", False, True))
    assert facts["compaction"] == facts["title"] == facts["summary"] == ("primary", True, True)
    assert all(agent.native for agent in agents().values()) and agents()["title"].temperature == 0.5
    assert next(iter(agents(default_agent="plan"))) == "plan"


OUTPUT = "external_directory /data/tool-output/tool_1"
RULES = {
    "build": {
        "allow": ["bash ls", "edit src/a.py", "question *", "plan_enter *", OUTPUT, "read /p/a.py", "read /p/.env.example"],
        "ask": ["doom_loop read", "external_directory /etc/*", "read /p/.env", "read /p/.env.local"],
        "deny": ["plan_exit *"],
    },
    "plan": {"allow": ["edit .opencode/plans/x.md", "question *", "plan_exit *"], "deny": ["edit src/a.py", "plan_enter *"]},
    "general": {"allow": ["bash ls"], "deny": ["todoread *", "todowrite *", "question *"]},
    "explore": {
        "allow": [
            "grep x",
            "glob x",
            "list x",
            "bash ls",
            "webfetch https://a",
            "websearch x",
            "codesearch x",
            "read /p/a",
            OUTPUT,
        ],
        "deny": ["edit a", "task general", "external_directory /etc/*"],
    },
    "compaction": {"deny": ["bash ls"]},
    "title": {"deny": ["read a"]},
    "summary": {"deny": ["edit a"]},
}


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [(name, each, action) for name, rules in RULES.items() for action, asked in rules.items() for each in asked],
)
def test_the_rules_of_the_built_in_agents(name: str, asked: str, expected: str) -> None:
    assert action(agents()[name], *asked.split(" ")) == expected


def test_an_agent_s_rules_stand_above_the_configuration_s_and_those_above_the_built_in_ones() -> None:
    configured = agents(
        permission={"bash": {"*": "ask", "git *": "allow"}, "question": "deny"}, agent={"plan": {"permission": {"bash": "deny"}}}
    )
    asked = {"rm x": "ask", "git status": "allow"}
    assert {pattern: action(configured["build"], "bash", pattern) for pattern in asked} == asked
    assert action(configured["build"], "question") == action(configured["plan"], "bash", "git status") == "deny"
    assert action(agents(permission="allow")["plan"], "edit", "src/a.py") == "allow"


def test_the_server_s_own_outputs_stay_readable_unless_they_are_named() -> None:
    for rules, expected in (("deny", "allow"), ({"/data/tool-output/*": "deny"}, "deny")):
        build = agents(permission={"external_directory": rules})["build"]
        assert action(build, "external_directory", "/data/tool-output/x") == expected


def test_an_unknown_name_makes_a_new_agent() -> None:
    review = agents(agent={"review": {"name": "Reviewer", "prompt": "You review.", "temperature": 0.2, "seed": 7}})["review"]
    assert review.name == "review", "by which prompts name it"
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


def test_legacy_tools_are_rules_and_an_agent_can_be_disabled() -> None:
    configured = agents(agent={"build": {"tools": {"write": False, "bash": False}}, "general": {"disable": True}})
    assert action(configured["build"], "edit", "a") == action(configured["build"], "bash", "ls") == "deny"
    assert "general" not in configured


@pytest.mark.parametrize("config", [{"default_agent": "plan"}, {"agent": {"build": {"disable": True}}}])
def test_the_default_agent_is_the_configured_one_or_the_first_that_can_lead(config: dict[str, Any]) -> None:
    read = Config.model_validate(config)
    assert default_agent(define(read, OUTPUTS), read).name == "plan"


@pytest.mark.parametrize(
    "given",
    [
        *({"default_agent": name} for name in ("nobody", "general", "title")),
        {"agent": {"build": {"disable": True}, "plan": {"hidden": True}}},
    ],
)
def test_a_default_agent_that_cannot_lead_is_refused_and_so_are_agents_of_which_none_can(given: dict[str, Any]) -> None:
    config = Config.model_validate(given)
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
    names = "default codex gpt gemini claude plan build-switch max-steps compaction-request subtask-continue title-request"
    assert all(prompt_text(name) for name in names.split())
