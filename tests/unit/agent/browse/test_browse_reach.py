"""What was checked is what is read, also when links change in between."""

import os
from pathlib import Path

import pytest

from app.agent.browse.content import read
from app.agent.browse.reach import FileForbidden, Reach, path_of
from app.workspace.place import Place


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path.resolve() / "project"
    (directory / "sub").mkdir(parents=True)
    (directory / "sub/a.txt").write_text("inside\n")
    (directory.parent / "secret.txt").write_text("secret\n")
    return directory


def reach_of(directory: Path, worktree: str = "/", allowed: Path | None = None) -> Reach:
    place = Place(str(directory), "global", worktree, is_git=False)
    return Reach(place, lambda real: allowed is None or Path(real).is_relative_to(allowed))


@pytest.mark.parametrize("name", ["../secret.txt", "sub/../../secret.txt", "/etc/passwd", "link", "folder/secret.txt", "../none"])
def test_nothing_outside_is_read(project: Path, name: str) -> None:
    (project / "link").symlink_to(project.parent / "secret.txt")
    (project / "folder").symlink_to(project.parent)
    with pytest.raises(FileForbidden):
        read(reach_of(project), name)


@pytest.mark.parametrize("name", ["sub/a.txt", "./sub/../sub/a.txt", "link", "folder/a.txt"])
def test_links_within_the_project_are_followed(project: Path, name: str) -> None:
    (project / "link").symlink_to("sub/a.txt")
    (project / "folder").symlink_to(project / "sub")
    assert read(reach_of(project), name) == b"inside\n"
    assert read(reach_of(project), str(project / name)) == b"inside\n"


def test_a_worktree_that_the_server_may_not_work_in_stays_closed(project: Path) -> None:
    below = project / "sub"
    assert read(reach_of(below, str(project.parent)), "../../secret.txt") == b"secret\n"
    with pytest.raises(FileForbidden):
        read(reach_of(below, str(project.parent), allowed=project), "../../secret.txt")


class Swapped(Reach):
    """Right after the path was checked, somebody puts a link in the place of a folder on it."""

    def real(self, name: str) -> str:
        real = super().real(name)
        folder = Path(real).parent
        folder.rename(folder.with_name("moved"))
        folder.symlink_to(folder.parent.parent)
        return real


def test_a_link_put_there_after_the_check_leads_nowhere(project: Path) -> None:
    (project / "sub/secret.txt").write_text("harmless\n")
    swapped = Swapped(Place(str(project), "global", "/", is_git=False), lambda real: True)
    with pytest.raises(FileForbidden):
        read(swapped, "sub/secret.txt")


def test_a_descriptor_tells_where_its_file_is(project: Path) -> None:
    (project / "link").symlink_to("sub/a.txt")
    descriptor = os.open(project / "link", os.O_RDONLY)
    assert path_of(descriptor) == str(project / "sub/a.txt")
    os.close(descriptor)


@pytest.mark.parametrize("name", ["none.txt", "sub", "sub/a.txt/x", "x" * 300, "pipe", "loop"])
def test_what_is_no_file_is_absent(project: Path, name: str) -> None:
    os.mkfifo(project / "pipe")
    (project / "loop").symlink_to("loop")
    assert read(reach_of(project), name) is None
