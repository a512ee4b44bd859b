import subprocess
from pathlib import Path

import pytest
from git_files import put_file
from search_places import search_place

from app.workspace.browse.content import parse_hunks
from app.workspace.browse.search import FileSearch, best

HIDDEN = [".env/", "environment.py"]
NAMES = ["src/", "src/tool/", "README.md", "src/main.py", "src/tool/ripgrep.py", "src/tool/strip.py", ".github/ci.yml"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    put_file(tmp_path / ".gitignore", "node_modules/\n")
    put_file(tmp_path / "node_modules/lib.js")
    put_file(tmp_path / "src/deep/er/a.py")
    put_file(tmp_path / "b.txt")
    return tmp_path


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("readme.md", "README.md"),
        ("rip", "src/tool/ripgrep.py"),
        ("src/", "src/"),
        ("src", "src/"),
        ("tool/st", "src/tool/strip.py"),
        ("stgrep", "src/tool/ripgrep.py"),
        ("tool grep", "src/tool/ripgrep.py"),
        ("ci", ".github/ci.yml"),
    ],
)
def test_the_best_match_is_first(query: str, first: str) -> None:
    assert best(query, NAMES, 10)[0] == first


@pytest.mark.parametrize(
    ("query", "names", "limit", "found"),
    [
        pytest.param("srmn", NAMES, 10, ["src/main.py"], id="scattered letters"),
        pytest.param("nmrs", NAMES, 10, [], id="letters in another order"),
        pytest.param("s", NAMES, 2, ["src/", "src/tool/"], id="no more than the limit"),
        pytest.param("env", HIDDEN, 10, ["environment.py", ".env/"], id="hidden names last"),
        pytest.param(".env", HIDDEN, 10, [".env/"], id="unless asked for"),
        pytest.param("", HIDDEN, 10, ["environment.py", ".env/"], id="nothing asked for"),
    ],
)
def test_what_matches_is_found(query: str, names: list[str], limit: int, found: list[str]) -> None:
    assert best(query, names, limit) == found


async def test_a_listing_is_used_again_while_it_is_fresh(project: Path) -> None:
    fresh, old = FileSearch(fresh_seconds=60), FileSearch(fresh_seconds=0)
    for search in (fresh, old):
        assert await search.find(search_place(project), "new", "file", 10) == []
    put_file(project / "new.txt")
    await old.find(search_place(project), "b", "file", 10)
    assert await fresh.find(search_place(project), "new", "file", 10) == []
    assert await old.find(search_place(project), "new", "file", 10) == ["new.txt"]
    assert await FileSearch().find(search_place(project), "new", "file", 10) == ["new.txt"]


def test_counts_of_one_and_missing_newlines_in_a_hunk() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1 @@ def f():\n+@@ -1 +1 @@\n\\ No newline at end of file\n"
    (hunk,) = parse_hunks(diff)
    assert (hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines) == (0, 0, 1, 1)
    assert hunk.lines == ["+@@ -1 +1 @@", "\\ No newline at end of file"]
