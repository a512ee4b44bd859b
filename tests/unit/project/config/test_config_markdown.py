from pathlib import Path
from typing import Any

import pytest

from app.project.config.errors import ConfigFrontmatterError, ConfigInvalidError
from app.project.config.markdown import parse


def data_of(text: str) -> dict[str, Any]:
    return parse(text, Path("/x.md")).data


def test_agents_are_named_by_their_path(world: Any) -> None:
    folder = world.directory / ".opencode"
    world.write(folder / "agent/a.md", "---\ndescription: one\nmode: subagent\n---\n\nYou are a.\n")
    world.write(folder / "agents/team/b.md", "Only a prompt")
    world.write(folder / "agent/c.md", "---\nname: renamed\npermission: deny\n---\nc")
    world.write(folder / "agent/notes.txt", "no agent")
    agents = world.load().config.agent
    assert sorted(agents) == ["a", "renamed", "team/b"]
    assert (agents["a"].description, agents["a"].mode, agents["a"].prompt) == ("one", "subagent", "You are a.")
    assert agents["team/b"].prompt == "Only a prompt"
    assert agents["renamed"].permission == {"*": "deny"}, "a permission may be one word"


def test_an_agent_file_takes_every_key_of_the_config_and_without_a_body_leaves_the_prompt(world: Any) -> None:
    rules = "tools:\n  write: false\npermission:\n  bash:\n    '*': ask\n    git *: allow\n"
    text = f"---\nmodel: p/m:7b\ntemperature: 1\n{rules}reasoningEffort: high\n---\n"
    world.project({"agent": {"a": {"prompt": "keep"}}})
    world.write(world.directory / ".opencode/agent/a.md", text)
    agent = world.load().config.agent["a"]
    assert (agent.model, agent.temperature, agent.options) == ("p/m:7b", 1, {"reasoningEffort": "high"})
    assert agent.permission == {"edit": "deny", "bash": {"*": "ask", "git *": "allow"}} and agent.prompt == "keep"
    assert list(agent.permission["bash"]) == ["*", "git *"]


def test_modes_are_primary_agents_and_not_nested(world: Any) -> None:
    world.write(world.directory / ".opencode/mode/m.md", "---\nmode: subagent\n---\nprompt")
    world.write(world.directory / ".opencode/modes/deep/n.md", "prompt")
    assert {name: agent.mode for name, agent in world.load().config.agent.items()} == {"m": "primary"}


def test_commands_are_named_by_their_path(world: Any) -> None:
    text = "---\ndescription: push it\nagent: build\nmodel: p/m\nsubtask: true\n---\nPush $1\n"
    world.write(world.directory / ".opencode/command/git/push.md", text)
    world.write(world.directory / ".opencode/commands/plain.md", "Just this")
    world.write(world.directory / ".opencode/command/c.md", "---\nname: renamed\n---\nc")
    found = world.load().config.command
    assert sorted(found) == ["git/push", "plain", "renamed"]
    fields = {"description": "push it", "agent": "build", "model": "p/m", "subtask": True}
    assert found["git/push"].layer() == {"template": "Push $1", **fields}
    assert found["plain"].template == "Just this"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("description: Use when: the user asks", "Use when: the user asks"),
        ("description: at 12:30", "at 12:30"),
        ("description: 12:30", "12:30"),
        ("description: https://x/y: z", "https://x/y: z"),
        ("description: fix issue #3: now", "fix issue"),
        ("description: ends with colon:", "ends with colon:"),
        ('description: "quoted: kept"', "quoted: kept"),
        ("description: {a: 1}", {"a": 1}),
        ("description: [a, 'b: c']", ["a", "b: c"]),
        ("description: |\n  block: text", "block: text\n"),
        ("description: >-\n  folded: text\n  on", "folded: text on"),
        ("description: plain # a comment: here", "plain"),
        ("description:\n  nested: 1", {"nested": 1}),
        ("description: {a: 1} # and", {"a": 1}),
        ("description: {1: 2024-01-01, b: !!binary YQ==}", {"1": "2024-01-01", "b": "a"}),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_values_with_a_colon_need_no_quotes(line: str, value: Any, end: str) -> None:
    text = f"---\n{line}\nmode: all\n---\nbody".replace("\n", end)
    assert data_of(text) == {"description": value, "mode": "all"}


def test_text_without_frontmatter_is_all_body_and_lines_may_end_as_on_windows() -> None:
    text = "# Title\n\n---\n\na: b\n\n---\n\nend"
    assert parse(text, Path("/x.md"))[2:] == ({}, text)
    document = parse("---\r\nmode: all\r\n---\r\nbody\r\n", Path("/x.md"))
    assert (document.data, document.body) == ({"mode": "all"}, "body")


@pytest.mark.parametrize(
    ("frontmatter", "line"), [("mode: all\nbad: @1", 3), ("description: a: b\nx: y: z\nmode: @", 4), ("a: @x", 2)]
)
def test_a_yaml_error_names_file_and_line(frontmatter: str, line: int) -> None:
    with pytest.raises(ConfigFrontmatterError) as caught:
        data_of(f"---\n{frontmatter}\n---\nbody")
    assert (caught.value.data["path"], caught.value.data["line"]) == ("/x.md", line)


def test_a_file_with_broken_frontmatter_is_a_warning_and_the_others_load(world: Any) -> None:
    path = world.write(world.directory / ".opencode/agent/bad.md", "---\nmode: [\n---\nx")
    world.write(world.directory / ".opencode/agent/good.md", "good")
    loaded = world.load()
    assert list(loaded.config.agent) == ["good"] and str(path) in loaded.watched
    told = [(warning.body()["name"], warning.data["path"]) for warning in loaded.warnings]
    assert told == [("ConfigFrontmatterError", str(path))]


def test_a_wrong_value_in_frontmatter_names_file_field_and_line(world: Any) -> None:
    path = world.write(world.directory / ".opencode/agent/bad.md", "---\ndescription: d\nmode: sometimes\n---\nx")
    with pytest.raises(ConfigInvalidError) as caught:
        world.load()
    assert caught.value.data["path"] == str(path)
    assert (caught.value.issues[0]["path"], caught.value.issues[0]["line"]) == (["mode"], 3)
