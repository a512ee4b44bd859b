from pathlib import Path

import pytest

from app.permissions.paths import Boundary


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
    boundary = Boundary(tmp_path / directory, tmp_path / worktree)
    assert boundary.contains(path.replace("@", str(tmp_path))) is is_inside
    assert boundary.is_root(str((tmp_path / directory).resolve())) and boundary.is_root(str(tmp_path / directory))
    assert boundary.resolve(tmp_path / "project" / "out" / "x") == str(tmp_path / "outside" / "x")
