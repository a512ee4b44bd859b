"""What the keys of a configuration become: commands, permission rules, plugins and tools."""

import os
from pathlib import Path
from typing import Any

import pytest

from app.project.config.keys import Extension, commands, distinct, hints, ruleset
from app.project.config.sources import changed
from app.schema.config import Config, tools_permission

WORKTREE = Path("/the/worktree")


def test_built_in_commands_come_first() -> None:
    init, review = commands(Config(), WORKTREE)
    assert (init.name, init.subtask, init.hints) == ("init", None, ["$ARGUMENTS"])
    assert "/the/worktree/AGENTS.md" in init.template
    assert (review.name, review.subtask, review.hints) == ("review", True, ["$ARGUMENTS"])
    assert "/the/worktree" in review.template
    assert init.description and review.description


def test_config_commands_follow_and_may_replace() -> None:
    hello = {"template": "Hi $2 $1", "description": "greets", "agent": "plan", "model": "p/m"}
    config = Config.model_validate({"command": {"hello": hello, "init": {"template": "mine"}}})
    found = {command.name: command for command in commands(config, WORKTREE)}
    assert list(found) == ["init", "review", "hello"] and found["init"].template == "mine"
    assert found["hello"].wire() == {"source": "command", "name": "hello", **hello, "hints": ["$1", "$2"]}


def test_hints() -> None:
    assert hints("none") == hints("price: 5$") == hints("$" + "9" * 5000) == []
    assert hints("$ARGUMENTS $10 $2 $2 $1") == ["$1", "$2", "$10", "$ARGUMENTS"]


HOME = Path("/home/me")


def rows(permission: object) -> list[tuple[str, str, str]]:
    return [(rule.permission, rule.pattern, rule.action) for rule in ruleset(permission, HOME)]


def test_a_word_is_a_rule_for_everything_and_rules_stand_in_the_order_written() -> None:
    assert rows("deny") == [("*", "*", "deny")]
    bash = [("bash", "*", "ask"), ("bash", "git *", "allow")]
    given = {"edit": "ask", "bash": {"*": "ask", "git *": "allow"}, "*": "deny"}
    assert rows(given) == [("edit", "*", "ask"), *bash, ("*", "*", "deny")]


HOMES = {"~/x/*": "/home/me/x/*", "~": "/home/me", "$HOME/x": "/home/me/x", "$HOME": "/home/me"}
HOMES |= {"~other/x": "~other/x", "/a/~/b": "/a/~/b"}


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_TEST_HOME", "/home/you")
    assert ruleset({"read": {"~/a": "deny"}})[0].pattern == "/home/you/a", "that of this machine, unless it is given"
    given = {"external_directory": dict.fromkeys(HOMES, "allow")}
    assert rows(given) == [("external_directory", expanded, "allow") for expanded in HOMES.values()]


def test_tools_that_change_files_share_a_permission() -> None:
    for tool in ("write", "edit", "patch", "multiedit"):
        assert tools_permission({tool: False, "bash": True}) == {"edit": "deny", "bash": "allow"}, tool


CODE = "x = 1\n"


def test_every_layer_says_whether_its_plugins_are_the_projects(world: Any, tmp_path: Path) -> None:
    custom = world.write(tmp_path / "custom" / "mine.json", {"plugin": ["custom"]})
    own = world.write(tmp_path / "own" / "opencode.json", {"plugin": ["own"]})
    world.user({"plugin": ["global"]})
    for place, name in ((world.worktree, "folder"), (world.home, "home")):
        world.write(place / ".opencode" / "opencode.json", {"plugin": [name]})
    world.write(world.worktree / "opencode.json", {"plugin": ["project"]})
    env = {"OPENCODE_CONFIG": str(custom), "OPENCODE_CONFIG_DIR": str(own.parent)}
    plugins = world.load({**env, "OPENCODE_CONFIG_CONTENT": '{"plugin": ["inline"]}'}, [{"plugin": ["remote"]}]).plugins
    assert [plugin.source for plugin in plugins if plugin.of_project] == ["project", "folder"]
    others = [plugin.source for plugin in plugins if not plugin.of_project]
    assert others == ["remote", "global", "custom", "inline", "home", "own"]


def test_a_home_above_the_project_is_the_users_own(world: Any) -> None:
    plugin = world.write(world.home / ".opencode" / "plugin" / "mine.py", CODE)
    world.directory, world.worktree = world.home / "code", Path("/")
    world.directory.mkdir()
    assert world.load().plugins == [Extension(plugin.as_uri(), of_project=False)]


def test_files_of_plugin_and_tool_folders_are_found(world: Any) -> None:
    plugin = world.write(world.global_dir / "plugin" / "one.py", CODE)
    other = world.write(world.global_dir / "plugins" / "two.js", CODE)
    world.write(world.global_dir / "plugins" / "notes.md", "no code")
    tool = world.write(world.directory / ".opencode" / "tool" / "dice.py", CODE)
    loaded = world.load()
    assert loaded.plugins == [Extension(plugin.as_uri()), Extension(other.as_uri())]
    assert loaded.tools == [Extension(tool.as_uri(), of_project=True)]


def test_a_path_is_relative_to_the_file_that_names_it(world: Any) -> None:
    world.user({"plugin": ["./a.py", "sub/b.py", "~/c.py", "/d/e.py", "file:///f.py", "pkg.mod"]})
    paths = [world.global_dir / "a.py", world.global_dir / "sub" / "b.py", world.home / "c.py", Path("/d/e.py")]
    assert [plugin.source for plugin in world.load().plugins] == [*(path.as_uri() for path in paths), "file:///f.py", "pkg.mod"]


def test_a_changed_plugin_file_is_a_changed_configuration(world: Any) -> None:
    place = world.write(world.directory / "a.py", CODE)
    world.project({"plugin": ["./a.py"]})
    loaded = world.load()
    assert not changed(loaded.watched)
    os.utime(place, ns=(1, 1))
    assert changed(loaded.watched)


def test_of_two_of_one_name_the_last_stays_in_its_place() -> None:
    found = distinct(map(Extension, ["file:///a/x.py", "b@1", "@s/c@2", "file:///b/x.ts", "b"]))
    assert [extension.source for extension in found] == ["@s/c@2", "file:///b/x.ts", "b"]
    assert [extension.name for extension in found] == ["@s/c", "x", "b"]
