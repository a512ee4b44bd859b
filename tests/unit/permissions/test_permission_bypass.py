"""Attempts to get a command past the rules, and ordinary commands, which run unasked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.permissions.paths import Boundary
from app.permissions.rules import decide_permission
from app.permissions.shell.analysis import analyse
from app.schema.permission import Action, Rule, Ruleset


def _rules(**patterns: dict[str, Action]) -> Ruleset:
    listed = [
        Rule(permission=permission, pattern=pattern, action=action)
        for permission, rules in patterns.items()
        for pattern, action in rules.items()
    ]
    return [Rule(permission="external_directory", pattern="*", action="ask"), *listed]


RULESETS: dict[str, Ruleset] = {
    "open": _rules(bash={"*": "allow"}),
    "no_rm": _rules(bash={"*": "allow", "rm *": "deny"}),
    "ask_rm": _rules(bash={"*": "allow", "rm *": "ask"}),
    "no_force": _rules(bash={"*": "allow", "rm -rf *": "deny", "git push*": "ask", "git push --force*": "deny"}),
    "status_only": _rules(bash={"*": "ask", "git status*": "allow", "echo *": "allow", "cat *": "allow", "ls *": "allow"}),
    "wrappers": _rules(
        bash={"*": "ask", "env *": "allow", "bash *": "allow", "xargs *": "allow", "find *": "allow", "sudo *": "allow"}
    ),
    "locked": _rules(bash={"*": "deny", "./gradlew *": "allow", "git *": "allow", "uv run *": "allow"}),
}

OUT = "@OUT@"
SIGNS = str.maketrans({"⏎": "\n", "⇥": "\t", "ⓥ": "\v", "ⓕ": "\f", "␍": "\r", "␀": "\0", "␦": "\udcff", "␠": " "})


def corpus() -> Iterator[tuple[str, str, str]]:
    """Command, ruleset and decision."""
    for line in Path(__file__).with_name("bypass_corpus.txt").read_text().splitlines():
        if not line.startswith("#"):
            rules, expected, command = line.split(" ", 2)
            yield command.translate(SIGNS), rules, expected


CORPUS = list(corpus())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("bypass")
    project, outside = base / "project", base / "outside"
    (project / "src" / "deep").mkdir(parents=True)
    outside.mkdir()
    (base / "home").mkdir()
    for file in (project / "f", project / "a.py", project / "src" / "a.py", outside / "secret"):
        file.touch()
    links = {
        "link_file": outside / "secret",
        "link_dir": outside,
        "link_inside": Path("src"),
        "link_dangling": outside / "not there",
        "link_chain": Path("link_file"),
        "src/up": Path(".."),
        "src/link.py": outside / "secret",
        "src/link": outside / "secret",
    }
    for name, target in links.items():
        (project / name).symlink_to(target)
    (outside / "link_to_project").symlink_to(project)
    return project


def judge(command: str, project: Path, rules: Ruleset) -> str:
    environment = {"HOME": str(project.parent / "home")}
    analysis = analyse(command, project, Boundary(project, project), environment)
    outside = decide_permission("external_directory", analysis.outside, rules, [])
    decisions = {decide_permission("bash", analysis.subjects, rules, []), outside}
    return next(action for action in ("deny", "ask", "allow") if action in decisions)


@pytest.mark.parametrize("rules", RULESETS)
def test_commands_are_decided(rules: str, project: Path) -> None:
    outside = str(project.parent / "outside")
    attempts = {command: expected for command, ruleset, expected in CORPUS if ruleset == rules}
    decided = {command: judge(command.replace(OUT, outside), project, RULESETS[rules]) for command in attempts}
    assert attempts and decided == attempts


def test_ordinary_commands_run_unasked(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    for file in ("f", "a.py", "src/a.py"):
        (tmp_path / file).touch()
    commands = Path(__file__).with_name("ordinary_commands.txt").read_text().splitlines()
    asked = [command for command in commands if judge(command, tmp_path, RULESETS["no_rm"]) != "allow"]
    assert len(commands) > 150 and asked == []


def test_there_are_enough_attempts() -> None:
    assert len(CORPUS) == len(set(CORPUS))
    assert len([entry for entry in CORPUS if entry[2] != "allow"]) >= 300
