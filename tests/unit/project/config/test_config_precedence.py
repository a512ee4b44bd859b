"""Every layer of the configuration, lowest first: each of them overrides all the ones above it in this table."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

LAYERS = [
    *("remote 1", "remote 2"),
    *("global config.json", "global opencode.json", "global opencode.jsonc", "global config (TOML)", "OPENCODE_CONFIG"),
    *("worktree opencode.jsonc", "directory opencode.jsonc", "worktree opencode.json", "directory opencode.json"),
    "OPENCODE_CONFIG_CONTENT",
    *("directory .opencode/opencode.jsonc", "directory .opencode/opencode.json", "worktree .opencode/opencode.json"),
    *("home .opencode/opencode.jsonc", "home .opencode/opencode.json"),
    *("OPENCODE_CONFIG_DIR opencode.jsonc", "OPENCODE_CONFIG_DIR opencode.json"),
]


class Layers:
    """Puts a config into the named layers, and loads."""

    def __init__(self, world: Any, tmp_path: Path) -> None:
        self.world = world
        self.remote: list[dict[str, Any]] = []
        self.env: dict[str, str] = {}
        self.flags = {"OPENCODE_CONFIG": tmp_path / "extra.json", "OPENCODE_CONFIG_DIR": tmp_path / "custom"}
        own = {"global": world.global_dir, "directory": world.directory, "worktree": world.worktree, "home": world.home}
        self.places = {**own, **self.flags}

    def put(self, layer: str, config: dict[str, Any]) -> None:
        if layer.startswith("remote"):
            self.remote.append(config)
        elif layer == "OPENCODE_CONFIG_CONTENT":
            self.env[layer] = json.dumps(config)
        elif layer.endswith("(TOML)"):
            text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items())
            self.write("global config", text)
        else:
            self.write(layer, json.dumps(config))

    def write(self, layer: str, content: str) -> None:
        place, _, name = layer.partition(" ")
        self.world.write(self.places[place] / name, content)
        if place in self.flags:
            self.env[place] = str(self.flags[place])

    def load(self) -> Any:
        return self.world.load(self.env, self.remote).config


@pytest.fixture
def layers(world: Any, tmp_path: Path) -> Layers:
    return Layers(world, tmp_path)


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(LAYERS)))
def test_a_layer_overrides_the_one_below_and_keeps_what_it_does_not_say(layers: Layers, lower: str, higher: str) -> None:
    layers.put(lower, {"theme": lower, "username": "from below"})
    layers.put(higher, {"theme": higher})
    config = layers.load()
    assert (config.theme, config.username) == (higher, "from below")


def test_all_layers_at_once(layers: Layers) -> None:
    for layer in LAYERS:
        layers.put(layer, {"theme": layer, "instructions": [layer]})
    config = layers.load()
    assert (config.theme, config.instructions) == (LAYERS[-1], LAYERS)


def test_nothing_above_the_worktree_is_read_but_outside_git_the_search_goes_to_the_root(world: Any) -> None:
    for name in ("opencode.json", ".opencode/opencode.json"):
        world.write(world.outer / name, {"theme": "outer"})
    assert world.load().config.theme is None
    world.worktree = Path("/")
    world.write(world.directory.parents[2] / "opencode.json", {"username": "found"})
    assert (world.load().config.theme, world.load().config.username) == ("outer", "found")


def test_disable_project_config_leaves_the_rest(layers: Layers) -> None:
    layers.put("global opencode.json", {"theme": "global"})
    layers.put("directory opencode.json", {"theme": "project"})
    layers.put("directory .opencode/opencode.json", {"theme": "folder"})
    layers.env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    assert layers.load().theme == "global"


def test_permission_flag_overrides_every_file_and_keeps_other_rules(layers: Layers) -> None:
    layers.put("OPENCODE_CONFIG_DIR opencode.json", {"permission": {"bash": {"git *": "allow"}, "edit": "ask"}})
    layers.env["OPENCODE_PERMISSION"] = '{"bash": {"rm *": "deny"}, "edit": "deny"}'
    assert layers.load().permission == {"bash": {"git *": "allow", "rm *": "deny"}, "edit": "deny"}


def test_markdown_of_a_directory_overrides_project_files_and_the_later_directory_wins(world: Any) -> None:
    world.project({"agent": {"x": {"description": "file", "model": "p/m"}}})
    world.write(world.global_dir / "agent" / "x.md", "---\ndescription: global\n---\nprompt")
    assert world.load().config.agent["x"].description == "global"
    world.write(world.worktree / ".opencode" / "agents" / "x.md", "---\ndescription: outer folder\n---\nprompt")
    world.write(world.directory / ".opencode" / "agents" / "x.md", "---\ndescription: inner folder\n---\nprompt")
    agent = world.load().config.agent["x"]
    assert (agent.description, agent.model) == ("outer folder", "p/m")


def test_mode_entries_are_primary_agents_over_agent_entries(world: Any) -> None:
    modes = {"x": {"prompt": "p"}, "y": {}}
    world.project({"agent": {"x": {"mode": "subagent", "temperature": 0.5}}, "mode": modes})
    agents = world.load().config.agent
    assert (agents["x"].mode, agents["x"].temperature, agents["x"].prompt) == ("primary", 0.5, "p")
    assert agents["y"].mode == "primary"


def test_legacy_tools_stand_below_explicit_permission(world: Any) -> None:
    world.project({"tools": {"write": False, "bash": False, "webfetch": True}, "permission": {"bash": "ask"}})
    config = world.load().config
    assert config.permission == {"edit": "deny", "webfetch": "allow", "bash": "ask"}
    assert list(config.permission)[-1] == "bash"


AGENT_LAYERS = [
    *("remote 1", "global opencode.json", "directory opencode.json", "OPENCODE_CONFIG_CONTENT", "global agent/x.md"),
    *("directory .opencode/opencode.json", "directory .opencode/agents/x.md", "worktree .opencode/agent/x.md"),
    *("home .opencode/agent/x.md", "OPENCODE_CONFIG_DIR agent/x.md", "OPENCODE_CONFIG_DIR mode/x.md", "mode entry"),
]
"""What says something of one agent: files, then markdown of their directory, and at last the entries of `mode`."""

PERMISSION_LAYERS = ["tools (legacy)", *[layer for layer in AGENT_LAYERS if "x.md" not in layer and "mode" not in layer]]
PERMISSION_LAYERS += ["OPENCODE_CONFIG_DIR opencode.json", "OPENCODE_PERMISSION"]


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(AGENT_LAYERS)))
def test_what_is_said_of_an_agent_in_a_layer_overrides_the_one_below(layers: Layers, lower: str, higher: str) -> None:
    for layer in (lower, higher):
        if layer.endswith(".md"):
            layers.write(layer, f"---\ndescription: {layer}\n---\nprompt")
        elif layer == "mode entry":
            layers.put("global config.json", {"mode": {"x": {"description": layer}}})
        else:
            layers.put(layer, {"agent": {"x": {"description": layer}}})
    assert layers.load().agent["x"].description == higher


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(PERMISSION_LAYERS)))
def test_a_permission_of_a_layer_overrides_the_one_below(layers: Layers, lower: str, higher: str) -> None:
    for layer, action in ((lower, "deny"), (higher, "ask")):
        if layer == "tools (legacy)":
            layers.put("OPENCODE_CONFIG_DIR opencode.json", {"tools": {"bash": False}})
        elif layer == "OPENCODE_PERMISSION":
            layers.env[layer] = json.dumps({"bash": action})
        else:
            layers.put(layer, {"permission": {"bash": action}})
    assert layers.load().permission["bash"] == "ask"
