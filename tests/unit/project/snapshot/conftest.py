from pathlib import Path

import pytest
from snapshot_project import Project

from app.project.snapshot.snapshots import Snapshots


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def snapshots(project: Project) -> Snapshots:
    return project.snapshots()
