from pathlib import Path

import pytest
from bypass_corpus import CORPUS, OUT, RULESETS

from app.permission.paths import Boundary
from app.permission.rules import Allowed, Forbidden, NeedsApproval, PermissionDecision, decide_permission
from app.permission.shell.analysis import analyse
from app.schema.permission import Ruleset

NAMES = {Allowed: "allow", NeedsApproval: "ask", Forbidden: "deny"}


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


def strictest(decisions: list[PermissionDecision]) -> str:
    names = {NAMES[type(decision)] for decision in decisions}
    return next(name for name in ("deny", "ask", "allow") if name in names)


def judge(command: str, project: Path, rules: Ruleset) -> str:
    environment = {"HOME": str(project.parent / "home")}
    analysis = analyse(command, project, Boundary(project, project), environment)
    outside = decide_permission("external_directory", analysis.outside, rules, [])
    return strictest([decide_permission("bash", analysis.subjects, rules, []), outside])


@pytest.mark.parametrize(
    ("command", "rules", "expected"), CORPUS, ids=[f"{at}-{entry[0][:40]!r}" for at, entry in enumerate(CORPUS)]
)
def test_a_command_is_decided(command: str, rules: str, expected: str, project: Path) -> None:
    assert judge(command.replace(OUT, str(project.parent / "outside")), project, RULESETS[rules]) == expected


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
