from pathlib import Path

import pytest

from app.project.config.keys import commands, hints
from app.schema.config import Config

WORKTREE = Path("/the/worktree")


def test_built_in_commands_come_first() -> None:
    init, review = commands(Config(), WORKTREE)
    assert (init.name, init.subtask, init.hints) == ("init", None, ["$ARGUMENTS"])
    assert "/the/worktree/AGENTS.md" in init.template
    assert (review.name, review.subtask, review.hints) == ("review", True, ["$ARGUMENTS"])
    assert "/the/worktree" in review.template
    assert init.description and review.description


def test_config_commands_follow_and_may_replace() -> None:
    config = Config.model_validate(
        {
            "command": {
                "hello": {"template": "Hi $2 $1", "description": "greets", "agent": "plan", "model": "p/m"},
                "init": {"template": "mine"},
            }
        }
    )
    found = {command.name: command for command in commands(config, WORKTREE)}
    assert list(found) == ["init", "review", "hello"]
    assert found["init"].template == "mine"
    assert found["hello"].wire() == {
        "source": "command",
        "name": "hello",
        "description": "greets",
        "agent": "plan",
        "model": "p/m",
        "template": "Hi $2 $1",
        "hints": ["$1", "$2"],
    }


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("none", []),
        ("$ARGUMENTS", ["$ARGUMENTS"]),
        ("$ARGUMENTS $10 $2 $2 $1", ["$1", "$2", "$10", "$ARGUMENTS"]),
        ("price: 5$", []),
    ],
)
def test_hints(template: str, expected: list[str]) -> None:
    assert hints(template) == expected
