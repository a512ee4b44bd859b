"""The client's wheel in an environment of its own, with what the wheel depends on: it imports, and the README's example runs."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from doc_snippets import SHOWN_BASE, blocks, matches
from packaging.requirements import Requirement
from running_server import ROOT, RunningServer

import app
import opensession_client

CLIENT = ROOT / "client"
README = (CLIENT / "README.md").read_text()
LIBRARIES = ("httpx", "httpx-sse", "pydantic")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, which keeps the checkout as it is."""
    source, built = tmp_path_factory.mktemp("source") / "client", tmp_path_factory.mktemp("dist")
    shutil.copytree(CLIENT, source, ignore=shutil.ignore_patterns("__pycache__", "dist"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stdout + result.stderr
    [file] = built.glob("*.whl")
    return file


def needed_by(names: Iterable[str]) -> set[str]:
    """These distributions and what they need in turn."""
    wanted = {name for each in names for name in direct_needs(each)} - set(names)
    return needed_by({*names, *wanted}) if wanted else set(names)


def direct_needs(name: str) -> Iterator[str]:
    for each in map(Requirement, distribution(name).requires or ()):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            yield each.name


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a new environment. The libraries are those that are installed here, so that it needs no network."""
    environment = tmp_path_factory.mktemp("fresh") / "venv"
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--offline", "--python", sys.executable, str(environment)], check=True, timeout=180)
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(environment / "bin" / "python")]
    subprocess.run([*install, str(wheel)], check=True, timeout=180)
    [packages] = (environment / "lib").glob("python*/site-packages")
    for name in needed_by(LIBRARIES):
        link_packages(name, packages)
    return environment / "bin" / "python"


def link_packages(name: str, packages: Path) -> None:
    """What one installed distribution has put beside the others."""
    installed = distribution(name)
    for top in {file.parts[0] for file in installed.files or () if not file.parts[0].startswith((".", "_", "/"))} - {"bin"}:
        source, target = Path(str(installed.locate_file(top))), packages / top
        if source.exists() and not target.exists():
            target.symlink_to(source)


def run(python: Path, program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([python, "-c", program], cwd=directory, env=environment, capture_output=True, text=True, timeout=180)


def test_it_holds_the_client_alone_with_its_types_and_says_what_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"opensession_client"}
    assert {"opensession_client/py.typed", "opensession_client/_sync/client.py"} <= set(names)
    [name] = (name for name in names if name.endswith(".dist-info/METADATA"))
    metadata = HeaderParser().parsestr(archive.read(name).decode())
    assert [metadata["Name"], metadata["License-Expression"]] == ["opensession-client", "MIT"]
    assert metadata["Version"] == opensession_client.__version__ == app.__version__
    assert {Requirement(each).name for each in metadata.get_all("Requires-Dist", [])} == set(LIBRARIES)
    assert "Opensession" in str(metadata.get_payload())


def test_the_readme_s_example_runs_with_it_in_an_environment_of_its_own(python: Path, server: RunningServer) -> None:
    assert "No module named 'fastapi'" in run(python, "import fastapi", server.workspace).stderr
    found = run(python, "import opensession_client; print(opensession_client.__file__)", server.workspace)
    assert Path(found.stdout.strip()).is_relative_to(python.parents[1]), found.stderr
    example = next(block for block in blocks(README) if block.kind == "python run")
    printed = run(python, example.code.replace(SHOWN_BASE, server.base), server.workspace)
    assert example.shown is not None
    assert printed.returncode == 0 and matches(example.shown, printed.stdout), printed.stdout + printed.stderr
