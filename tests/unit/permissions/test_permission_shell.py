import subprocess
import sys
import time
from pathlib import Path

import pytest
from obstacles import endless_links, unresolved

from app.permissions.paths import Boundary
from app.permissions.shell.analysis import ShellAnalysis, always_patterns, analyse
from app.permissions.spellings import always_pattern, spellings
from app.permissions.wildcard import matches


def read(command: str, project: Path) -> ShellAnalysis:
    return analyse(command, project, Boundary(project, project), {"HOME": "/home/someone"})


@pytest.mark.parametrize(
    ("command", "patterns"),
    [
        ("cd src", []),
        ("ls; ls", ["ls"]),
        ("A=1 echo 'a  b' \"$C\" 5 > x 2>&1", ["echo 'a  b' \"$C\" 5"]),
        ("> x", ["> x"]),
        ("sudo -u me env X=1 rm y", ["sudo -u me env X=1 rm y", "env X=1 rm y", "rm y"]),
        ("bash -c 'ls; rm y'", ["bash -c 'ls; rm y'", "ls", "rm y"]),
    ],
)
def test_a_command_is_asked_for_as_it_was_written(tmp_path: Path, command: str, patterns: list[str]) -> None:
    """Quotes stay, assignments and redirections do not; `cd` alone has no pattern, a wrapped command one of its own."""
    assert read(command, tmp_path).patterns == patterns


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
    assert read("env > x rm y", tmp_path).unparsable, "words after a redirection are not understood"


def test_a_path_outside_is_named_by_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hosts")
    (tmp_path / "project").mkdir()
    within, below = Boundary(tmp_path, tmp_path), Boundary(tmp_path / "project", tmp_path / "project")
    for command in ("cat /etc/hosts", "cat link"):
        assert list(read(command, tmp_path).outside) == [str(Path("/etc/hosts").resolve())]
    assert analyse("ls", tmp_path, below, {}).outside == (str(tmp_path),), "where it starts, too"
    assert analyse("cat $HOME/x", tmp_path, within, {"HOME": str(tmp_path)}).outside == ()
    assert analyse("cat $HERE/x", tmp_path, within, {"HERE": "src"}).outside == ("$HERE/x",), "no other variable is known"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        *((words, f"{words} *") for words in ("git", "npm run test", "npm test")),
        *((f"{words} x", f"{words} *") for words in ("ls", "unknown", "git status", "git remote add", "docker compose up")),
        ("git -C x status", "git -C *"),
        ("aws s3 ls", "aws s3 ls *"),
        *((words, None) for words in ("git *", "r? x")),
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


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [(["/"], ["/"]), (["/not there"], ["/not there"]), (["/usr"], ["/usr", "/usr/*"]), (["$X/y", "/a/*/b", "/a/b?"], [])],
)
def test_always_allows_no_more_than_was_asked_for_and_seen(asked: list[str], allowed: list[str]) -> None:
    assert always_patterns(asked) == allowed


def test_spellings_put_options_in_any_order() -> None:
    assert {"rm -rf x", "rm -r -f x", "rm -f -r x", "rm -f x"} <= set(spellings(["/bin/rm", "x", "-fr"]))
    assert "git push --force origin" in spellings(["git", "-C", "a", "push", "origin", "-f"])
    many = spellings(["rm", "-r", "-f", *"xy" * 200, "z" * 10_000])
    assert any(text.startswith("rm -rf x y ") for text in many) and sum(map(len, many)) < 100_000, "what is behind is left out"


def test_ordinary_commands_are_read_at_once(tmp_path: Path) -> None:
    read("ls", tmp_path)
    for command in ("git status --short && echo hi | cat", "npm run test -- --watch=false 2>&1 | tail -20", "rm -rf build"):
        times = []
        for _ in range(20):
            started = time.thread_time()
            read(command, tmp_path)
            times.append(time.thread_time() - started)
        assert min(times) < 0.02, "twenty times what it takes"


@pytest.mark.parametrize(
    ("start", "piece", "times"),
    [
        ("(" * 10_000 + "rm x", ")", 10_000),
        *(("", piece, times) for piece, times in (("<", 60_000), ('"$(', 20_000), ("a;", 100_000), ("env ", 20_000))),
        *(("", "a=1;", 25_000), ("rm ", "a ", 60_000), ("rm ", "{", 100_000), ("cat ", "{a,b}", 5_000), ("cat ", "*/", 2_000)),
        ("cat " + "{" * 3_000 + "a," * 3_000 + "b /c", "d", 1),
        ("sed '" + "\n" * 40_000 + "' /", "x", 1),
        ("sed '" + "s\\a" * 40_000 + "' /", "x", 1),
        ("sed '" + "".join(f"s{chr(0x4E00 + at)}" for at in range(20_000)) + "' /", "x", 1),
        ("python -c '\"" + " " * 120_000 + "' /", "x", 1),
        ("x=\"'" + "\\`" * 60_000 + '"; cat /', "x", 1),
        ("echo ", "\0", 30_000),
        ("cat a@/", "a@/", 43_000),
        ("", '"<|?', 1_000),
        *(("ls; cd a", piece, 200) for piece in ("; cd a", "; ls x; cd a")),
        ("; ".join(f"ls x; cd a{at}" for at in range(14)), "", 1),
    ],
)
def test_hostile_commands_are_bounded(start: str, piece: str, times: int, tmp_path: Path) -> None:
    command = start + piece * times
    started = time.process_time()
    analysis = read(command, tmp_path)
    assert time.process_time() - started < 3
    assert analysis.unparsable or analysis.outside or "*" in command


def test_the_parser_is_loaded_when_first_needed() -> None:
    script = "import sys, app.permissions.shell.analysis; sys.exit('tree_sitter' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("directory", "worktree", "path", "is_inside"),
    [
        ("project/sub", "project", "@/project/sub/f", True),
        ("project/sub", "project", "@/project/other", True),
        ("project/sub", "project", "@/project", True),
        ("project/sub", "project", "@/projects", False),
        ("project/sub", "project", "@", False),
        ("project", "/", "@/project/f", True),
        ("project", "/", "/etc/passwd", False),
        ("project", "project", "a/../b", True),
        ("project", "project", "../b", False),
        ("project", "project", "out", False),
        ("project", "project", "out/new/file", False),
        ("project", "project", "gone", False),
        ("project", "project", "loop", True),
        ("project", "project", "endless", False),
        ("alias", "alias", "@/project/f", True),
        ("alias", "alias", "@/alias/f", True),
    ],
)
def test_inside_is_under_the_directory_or_the_worktree_wherever_links_lead(
    tmp_path: Path, directory: str, worktree: str, path: str, is_inside: bool
) -> None:
    """A worktree of slash opens nothing; relative paths start at the directory."""
    for name in ("project/sub", "outside"):
        (tmp_path / name).mkdir(parents=True)
    for link, target in {"out": "../outside", "gone": "../outside/nothing", "loop": "loop", "../alias": "project"}.items():
        (tmp_path / "project" / link).symlink_to(target)
    endless_links(tmp_path / "project" / "endless")
    boundary = Boundary(tmp_path / directory, tmp_path / worktree)
    assert boundary.contains(path.replace("@", str(tmp_path))) is is_inside
    assert boundary.is_root(str((tmp_path / directory).resolve())) and boundary.is_root(str(tmp_path / directory))
    assert boundary.resolve(tmp_path / "project" / "out" / "x") == str(tmp_path / "outside" / "x")
    with unresolved() as place:
        assert not boundary.contains(place)
