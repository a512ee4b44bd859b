import subprocess
from pathlib import Path

import pytest
from search_places import search_place

from app.workspace.browse.search import FileSearch, best, list_names

NAMES = ["src/", "src/tool/", "README.md", "src/main.py", "src/tool/ripgrep.py", "src/tool/strip.py", ".github/ci.yml"]


def write(path: Path, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    write(tmp_path / ".gitignore", "node_modules/\n")
    write(tmp_path / "node_modules/lib.js")
    write(tmp_path / "src/deep/er/a.py")
    write(tmp_path / "b.txt")
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


def test_letters_may_be_scattered_but_keep_their_order() -> None:
    assert best("srmn", NAMES, 10) == ["src/main.py"]
    assert best("nmrs", NAMES, 10) == []


def test_no_more_than_the_limit() -> None:
    assert best("s", NAMES, 2) == ["src/", "src/tool/"]


def test_hidden_names_are_last_unless_asked_for() -> None:
    names = [".env/", "environment.py"]
    assert best("env", names, 10) == ["environment.py", ".env/"]
    assert best(".env", names, 10) == [".env/"]
    assert best("", names, 10) == ["environment.py", ".env/"]


async def test_listed_are_files_that_are_not_ignored_and_the_folders_above_them(project: Path) -> None:
    names = await list_names(search_place(project))
    assert names.files == [".gitignore", "b.txt", "src/deep/er/a.py"]
    assert names.directories == ["src/", "src/deep/", "src/deep/er/"]


async def test_symbolic_links_are_not_followed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = write(tmp_path_factory.mktemp("outside") / "secret.txt")
    (project / "link").symlink_to(outside.parent)
    (project / "secret.txt").symlink_to(outside)
    assert await FileSearch().find(search_place(project), "secret", "all", 10) == []


async def test_a_listing_is_used_again_while_it_is_fresh(project: Path) -> None:
    search = FileSearch(fresh_seconds=60)
    assert await search.find(search_place(project), "new", "file", 10) == []
    write(project / "new.txt")
    assert await search.find(search_place(project), "new", "file", 10) == []
    assert await FileSearch().find(search_place(project), "new", "file", 10) == ["new.txt"]


async def test_a_listing_is_forgotten_when_it_is_old(project: Path) -> None:
    search = FileSearch(fresh_seconds=0)
    await search.find(search_place(project), "b", "file", 10)
    write(project / "new.txt")
    await search.find(search_place(project), "b", "file", 10)
    assert await search.find(search_place(project), "new", "file", 10) == ["new.txt"]
