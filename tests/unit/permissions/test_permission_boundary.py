from pathlib import Path

from app.permissions.paths import Boundary


def test_inside_is_under_the_directory_or_the_worktree(tmp_path: Path) -> None:
    boundary = Boundary(tmp_path / "repo" / "sub", tmp_path / "repo")
    assert boundary.contains(tmp_path / "repo" / "sub" / "f")
    assert boundary.contains(tmp_path / "repo" / "other")
    assert boundary.contains(tmp_path / "repo")
    assert not boundary.contains(tmp_path / "repository")
    assert not boundary.contains(tmp_path)


def test_a_worktree_of_slash_opens_nothing(tmp_path: Path) -> None:
    boundary = Boundary(tmp_path / "here", Path("/"))
    assert boundary.contains(tmp_path / "here" / "f")
    assert not boundary.contains("/etc/passwd")


def test_relative_paths_start_at_the_directory(tmp_path: Path) -> None:
    boundary = Boundary(tmp_path, tmp_path)
    assert boundary.contains("a/../b")
    assert not boundary.contains("../b")


def test_links_are_followed_even_where_the_end_does_not_exist(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    (project / "out").symlink_to(outside)
    (project / "gone").symlink_to(outside / "nothing")
    (project / "loop").symlink_to("loop")
    boundary = Boundary(project, project)
    assert not boundary.contains(project / "out")
    assert not boundary.contains(project / "out" / "new" / "file")
    assert not boundary.contains(project / "gone")
    assert boundary.contains(project / "loop")
    assert boundary.resolve("out/x") == str(outside / "x")


def test_a_project_reached_by_a_link_is_the_project(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    boundary = Boundary(tmp_path / "link", tmp_path / "link")
    assert boundary.contains(tmp_path / "real" / "f")
    assert boundary.contains(tmp_path / "link" / "f")
    assert boundary.is_root(str(tmp_path / "link"))
    assert boundary.is_root(str(tmp_path / "real"))
