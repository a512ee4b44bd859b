"""What was checked is what is read, also when links change in between."""

import os
import time
from pathlib import Path

import pytest
from exchanging import exchanges, exchanging
from git_files import git, put_file, server_git

from app.project.location import Location
from app.util.project_files import HeldDirectory, path_of
from app.workspace.browse.allowed_paths import AllowedPaths, FileForbidden
from app.workspace.browse.content import list_directory, read, view_file


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path.resolve() / "project"
    (directory / "sub").mkdir(parents=True)
    (directory / "sub/a.txt").write_text("inside\n")
    (directory.parent / "secret.txt").write_text("secret\n")
    return directory


def paths_in(directory: Path, worktree: str = "/", allowed: Path | None = None) -> AllowedPaths:
    location = Location(str(directory), "global", worktree, is_git=False)
    top = directory if worktree == "/" else Path(worktree)
    held = [HeldDirectory(top), HeldDirectory(directory)]
    return AllowedPaths(location, held, lambda real: allowed is None or Path(real).is_relative_to(allowed))


def test_a_worktree_that_the_server_may_not_work_in_stays_closed(project: Path) -> None:
    below = project / "sub"
    assert read(paths_in(below, str(project.parent)), "../../secret.txt") == b"secret\n"
    with pytest.raises(FileForbidden):
        read(paths_in(below, str(project.parent), allowed=project), "../../secret.txt")


class Swapped(AllowedPaths):
    """Right after the path was checked, somebody puts a link in the place of a folder on it."""

    def real(self, name: str) -> str:
        real = super().real(name)
        folder = Path(real).parent
        folder.rename(folder.with_name("moved"))
        folder.symlink_to(folder.parent.parent)
        return real


def test_a_link_put_there_after_the_check_leads_nowhere(project: Path) -> None:
    (project / "sub/secret.txt").write_text("harmless\n")
    swapped = Swapped(Location(str(project), "global", "/", is_git=False), [HeldDirectory(project)], lambda real: True)
    with pytest.raises(FileForbidden):
        read(swapped, "sub/secret.txt")


@exchanges
async def test_a_folder_that_is_swapped_all_the_time_never_shows_what_is_outside(project: Path) -> None:
    outside = project.parent / "outside"
    put_file(outside / "a.txt", "secret\n")
    (outside / "secret.txt").touch()
    seen: set[str] = set()
    looks, deadline = 0, time.monotonic() + 60
    with exchanging(project / "sub", outside, pause=0):
        while (looks < 300 or not {"inside\n", "refused"} <= seen) and time.monotonic() < deadline:
            looks += 1
            try:
                seen.add((read(paths_in(project), "sub/a.txt") or b"").decode())
                seen |= {node.name for node in await list_directory(paths_in(project), "sub")}
            except FileForbidden:
                seen.add("refused")
    assert {"inside\n", "refused"} <= seen <= {"inside\n", "", "a.txt", "refused"}


class SwappedAfterReading(Swapped):
    """The same, once the text was read and before git is asked."""

    def __init__(self, location: Location) -> None:
        super().__init__(location, [HeldDirectory(Path(location.directory))], lambda real: True)
        self._looks = 0

    def real(self, name: str) -> str:
        self._looks += 1
        return super().real(name) if self._looks == 2 else AllowedPaths.real(self, name)


async def test_the_difference_is_of_the_file_that_was_read(tmp_path: Path) -> None:
    outside = tmp_path.resolve()
    project = outside / "project"
    (project / "sub").mkdir(parents=True)
    for top, name, text in ((outside, "a.txt", "secret"), (project, "sub/a.txt", "inside")):
        (top / name).write_text(f"{text}\n")
        git(top, "init", "-q")
        git(top, "add", name)
        git(top, "commit", "-qm", "first")
        (top / name).write_text(f"{text}, too\n")
    location = Location(str(project), "id", str(project), is_git=True, git=server_git(project))
    viewed = await view_file(SwappedAfterReading(location), "sub/a.txt")
    assert viewed.content == "inside, too"
    assert "secret" not in (viewed.diff or "")


def test_a_descriptor_tells_where_its_file_is(project: Path) -> None:
    (project / "link").symlink_to("sub/a.txt")
    descriptor = os.open(project / "link", os.O_RDONLY)
    assert path_of(descriptor) == str(project / "sub/a.txt")
    os.close(descriptor)
