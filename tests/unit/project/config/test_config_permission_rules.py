from pathlib import Path

import pytest

from app.project.config.keys import ruleset
from app.schema.config import tools_permission

HOME = Path("/home/me")


def rows(permission: object) -> list[tuple[str, str, str]]:
    return [(rule.permission, rule.pattern, rule.action) for rule in ruleset(permission, HOME)]  # type: ignore[arg-type]


def test_a_word_is_a_rule_for_everything() -> None:
    assert rows("deny") == [("*", "*", "deny")]


def test_rules_stand_in_the_order_written() -> None:
    assert rows({"edit": "ask", "bash": {"*": "ask", "git *": "allow"}, "*": "deny"}) == [
        ("edit", "*", "ask"),
        ("bash", "*", "ask"),
        ("bash", "git *", "allow"),
        ("*", "*", "deny"),
    ]


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("~/x/*", "/home/me/x/*"),
        ("~", "/home/me"),
        ("$HOME/x", "/home/me/x"),
        ("$HOME", "/home/me"),
        ("~other/x", "~other/x"),
        ("/a/~/b", "/a/~/b"),
    ],
)
def test_home_is_expanded(pattern: str, expanded: str) -> None:
    assert rows({"external_directory": {pattern: "allow"}}) == [("external_directory", expanded, "allow")]


def test_the_home_of_this_machine_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_TEST_HOME", "/home/you")
    assert ruleset({"read": {"~/a": "deny"}})[0].pattern == "/home/you/a"


@pytest.mark.parametrize("tool", ["write", "edit", "patch", "multiedit"])
def test_tools_that_change_files_share_a_permission(tool: str) -> None:
    assert tools_permission({tool: False, "bash": True}) == {"edit": "deny", "bash": "allow"}
