"""The TypeScript that docs/frontends.md shows: types are written from openapi.yaml, the program fits them and runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from doc_snippets import SHOWN_BASE, blocks
from running_server import ROOT, RunningServer

SHOWN = {block.kind: block.code for block in blocks((ROOT / "docs" / "frontends.md").read_text()) if block.mode == "types"}
COMPILE = ["tsc", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,dom", "--types", "node", "client.ts"]


@pytest.fixture(scope="module")
def project(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project, with the types that the page's command writes."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "node_modules").symlink_to(node_modules / "node_modules")
    (directory / "package.json").write_text('{"type": "module"}')
    shutil.copy(ROOT / "openapi.yaml", directory)
    written = run(directory, "sh", "-c", SHOWN["sh types"])
    assert written.returncode == 0, written.stdout + written.stderr
    return directory


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = f"{directory / 'node_modules' / '.bin'}:{os.environ['PATH']}"
    return subprocess.run(command, cwd=directory, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300)


def test_the_program_fits_the_types_and_prints_what_is_shown(project: Path, server: RunningServer) -> None:
    (project / "client.ts").write_text(SHOWN["ts types"].replace(SHOWN_BASE, server.base))
    compiled = run(project, *COMPILE)
    assert compiled.returncode == 0, compiled.stdout
    printed = run(project, "node", "client.js")
    assert printed.stdout.strip() == SHOWN["text types"].strip(), printed.stderr


def test_a_program_that_does_not_fit_is_refused(project: Path) -> None:
    (project / "client.ts").write_text(SHOWN["ts types"].replace("info.title", "info.titel"))
    assert "Property 'titel' does not exist" in run(project, *COMPILE).stdout
