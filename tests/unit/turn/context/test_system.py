"""The system texts of a request, and the instructions in them."""

import sys

import pytest
from conversation import agent, model, user

from app.project.location import Location
from app.turn.context.system import assemble, environment
from app.util import clock
from app.workspace.agents import prompt_text


@pytest.mark.parametrize(
    ("prompt", "context", "added", "texts"),
    [
        (None, ["env", "Instructions from: a"], None, (prompt_text("default"), "env\n\nInstructions from: a")),
        (None, ["another env"], "Be brief.", (prompt_text("default"), "another env\n\nBe brief.")),
        ("You review.", [], None, ("You review.",)),
        ("You review.", ["env", ""], "Be brief.", ("You review.", "env\n\nBe brief.")),
    ],
    ids=["the model's own prompt", "stays the same", "an agent's stands first", "what the user adds never replaces"],
)
def test_the_first_text_is_the_same_every_turn_and_the_second_holds_what_changes(
    prompt: str | None, context: list[str], added: str | None, texts: tuple[str, ...]
) -> None:
    assert assemble(agent(prompt=prompt), model(), context, user(system=added).info) == texts


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
    assert assemble(agent(), model(api_id=api_id), [], user().info) == (prompt_text(prompt),)


@pytest.mark.parametrize(("is_git", "said"), [(True, "yes"), (False, "no")])
def test_the_environment_says_where_and_when_the_model_works(is_git: bool, said: str) -> None:
    clock.set_source(lambda: 1763726400.0)  # 2025-11-21 12:00 UTC
    block = environment(Location("/home/me/project", "p", "/home/me", is_git=is_git), model("m", api_id="m-2025"))
    lines = block.splitlines()
    assert "m-2025" in lines[0] and "acme/m-2025" in lines[0]
    assert lines[2:] == [
        "<env>",
        "  Working directory: /home/me/project",
        f"  Is a git repository: {said}",
        f"  Platform: {sys.platform}",
        "  Today's date: Fri Nov 21 2025",
        "</env>",
    ]
