import sys

import pytest
from conversation import agent, model, user

from app.project.location import Location
from app.turn.context.system import assemble, environment, family_prompt
from app.util import clock
from app.workspace.agents import prompt_text


def question(system: str | None = None):  # type: ignore[no-untyped-def]
    return user(system=system).info


def test_the_first_text_is_the_same_every_turn_and_the_second_holds_what_changes() -> None:
    first = assemble(agent(), model(), ["environment one", "Instructions from: a"], question())
    second = assemble(agent(), model(), ["environment two"], question("Be brief."))
    assert len(first) == len(second) == 2
    assert first[0] == second[0] == prompt_text("default")
    assert first[1] == "environment one\n\nInstructions from: a"
    assert second[1] == "environment two\n\nBe brief."


def test_an_agent_s_own_prompt_stands_first() -> None:
    assert assemble(agent(prompt="You review."), model(), [], question()) == ("You review.",)


def test_what_the_user_adds_never_replaces() -> None:
    assert assemble(agent(prompt="You review."), model(), ["env", ""], question("Be brief.")) == (
        "You review.",
        "env\n\nBe brief.",
    )


@pytest.mark.parametrize(
    ("api_id", "prompt"),
    [
        ("gpt-5.2-codex", "codex"),
        ("openai/gpt-4.1", "gpt"),
        ("o1-pro", "gpt"),
        ("o3-mini", "gpt"),
        ("gemini-3-pro", "gemini"),
        ("anthropic/claude-sonnet-4.5", "claude"),
        ("qwen3-coder", "default"),
    ],
)
def test_a_model_without_an_agent_s_prompt_gets_its_family_s(api_id: str, prompt: str) -> None:
    assert family_prompt(model(api_id=api_id)) == prompt


def test_the_environment_says_where_and_when_the_model_works() -> None:
    clock.set_source(lambda: 1763726400.0)  # 2025-11-21 12:00 UTC
    try:
        block = environment(Location("/home/me/project", "p", "/home/me", is_git=True), model("m", api_id="m-2025"))
    finally:
        clock.set_source()
    lines = block.splitlines()
    assert "m-2025" in lines[0] and "acme/m-2025" in lines[0]
    assert lines[2:] == [
        "<env>",
        "  Working directory: /home/me/project",
        "  Is a git repository: yes",
        f"  Platform: {sys.platform}",
        "  Today's date: Fri Nov 21 2025",
        "</env>",
    ]


def test_outside_git_the_environment_says_so() -> None:
    assert "  Is a git repository: no" in environment(Location("/tmp", "global", "/", is_git=False), model()).splitlines()
