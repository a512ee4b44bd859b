"""What is made of the files of a configuration together, which mistakes are named, and when it has changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.project.config.errors import ConfigInvalidError, ConfigJsonError
from app.project.config.sources import changed


def test_no_files_gives_the_defaults_and_keybinds_of_the_user_stand_over_them(world: Any) -> None:
    config = world.load().config
    assert (config.agent, config.mode, config.command, config.plugin) == ({}, {}, {}, []) and config.username
    assert "permission" not in config.layer(), "no rules are shown where none were given"
    assert config.keybinds["leader"] == "ctrl+x"
    world.project({"keybinds": {"leader": "ctrl+z"}, "tools": {"bash": False}})
    config = world.load().config
    assert config.keybinds["leader"] == "ctrl+z" and len(config.keybinds) > 50
    assert config.layer()["permission"] == {"bash": "deny"}


def test_loading_writes_nothing(world: Any, tmp_path: Path) -> None:
    def there() -> dict[str, bytes | None]:
        return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(tmp_path.rglob("*"))}

    world.project('{"theme": "t"}')
    world.user("{}")
    world.write(world.directory / ".opencode" / "agent" / "a.md", "hello")
    world.write(world.global_dir / "config", 'theme = "old"\n')
    before = there()
    world.load()
    assert there() == before


def test_legacy_toml_names_provider_and_model(world: Any) -> None:
    world.write(world.global_dir / "config", 'provider = "anthropic"\nmodel = "claude"\ntheme = "t"\n')
    config = world.load().config
    assert (config.model, config.theme) == ("anthropic/claude", "t")


@pytest.mark.parametrize(
    ("config", "share"),
    [
        ({"autoshare": True}, "auto"),
        ({"autoshare": True, "share": "disabled"}, "disabled"),
        ({"autoshare": False}, None),
        ({"share": True}, "auto"),
        ({"share": False}, "manual"),
    ],
)
def test_sharing_may_be_switched_on_in_the_old_ways(world: Any, config: dict[str, Any], share: str | None) -> None:
    world.project(config)
    assert world.load().config.share == share


def test_compaction_flags_override_the_config(world: Any) -> None:
    world.project({"compaction": {"auto": True, "prune": True}})
    assert world.load().config.compaction.auto is True
    forced = world.load({"OPENCODE_DISABLE_AUTOCOMPACT": "1", "OPENCODE_DISABLE_PRUNE": "true"}).config.compaction
    assert (forced.auto, forced.prune) == (False, False)


def test_plugins_add_up_and_the_later_of_one_name_stays(world: Any) -> None:
    world.user({"plugin": ["a@1", "@s/b", "mine"]})
    world.project({"plugin": ["a@2", "./local.ts"]})
    own = world.write(world.directory / ".opencode" / "plugin" / "mine.ts", "export const x = 1")
    world.write(world.directory / ".opencode" / "plugin" / "README.md", "no plugin")
    assert world.load().config.plugin == ["@s/b", "a@2", (world.directory / "local.ts").as_uri(), own.as_uri()]


def test_an_mcp_server_can_change_its_type_or_only_be_switched(world: Any) -> None:
    local = {"type": "local", "command": ["x"], "environment": {"K": "v"}}
    world.user({"mcp": {"a": local, "b": {"type": "remote", "url": "http://b", "enabled": False}}})
    world.project({"mcp": {"a": {"type": "remote", "url": "http://a"}, "b": {"enabled": True}}})
    mcp = world.load().config.mcp
    assert mcp["a"].layer() == {"type": "remote", "url": "http://a"}
    assert mcp["b"].layer() == {"type": "remote", "url": "http://b", "enabled": True}


def test_inline_content_is_not_substituted_and_errors_in_a_flag_name_the_flag(world: Any) -> None:
    config = world.load({"OPENCODE_CONFIG_CONTENT": '{"theme": "{env:THEME}"}', "THEME": "dark"}).config
    assert config.theme == "{env:THEME}"
    for name in ("OPENCODE_CONFIG_CONTENT", "OPENCODE_PERMISSION"):
        with pytest.raises(ConfigJsonError, match=name):
            world.load({name: "{nope"})


def test_directories_are_those_that_exist_lowest_first(world: Any, tmp_path: Path) -> None:
    above = [place / ".opencode" for place in (world.directory, world.worktree, world.home)]
    places = [world.global_dir, *above, tmp_path / "own"]
    for place in places:
        place.mkdir(parents=True)
    assert world.load({"OPENCODE_CONFIG_DIR": str(places[-1])}).directories == places


def skill(name: str, body: str = "do it") -> str:
    return f"---\nname: {name}\ndescription: about {name}\n---\n\n{body}\n"


def test_skills_of_all_places_the_later_wins(world: Any) -> None:
    world.write(world.home / ".claude/skills/a/SKILL.md", skill("a", "home"))
    world.write(world.worktree / ".claude/skills/b/SKILL.md", skill("b"))
    own = world.write(world.directory / ".opencode/skill/deep/er/SKILL.md", skill("a", "own"))
    world.write(world.directory / ".opencode/skills/c/SKILL.md", skill("c"))
    world.write(world.directory / ".opencode/skills/c/OTHER.md", skill("not a skill"))
    (world.directory / ".opencode/skill/deep/loop").symlink_to(world.directory / ".opencode/skill")
    skills = {found.name: found for found in world.load().skills}
    assert sorted(skills) == ["a", "b", "c"]
    assert (skills["a"].location, skills["a"].description, skills["a"].content) == (str(own), "about a", "own")
    for flag in ("OPENCODE_DISABLE_CLAUDE_CODE", "OPENCODE_DISABLE_CLAUDE_CODE_SKILLS"):
        assert sorted(found.name for found in world.load({flag: "1"}).skills) == ["a", "c"], "without those of Claude Code"


def test_skills_of_the_folders_that_the_configuration_names(world: Any) -> None:
    for place in (world.directory / "own/x", world.home / "mine/y", world.outer / "theirs/z"):
        world.write(place / "SKILL.md", skill(place.name))
    world.user({"skills": {"paths": ["~/mine"]}})
    world.project({"skills": {"paths": ["own", str(world.outer / "theirs")]}})
    assert [found.name for found in world.load().skills] == ["y", "x", "z"]
    distrusted = world.distrusted()
    assert [found.name for found in distrusted.skills] == ["y", "x"]
    assert ["skills.paths" in warning.message for warning in distrusted.warnings] == [True]


def test_a_skill_without_a_description_is_skipped_with_a_warning(world: Any) -> None:
    path = world.write(world.directory / ".opencode/skill/a/SKILL.md", "---\nname: a\n---\nbody")
    loaded = world.load()
    assert loaded.skills == [] and [warning.data["path"] for warning in loaded.warnings] == [str(path)]


def test_keys_that_change_nothing_are_named(world: Any) -> None:
    world.user({"autoupdate": False, "theme": "dark"})
    world.project({"references": {"docs": "../docs"}})
    assert world.load().unused.keys() == {"autoupdate", "references"}


CHANGES: dict[str, Callable[[Any], object]] = {
    "a file": lambda world: world.project({"theme": "another"}),
    "a file that is gone": lambda world: (world.directory / "opencode.json").unlink(),
    "a new file": lambda world: world.write(world.worktree / "opencode.jsonc", "{}"),
    "a new agent": lambda world: world.write(world.directory / ".opencode/agent/new.md", "hi"),
    "an agent": lambda world: world.write(world.directory / ".opencode/agent/sub/a.md", "changed"),
    "a new folder": lambda world: (world.worktree / ".opencode").mkdir(),
    "a new command": lambda world: world.write(world.directory / ".opencode/command/x.md", "hi"),
    "a new file of the user": lambda world: world.user("{}"),
    "a file that is named": lambda world: world.write(world.directory / "key.txt", "another key"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_makes_the_loaded_config_stale_and_what_is_no_configuration_does_not(world: Any, change: Any) -> None:
    world.project('{"theme": "t", "username": "{file:key.txt}"}')
    world.write(world.directory / "key.txt", "k")
    world.write(world.directory / ".opencode/agent/sub/a.md", "hello")
    loaded = world.load()
    world.write(world.directory / "main.py", "print()")
    assert not changed(loaded.watched)
    change(world)
    assert changed(loaded.watched) and not changed(world.load().watched)


def test_a_folder_that_is_not_there_is_asked_for_alone(world: Any) -> None:
    watched = world.load().watched
    assert watched[str(world.global_dir)] is None
    assert not [path for path in watched if Path(path).parent == world.global_dir]


def test_what_is_wrong_with_a_file_is_said_with_its_name(world: Any) -> None:
    def refused(match: str) -> None:
        with pytest.raises(ConfigInvalidError, match=match):
            world.load()

    (world.directory / "opencode.json").write_bytes(b'{"theme": "\xff"}')
    refused("UTF-8")
    world.project({})
    path = world.user({"sandbox": {"write": ["~/.m2", "cache"]}})
    refused(r"sandbox\.write.*'cache'")
    path.unlink()
    path.symlink_to("/proc/self/mem")  # opens for everyone, root too, and fails when read
    refused(f"{path}: cannot be read")
    path.unlink()
    refused_toml = world.write(world.global_dir / "config", "theme = \n")
    refused(str(refused_toml))


@pytest.mark.parametrize("text", ['{"plugin": ["./\\ud800.py"]}', '{"username": "{file:a\0b}"}'])
def test_a_name_that_no_file_can_have_is_told_of(world: Any, text: str) -> None:
    path = world.project(text)
    with pytest.raises((ConfigInvalidError, ConfigJsonError), match=str(path)):
        world.load()


def test_a_plugin_that_is_a_link_to_itself_is_one_that_is_not_there(world: Any) -> None:
    world.project('{"plugin": ["./loop.py"]}')
    (world.directory / "loop.py").symlink_to("loop.py")
    assert [plugin.path for plugin in world.load().plugins] == [world.directory / "loop.py"]


def test_what_has_a_config_files_name_and_is_no_file_is_passed_over(world: Any) -> None:
    (world.directory / "opencode.json").mkdir()
    (world.directory / "opencode.jsonc").symlink_to("opencode.jsonc")
    world.write(world.worktree / "opencode.json", {"theme": "t"})
    assert world.load().config.theme == "t"


def test_a_custom_file_that_is_missing_is_a_warning(world: Any, tmp_path: Path) -> None:
    path = tmp_path / "gone.json"
    loaded = world.load({"OPENCODE_CONFIG": str(path)})
    assert [warning.data["path"] for warning in loaded.warnings] == [str(path)]
    world.write(path, "{}")
    assert changed(loaded.watched)


def test_the_projects_own_files_close_the_sandbox_and_do_not_open_it(world: Any) -> None:
    world.user({"sandbox": {"network": True, "read": ["~/.m2"]}})
    world.project({"sandbox": {"network": False, "read": ["/"], "write": ["/"]}})
    loaded = world.load()
    assert loaded.config.sandbox.layer() == {"network": False, "read": ["~/.m2"]}
    opening = sorted(warning.message.partition(" opens")[0].rpartition(" ")[2] for warning in loaded.warnings)
    assert opening == ["sandbox.read", "sandbox.write"]
    world.user({"sandbox": {"network": False}})
    world.project({"sandbox": {"network": True}})
    assert world.load().config.sandbox.network is False


def test_what_a_project_may_not_say_is_reported_of_the_file_that_says_it(world: Any) -> None:
    world.project({"theme": "plain"})
    file = world.directory / ".opencode" / "opencode.json"
    world.write(file, {"sandbox": {"read": ["/"]}, "instructions": ["/etc/*"]})
    warnings = world.distrusted().warnings
    assert [warning.data["path"] for warning in warnings] == [str(file), str(file)]
