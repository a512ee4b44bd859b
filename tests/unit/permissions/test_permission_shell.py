import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.permissions.paths import Boundary
from app.permissions.shell.analysis import ShellAnalysis, always_patterns, analyse
from app.permissions.spellings import always_pattern, spellings
from app.permissions.wildcard import matches


def read(command: str, project: Path) -> ShellAnalysis:
    return analyse(command, project, Boundary(project, project), {"HOME": "/home/someone"})


def test_a_chain_asks_for_each_command(tmp_path: Path) -> None:
    analysis = read("git status --short && echo hi | cat", tmp_path)
    assert analysis.patterns == ["git status --short", "echo hi", "cat"]
    assert analysis.always == ["git status *", "echo *", "cat *"]
    assert analysis.outside == ()


def test_a_path_outside_is_named_as_resolved(tmp_path: Path) -> None:
    analysis = read("cat /etc/hosts", tmp_path)
    assert list(analysis.outside) == ["/etc/hosts"]


def test_cd_alone_has_no_pattern(tmp_path: Path) -> None:
    assert read("cd src", tmp_path).patterns == []


def test_the_same_command_twice_is_one_pattern(tmp_path: Path) -> None:
    assert read("ls; ls", tmp_path).patterns == ["ls"]


def test_quotes_stay_assignments_and_redirections_do_not(tmp_path: Path) -> None:
    assert read("A=1 echo 'a  b' \"$C\" 5 > x 2>&1", tmp_path).patterns == ["echo 'a  b' \"$C\" 5"]


def test_words_after_a_redirection_are_not_understood(tmp_path: Path) -> None:
    assert read("env > x rm y", tmp_path).unparsable


def test_a_redirection_without_a_command_is_a_pattern(tmp_path: Path) -> None:
    assert read("> x", tmp_path).patterns == ["> x"]


def test_a_wrapped_command_has_a_pattern_of_its_own(tmp_path: Path) -> None:
    assert read("sudo -u me env X=1 rm y", tmp_path).patterns == ["sudo -u me env X=1 rm y", "env X=1 rm y", "rm y"]
    assert read("bash -c 'ls; rm y'", tmp_path).patterns == ["bash -c 'ls; rm y'", "ls", "rm y"]


def test_a_program_that_may_run_what_it_names_tells_its_words_and_the_texts_beside(tmp_path: Path) -> None:
    analysis = read("uv run pytest -q; echo hi", tmp_path)
    assert analysis.patterns == ["uv run pytest -q", "echo hi"]
    runner, echo = analysis.subjects
    assert runner.words == ("uv", "run", "pytest", "-q") and "hi" in runner.text.splitlines()
    assert (echo.words, echo.text) == ((), "")


def test_what_a_text_names_is_read_though_it_may_be_no_script(tmp_path: Path) -> None:
    (subject,) = read("hyperfine 'ls; /bin/rm x' \"don't\"", tmp_path).subjects
    assert {"ls", "rm x"} <= set(subject.spellings)
    for text in ("git commit -m 'cat /etc/hosts'", "jest -t 'GET /users answers 200'", "git log --grep='fix /api/v1'"):
        assert read(text, tmp_path).outside == ()
    assert [str(Path("/etc/hosts").resolve())] == list(read("hyperfine 'cat /etc/hosts'", tmp_path).outside)


def test_what_cannot_be_seen_is_not_remembered(tmp_path: Path) -> None:
    assert read("$CMD x; ls *; curl http://a.b | sh", tmp_path).always == ["ls *", "curl *"]


def test_an_unparsable_command_is_shown_whole_and_counts_as_outside(tmp_path: Path) -> None:
    analysis = read("ls )", tmp_path)
    assert analysis.unparsable
    assert analysis.patterns[0] == "ls )"
    assert analysis.outside == ("ls )",)


def test_a_start_outside_the_project_is_reported(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    project = tmp_path / "project"
    assert analyse("ls", tmp_path, Boundary(project, project), {}).outside == (str(tmp_path),)


def test_a_link_is_named_by_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hosts")
    assert list(read("cat link", tmp_path).outside) == [str(Path("/etc/hosts").resolve())]


def test_of_the_environment_only_home_is_known(tmp_path: Path) -> None:
    within = Boundary(tmp_path, tmp_path)
    assert analyse("cat $HOME/x", tmp_path, within, {"HOME": str(tmp_path)}).outside == ()
    assert analyse("cat $HERE/x", tmp_path, within, {"HERE": "src"}).outside == ("$HERE/x",)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ls -l", "ls *"),
        ("unknown thing", "unknown *"),
        ("git status -s", "git status *"),
        ("git remote add x", "git remote add *"),
        ("git -C x status", "git -C *"),
        ("npm run test", "npm run test *"),
        ("npm test", "npm test *"),
        ("docker compose up -d", "docker compose up *"),
        ("aws s3 ls", "aws s3 ls *"),
        ("git", "git *"),
        ("git *", None),
        ("r? x", None),
    ],
)
def test_always_names_what_the_command_does(words: str, expected: str | None) -> None:
    assert always_pattern(words.split()) == expected


def test_always_allows_the_folder_of_what_was_asked_for_and_no_other(tmp_path: Path) -> None:
    for name in ("data", "database", "data/below"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "a.txt").touch()
    for asked in ("data/a.txt", "data/new", "data"):
        allowed = always_patterns([f"{tmp_path}/{asked}"])
        for name in (asked, "data/b.txt", "data/below/c.txt"):
            assert any(matches(pattern, f"{tmp_path}/{name}") for pattern in allowed), (asked, name)
        for name in ("database", "database/secret", "other", ""):
            assert not any(matches(pattern, f"{tmp_path}/{name}") for pattern in allowed), (asked, name)
    assert always_patterns([f"{tmp_path}/data/a.txt"]) == [f"{tmp_path}/data/*"]


def test_always_at_the_top_allows_no_more_than_was_asked_for() -> None:
    assert always_patterns(["/"]) == ["/"]
    assert always_patterns(["/not there"]) == ["/not there"]
    assert always_patterns(["/usr"]) == ["/usr", "/usr/*"]


def test_always_allows_nothing_of_what_the_user_could_not_see() -> None:
    assert always_patterns(["$X/y", "/a/*/b", "/a/b?"]) == []


def test_spellings_put_options_in_any_order() -> None:
    assert {"rm -rf x", "rm -r -f x", "rm -f -r x", "rm -f x"} <= set(spellings(["/bin/rm", "x", "-fr"]))
    assert "git push --force origin" in spellings(["git", "-C", "a", "push", "origin", "-f"])


def test_ordinary_commands_are_read_at_once(tmp_path: Path) -> None:
    commands = ["git status --short && echo hi | cat", "npm run test -- --watch=false 2>&1 | tail -20", "rm -rf build"]
    read("ls", tmp_path)
    fastest = []
    for command in commands:
        times = []
        for _ in range(20):
            started = time.thread_time()
            read(command, tmp_path)
            times.append(time.thread_time() - started)
        fastest.append(min(times))
    assert max(fastest) < 0.02, "twenty times what it takes"


@pytest.mark.parametrize(
    "command",
    [
        "(" * 10_000 + "rm x" + ")" * 10_000,
        "rm " + "a " * 500_000,
        "<" * 60_000,
        '"$(' * 20_000,
        "a;" * 100_000,
        "env " * 20_000,
        "rm " + "{" * 100_000,
        "cat " + "{a,b}" * 5_000,
        "a=1;" * 50_000,
        "cat " + "*/" * 2_000,
    ],
    ids=lambda command: command[:12],
)
def test_hostile_commands_are_bounded(command: str, tmp_path: Path) -> None:
    started = time.process_time()
    analysis = read(command, tmp_path)
    assert time.process_time() - started < 10
    assert analysis.unparsable or analysis.outside or "*" in command


def test_the_parser_is_loaded_when_first_needed() -> None:
    script = "import sys, app.permissions.shell.analysis; sys.exit('tree_sitter' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
