"""Plugins and tools of a configuration: where they are found, and whether the project itself brought them."""

import os
from pathlib import Path
from typing import Any

from app.project.config.keys import Extension, distinct

CODE = "x = 1\n"


def test_every_layer_says_whether_its_plugins_are_the_projects(world: Any, tmp_path: Path) -> None:
    custom = world.write(tmp_path / "custom" / "mine.json", {"plugin": ["custom"]})
    own = tmp_path / "own"
    world.write(own / "opencode.json", {"plugin": ["own"]})
    world.write(world.global_dir / "opencode.json", {"plugin": ["global"]})
    world.write(world.worktree / "opencode.json", {"plugin": ["project"]})
    world.write(world.outer / "work" / ".opencode" / "opencode.json", {"plugin": ["folder"]})
    world.write(world.home / ".opencode" / "opencode.json", {"plugin": ["home"]})
    env = {
        "OPENCODE_CONFIG": str(custom),
        "OPENCODE_CONFIG_DIR": str(own),
        "OPENCODE_CONFIG_CONTENT": '{"plugin": ["inline"]}',
    }
    plugins = world.load(env, [{"plugin": ["remote"]}]).plugins
    assert [plugin.source for plugin in plugins if plugin.of_project] == ["project", "folder"]
    assert [plugin.source for plugin in plugins if not plugin.of_project] == [
        "remote",
        "global",
        "custom",
        "inline",
        "home",
        "own",
    ]


def test_a_home_above_the_project_is_the_users_own(world: Any) -> None:
    plugin = world.write(world.home / ".opencode" / "plugin" / "mine.py", CODE)
    world.directory = world.home / "code"
    world.worktree = Path("/")
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
    world.write(
        world.global_dir / "opencode.json", {"plugin": ["./a.py", "sub/b.py", "~/c.py", "/d/e.py", "file:///f.py", "pkg.mod"]}
    )
    assert [plugin.source for plugin in world.load().plugins] == [
        (world.global_dir / "a.py").as_uri(),
        (world.global_dir / "sub" / "b.py").as_uri(),
        (world.home / "c.py").as_uri(),
        "file:///d/e.py",
        "file:///f.py",
        "pkg.mod",
    ]


def test_a_changed_plugin_file_is_a_changed_configuration(world: Any) -> None:
    place = world.write(world.directory / "a.py", CODE)
    world.write(world.directory / "opencode.json", {"plugin": ["./a.py"]})
    loaded = world.load()
    assert not loaded.is_stale()
    os.utime(place, ns=(1, 1))
    assert loaded.is_stale()


def test_of_two_of_one_name_the_last_stays_in_its_place() -> None:
    found = distinct(map(Extension, ["file:///a/x.py", "b@1", "@s/c@2", "file:///b/x.ts", "b"]))
    assert [extension.source for extension in found] == ["@s/c@2", "file:///b/x.ts", "b"]
    assert [extension.name for extension in found] == ["@s/c", "x", "b"]
