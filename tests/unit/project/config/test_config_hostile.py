"""Whatever a project has in place of its configuration: nothing of another's is read, nothing waits, and it is named."""

import json
import os
import shutil
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from git_files import put_file
from obstacles import LINKS, OBSTACLES, SECRET, put, unresolved

from app.project.config.flags import Flags
from app.project.config.loader import LoadedConfig, load
from app.schema.errors import ServiceError
from app.util.project_files import MAX_DEPTH, MAX_ENTRIES, ProjectBounds

FILES = [
    *(f"{folder}opencode.{kind}" for folder in ("", ".opencode/") for kind in ("json", "jsonc")),
    *(f".opencode/{name}/x.md" for name in ("command", "commands/deep", "agent", "agents/deep/er", "mode", "modes")),
    *(f"{folder}/x/SKILL.md" for folder in (".opencode/skill", ".opencode/skills", ".claude/skills")),
]
FOLDERS = sorted({str(folder) for file in FILES for folder in Path(file).parents} - {"."})
SKILL = f"---\nname: x\ndescription: {SECRET}\n---\n{SECRET}"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A directory of somebody else with each kind of file, and one that says nothing but SECRET."""
    place = tmp_path / "theirs"
    for name in FILES:
        put_file(place / name, json.dumps({"username": SECRET}) if "json" in name else SKILL)
    return place


def shown(loaded: LoadedConfig) -> str:
    skills = [skill.model_dump_json() for skill in loaded.skills]
    return "\n".join([loaded.config.model_dump_json(), *skills, *(tool.source for tool in loaded.tools)])


def named(loaded: LoadedConfig) -> list[str]:
    return [warning.data["path"] for warning in loaded.warnings]


@pytest.mark.parametrize("place", ["directory", "worktree"])
@pytest.mark.parametrize("kind", OBSTACLES)
def test_files(world: Any, theirs: Path, kind: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [getattr(world, place) / name for name in FILES]
    for name, path in zip(FILES, paths, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(path.parent)
        put(kind, path, theirs / name)
    loaded = world.load()
    assert SECRET not in shown(loaded) and set(map(str, paths)) <= set(named(loaded))


@pytest.mark.parametrize("name", FILES[4:])
def test_names_that_are_not_utf_8(world: Any, name: str) -> None:
    path = world.directory / name.replace("x", os.fsdecode(b"caf\xe9"))
    put_file(path, SKILL)
    loaded = world.load()
    assert SECRET not in shown(loaded) and "caf\ufffd" in named(loaded)[0]


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("kind", LINKS)
def test_a_linked_folder(world: Any, theirs: Path, kind: str, name: str) -> None:
    put(kind, world.directory / name, theirs / name)
    loaded = world.load()
    assert SECRET not in shown(loaded) and named(loaded) != []


def test_directories_above_a_project_outside_git_hold_what_lies_there(world: Any, theirs: Path) -> None:
    honest = world.write(world.outer / ".opencode/command/honest.md", "honest")
    world.write(world.outer / "opencode.json", {"theme": "outer"})
    put("link", world.outer / ".opencode/command/x.md", theirs / ".opencode/command/x.md")
    put("link", world.worktree / "opencode.json", theirs / "opencode.json")
    loaded = load(world.directory, Path("/"), Flags())
    assert loaded.config.theme == "outer" and loaded.config.command["honest"].template == honest.read_text()
    assert SECRET not in shown(loaded)


def test_code_of_a_linked_folder_is_not_found(world: Any, theirs: Path) -> None:
    for folder in ("plugin", "tool"):
        world.write(theirs / folder / "evil.py", "")
        put("link", world.directory / ".opencode" / folder, theirs / folder)
    loaded = world.load()
    assert loaded.plugins == loaded.tools == []


def test_a_distrusted_project_names_nothing_outside_in_any_way(world: Any, theirs: Path) -> None:
    for number, kind in enumerate(LINKS):
        put(kind, world.directory / str(number) / "named", theirs / ".opencode/command/x.md")
        put(kind, world.directory / f"skills{number}", theirs / ".opencode/skill")
        named_file = {"username": f"{{file:{number}/named}}"}
        world.project({**named_file, "skills": {"paths": [f"skills{number}"]}})
        with pytest.raises(Exception, match="does not exist"):
            world.distrusted()
        world.project({"skills": {"paths": [f"skills{number}"]}})
        assert world.distrusted().skills == []


def test_instructions_of_a_distrusted_project_stay_within_it(world: Any, theirs: Path) -> None:
    own, inside = str(world.home / "rules.md"), str(world.directory / "docs" / "*.md")
    world.user({"instructions": [own]})
    world.project({"instructions": [inside, str(theirs / "*"), "~/x", "a.md", "https://x/y"]})
    distrusted = world.distrusted()
    assert distrusted.config.instructions == [own, "docs/*.md", "a.md", "https://x/y"]
    assert [str(theirs) in warning.message or "~/x" in warning.message for warning in distrusted.warnings] == [True, True]


def test_names_that_lead_nowhere_are_outside_of_a_distrusted_project(world: Any) -> None:
    with unresolved() as place:
        world.project({"instructions": [f"{place}/*"], "skills": {"paths": [str(place)]}, "plugin": [f"{place}/x.py"]})
        distrusted = world.distrusted()
    assert distrusted.config.instructions == [] and len(distrusted.warnings) == 2
    assert [plugin.path for plugin in distrusted.plugins] == [place / "x.py"]


def test_other_users_roots_and_the_data_directory_are_closed_within_the_project(world: Any) -> None:
    for place in ("hugo", "data"):
        world.write(world.directory / place / "x.md", SECRET)
        put("link", world.directory / f".opencode/command/{place}.md", world.directory / place / "x.md")
    closed = [str(world.directory / "hugo"), str(world.directory / "data")]
    bounds = ProjectBounds(str(world.directory), str(world.worktree), lambda: closed)
    assert SECRET not in shown(load(world.directory, world.worktree, Flags(), bounds=bounds))
    assert SECRET in shown(world.load())


def test_the_user_s_own_files_and_folders_may_be_links_to_anywhere(world: Any, tmp_path: Path) -> None:
    dotfiles, own = tmp_path / "dotfiles", tmp_path / "own"
    world.write(dotfiles / "opencode.json", {"theme": "linked"})
    world.write(dotfiles / "agent" / "mine.md", "mine")
    world.write(dotfiles / "skills" / "s" / "SKILL.md", "---\nname: s\ndescription: d\n---\nbody")
    world.write(dotfiles / "custom.json", {"username": "custom"})
    world.global_dir.mkdir(parents=True)
    for name in ("opencode.json", "agent"):
        (world.global_dir / name).symlink_to(dotfiles / name)
    (tmp_path / "custom.json").symlink_to(dotfiles / "custom.json")
    for folder in (world.home / ".claude", own):
        folder.symlink_to(dotfiles)
    loaded = world.load({"OPENCODE_CONFIG": str(tmp_path / "custom.json"), "OPENCODE_CONFIG_DIR": str(own)})
    assert (loaded.config.theme, loaded.config.username) == ("linked", "custom")
    assert loaded.config.agent["mine"].prompt == "mine"
    assert [skill.name for skill in loaded.skills] == ["s"] and loaded.warnings == []


@pytest.mark.parametrize("kind", ["fifo", "endless", "huge"])
def test_the_user_s_own_files_and_those_that_are_named_are_bounded_too(world: Any, theirs: Path, kind: str) -> None:
    put(kind, world.global_dir / "opencode.json", theirs)
    put(kind, world.home / ".opencode" / "agent" / "x.md", theirs)
    assert len(world.load().warnings) == 2
    put(kind, world.directory / "named", theirs)
    world.project({"username": "{file:named}"})
    with pytest.raises(Exception, match="does not exist"):
        world.load()


def test_links_within_the_project_are_followed(world: Any) -> None:
    world.write(world.worktree / "shared/x.md", "linked")
    world.write(world.worktree / "shared/opencode.json", {"theme": "linked"})
    (world.directory / "opencode.json").symlink_to(world.worktree / "shared/opencode.json")
    (world.directory / ".opencode/agent").mkdir(parents=True)
    (world.directory / ".opencode/agent/x.md").symlink_to(world.worktree / "shared/x.md")
    (world.directory / ".opencode/command").symlink_to(world.worktree / "shared")
    loaded = world.load()
    assert loaded.config.theme == loaded.config.agent["x"].prompt == loaded.config.command["x"].template == "linked"
    assert loaded.warnings == []


def test_folders_without_an_end_are_walked_as_far_as_the_bounds(world: Any) -> None:
    commands, skills = world.directory / ".opencode/command", world.directory / ".opencode/skills"
    world.write(commands / Path(*["d"] * (MAX_DEPTH + 10)) / "x.md", "deep")
    for number in range(12):
        (commands / f"l{number}").symlink_to(commands)
        (skills / f"l{number}").mkdir(parents=True)
        for other in range(12):
            (skills / f"l{number}/m{other}").symlink_to(skills / f"l{(number + other) % 12}")
    loaded = world.load()
    assert not [name for name in loaded.config.command if name.endswith("/x")]
    assert len(loaded.watched) < 2 * MAX_ENTRIES


def test_a_folder_of_too_many_files_is_named(world: Any) -> None:
    folder = world.directory / ".opencode/command"
    folder.mkdir(parents=True)
    for number in range(MAX_ENTRIES + 1):
        os.close(os.open(folder / f"{number}.txt", os.O_CREAT))
    assert str(folder) in named(world.load())


# Texts that a small file can hold up the server with, or take its memory.

MEGABYTE = 1_000_000
TEXTS = {
    "brackets": "[" * MEGABYTE,
    "braces": '{"agent":' * (MEGABYTE // 10),
    "variables without an end": '{"username": "' + "{env:" * (MEGABYTE // 5) + '"}',
    "variables without an end outside of strings": '{"username": "{env:X}"' + "{env:" * (MEGABYTE // 5),
    "strings without an end": '{"a": ' + '"\\' * (MEGABYTE // 2),
    "comments without an end": "{" + "/*" * (MEGABYTE // 2),
    "many strings": '{"plugin": [' + '"{env:X}",' * (MEGABYTE // 12) + '""]}',
    "a long number": '{"username": ' + "1" * MEGABYTE + "}",
    "commas and spaces": "{" + ("," + " " * 1000) * 1000,
    "deep options": '{"agent": {"x": {"options": ' + '{"a":' * 400 + "1" + "}" * 400 + "}}}",
    "mistakes": '{"permission": {"bash": {"": "ask"' + "".join(f',"{n}":"no"' for n in range(9_000)) + "}}}",
    "long variables": '{"username": "' + "{env:LONG}" * 50_000 + '"}',
    "a file many times": '{"username": "' + "{file:long.txt}" * 50_000 + '"}',
}
ALIASES = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))])
FRONTMATTERS = {
    "aliases": f"{ALIASES}\noptions: {{z: *a11}}",
    "aliases in ordered maps": ALIASES.replace("[", "!!omap [ x: ").replace(", ", ", x: "),
    "an alias of itself": "options: &a {z: *a}",
    "brackets": "a: " + "[" * 50_000,
    "braces": "a: " + "{a: " * 15_000,
    "lists": "a:\n" + "- " * 30_000,
    "questions": "? " * 30_000,
    "spaces": "a: b" + " " * 60_000 + "c",
    "a date that is none": "a: 2024-13-45",
    "bytes that are no text": "a: !!binary //79",
    "a long number": "a: " + "1" * 50_000,
    "a long one": "a: b\n" * (MEGABYTE // 5),
}
MAX_SECONDS = 5.0


@pytest.mark.parametrize("kind", TEXTS)
def test_a_configuration_takes_neither_long_nor_much_memory(world: Any, kind: str) -> None:
    world.project(TEXTS[kind])
    world.write(world.directory / "long.txt", "x" * 100_000)
    began = time.thread_time()
    tracemalloc.start()
    try:
        world.load({"LONG": "x" * 100_000})
    except ServiceError as error:
        assert "opencode.json" in error.message
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert time.thread_time() - began < MAX_SECONDS and peak < 150 * 2**20


MANY = range(6_000)


@pytest.mark.parametrize(
    "content", [{"agent": {f"a{n}": {"prompt": "x"} for n in MANY}}, {"instructions": ["", *map(str, MANY), *map(str, MANY)]}]
)
def test_a_file_of_many_values_is_refused_and_named(world: Any, content: dict[str, Any]) -> None:
    """It would be validated in one go, which nothing else can interrupt: 25,000 agents took seconds."""
    world.project(content)
    with pytest.raises(ServiceError, match=r"opencode\.json.* more than 10000 values"):
        world.load()


def test_all_layers_of_many_values_are_refused_and_so_are_agents_of_many_rules(world: Any) -> None:
    """They were merged for half a minute; 5,000 agents of 5,000 rules held the event loop for as long."""
    for number in range(12):
        world.write(world.directory / f".opencode/agent/{number}.md", f"---\noptions: {{z: [{'1,' * 9_000}]}}\n---\nx")
    with pytest.raises(ServiceError, match="merged configuration: it has more than 100000 values"):
        world.load()
    shutil.rmtree(world.directory / ".opencode")
    rules, agents = (
        {"bash": {str(number): "ask" for number in range(500)}},
        {f"a{number}": {"prompt": "x"} for number in range(100)},
    )
    world.project({"permission": rules, "agent": agents, "mode": agents})
    assert len(world.load().config.agent) == 100
    world.project({"permission": rules, "agent": agents, "mode": {f"m{name}": mode for name, mode in agents.items()}})
    with pytest.raises(ServiceError, match="its agents as many rules"):
        world.load()


def test_a_project_has_not_any_number_of_mcp_servers(world: Any) -> None:
    """400 programs, started at once, held everybody up for 12 seconds, and took the descriptors that connections need."""
    servers = {str(number): {"type": "local", "command": ["true"]} for number in range(101)}
    world.project({"mcp": servers})
    with pytest.raises(ServiceError, match="mcp has more than 100 servers"):
        world.load()
    world.project({"mcp": dict(list(servers.items())[1:])})
    assert len(world.load().config.mcp) == 100


@pytest.mark.parametrize("kind", FRONTMATTERS)
@pytest.mark.parametrize("place", ["agent/x.md", "command/x.md", "skill/x/SKILL.md"])
def test_a_frontmatter_takes_neither_long_nor_much_memory_and_is_named(world: Any, kind: str, place: str) -> None:
    path = world.write(world.directory / ".opencode" / place, f"---\n{FRONTMATTERS[kind]}\n---\nbody")
    began = time.thread_time()
    loaded = world.load()
    assert len(loaded.config.model_dump_json()) < MEGABYTE
    assert time.thread_time() - began < MAX_SECONDS
    assert kind == "spaces" or str(path) in named(loaded)


def test_all_files_of_a_project_are_bounded(world: Any) -> None:
    for number in range(20):
        world.write(world.directory / f".opencode/command/{number}.md", "x" * MEGABYTE)
    loaded = world.load()
    assert 0 < len([name for name in loaded.config.command if name.isdigit()]) < 20 and named(loaded) != []


@pytest.mark.parametrize(("key", "variables"), [("lsp", "env"), ("formatter", "environment")])
def test_a_distrusted_project_gets_nothing_of_the_operators_programs(world: Any, key: str, variables: str) -> None:
    """No program of the project's is given the operator's variables, nor a program of the operator's the project's."""
    kept = {"command": ["theirs"], variables: {"SECRET": SECRET}}
    world.user({key: {"a": kept, "b": kept, "c": kept}})
    own = {"a": {"command": ["own"]}, "c": {"disabled": True, "command": ["x"], variables: {"PATH": "evil"}}}
    changed = {"b": {"disabled": True, "command": ["theirs"]}, "d": {"command": ["own"]}}
    world.project({key: {**own, **changed}})
    loaded = getattr(world.distrusted().config, key)
    assert all(SECRET not in str(entry.layer()) for name, entry in loaded.items())
    world.project({key: {"a": {"disabled": True}} if key == "lsp" else {"a": {variables: {"X": "1"}}}})
    loaded = getattr(world.distrusted().config, key)
    assert loaded["a"].command == ["theirs"] and getattr(loaded["a"], variables) == {"SECRET": SECRET}
    world.project({key: False})
    assert getattr(world.distrusted().config, key) is False
