import os
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from exchanging import repeating
from git_files import put_file
from obstacles import LINKS, SECRET, SPECIAL, put

from app.util import project_files
from app.util.project_files import (
    MAX_BYTES,
    BoundedReader,
    FileRefused,
    ProjectBounds,
    anywhere,
    list_folder,
    matching_paths,
    read_bytes,
    resolved,
)

FLIPS = 1500


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "theirs" / "secret"
    put_file(path, SECRET)
    return path


@pytest.fixture
def bounds(project: Path) -> ProjectBounds:
    return ProjectBounds.of(project, project)


@contextmanager
def flipping(name: Path, *targets: Path) -> Iterator[None]:
    """`name` is a link to each of the targets in turn, in the end to the last one."""

    def flip() -> None:
        for target in targets:
            new = name.with_name(f"{name.name}.new")
            new.symlink_to(target)
            new.replace(name)

    with repeating(flip):
        yield


def test_an_ordinary_file_is_read_and_links_within_the_project_are_followed(project: Path, bounds: ProjectBounds) -> None:
    put_file(project / "docs" / "a", b"x" * MAX_BYTES)
    (project / "a").symlink_to("docs/a")
    (project / "more").symlink_to(project / "docs")
    for name in ("docs/a", "a", "more/a"):
        assert read_bytes(project / name, bounds.hold) == b"x" * MAX_BYTES
    assert [entry.name for entry in list_folder(project / "more", bounds.hold)] == ["a"]


def test_what_is_not_there_is_none(project: Path, bounds: ProjectBounds) -> None:
    (project / "loop").symlink_to("loop")
    (project / "gone").symlink_to("nothing")
    (project / "file").touch()
    for name in ("nothing", "loop", "gone", "file/x", "x" * 300):
        assert read_bytes(project / name, bounds.hold) is None
        assert list_folder(project / name, bounds.hold) == []


@pytest.mark.parametrize("kind", SPECIAL)
def test_also_of_the_user_s_own_only_ordinary_files_of_a_bounded_size_are_read(
    project: Path, secret: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    put(kind, project / "file", secret)
    put("link", project / "mine", secret)
    assert BoundedReader(anywhere).text(project / "mine") == SECRET, "they may be links to anywhere"
    tracemalloc.start()
    with pytest.raises(FileRefused):
        read_bytes(project / "file", anywhere)
    assert tracemalloc.get_traced_memory()[1] < 4 * MAX_BYTES
    tracemalloc.stop()


def test_a_file_without_a_size_is_read_as_far_as_the_limit() -> None:
    assert read_bytes("/proc/self/status", anywhere)
    with pytest.raises(FileRefused):
        read_bytes("/proc/self/status", anywhere, limit=10)


def test_a_folder_elsewhere_is_not_listed_by_any_link(project: Path, secret: Path, bounds: ProjectBounds) -> None:
    for kind in LINKS:
        put(kind, project / kind / "folder", secret.parent)
        with pytest.raises(FileRefused):
            list_folder(project / kind / "folder", bounds.hold)
        with pytest.raises(FileRefused):
            read_bytes(project / kind / "folder" / "secret", bounds.hold)


def test_a_folder_with_too_many_entries_is_refused(project: Path, bounds: ProjectBounds) -> None:
    for number in range(20):
        (project / str(number)).touch()
    assert len(list_folder(project, bounds.hold, 20)) == 20
    with pytest.raises(FileRefused):
        list_folder(project, bounds.hold, 19)
    reader = BoundedReader(bounds.hold, entries_left=50)
    assert [len(reader.entries(project)) for _ in range(4)] == [20, 20, 0, 0]


@pytest.mark.parametrize("part", ["a", "*", "**"])
def test_a_pattern_with_too_many_parts_is_refused(project: Path, bounds: ProjectBounds, part: str) -> None:
    reader = BoundedReader(bounds.hold)
    assert matching_paths(reader, str(project), f"{part}/" * 1000) == []
    assert "more than 50 parts" in str(*reader.refused)


def test_a_link_or_folder_that_changes_all_the_time_shows_nothing(project: Path, secret: Path, bounds: ProjectBounds) -> None:
    honest = project / "honest"
    put_file(honest / "secret", "honest")

    def write_into(folder: Path) -> None:
        with suppress(FileRefused), project_files.open_folder(folder, bounds.hold) as opened:
            os.close(os.open("written", os.O_CREAT | os.O_WRONLY, dir_fd=opened))

    for target, there, name in ((secret, honest / "secret", "a"), (secret.parent, honest, "b/secret")):
        with flipping(project / name[0], target, there):
            read = {BoundedReader(bounds.hold).text(project / name) for _ in range(FLIPS)}
            for _ in range(FLIPS // 10):
                write_into(project / name[0])
        assert read <= {None, "honest"} and BoundedReader(bounds.hold).text(project / name) == "honest"
    assert [path.name for path in secret.parent.iterdir()] == ["secret"]
    write_into(project / "b")
    assert (honest / "written").exists()


def test_the_bounds_are_those_of_when_the_directory_was_opened(project: Path, secret: Path, bounds: ProjectBounds) -> None:
    project.rename(project.with_name("moved"))
    project.symlink_to(secret.parent)
    assert BoundedReader(bounds.hold).text(project / "secret") is None


def test_directories_above_hold_their_own_configuration_alone(tmp_path: Path) -> None:
    bounds = ProjectBounds.of(tmp_path / "a" / "b", "/")
    assert bounds.hold_configuration(f"{tmp_path}/a/opencode.json")
    assert bounds.hold_configuration(f"{tmp_path}/.opencode/agent/x.md")
    assert bounds.hold_configuration("/.claude/skills/x/SKILL.md")
    for elsewhere in (f"{tmp_path}/a/secret", f"{tmp_path}/c/.opencode/agent/x.md", "/etc/shadow", f"{tmp_path}/a/bb/x"):
        assert not bounds.hold_configuration(elsewhere)


def test_what_is_closed_is_closed_within_the_project_too(tmp_path: Path) -> None:
    pool, hugo = str(tmp_path), str(tmp_path / "hugo")
    shared = ProjectBounds(pool, "/", lambda: [hugo])
    assert shared.hold(f"{pool}/x") and not shared.hold(f"{hugo}/x")
    assert not shared.hold_configuration(f"{hugo}/.opencode/x.md")
    his_own = ProjectBounds(f"{hugo}/project", "/", lambda: [hugo])
    assert his_own.hold(f"{hugo}/project/x") and his_own.hold_configuration(f"{hugo}/opencode.json")
    assert not his_own.hold(f"{hugo}/x")


def test_a_path_that_is_too_long_is_not_resolved() -> None:
    """It would take minutes."""
    started = time.process_time()
    assert resolved("/" + "a/" * 150_000) == "" and resolved("/etc/../usr") == "/usr"
    assert time.process_time() - started < 2
