"""The built wheel works outside the checkout: migrations, prompts and descriptions travel in it, and so does all that starts it.

The Dockerfile's own command and health check are run against it, as no image is built here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx2
import pytest
from running_server import ROOT, RunningServer, clean_environment, free_port, serving

PYTHON = re.compile(r"\.pyi?$")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the files that git would clone, so that nothing else can slip in."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stdout + result.stderr
    [file] = built.glob("*.whl")
    return file


def tracked_files() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the wheel is installed; its dependencies come from the one that runs the tests."""
    target = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True, timeout=180)
    return {"PYTHONPATH": str(target), "PATH": f"{target / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


def environment_of(directory: Path, installed: dict[str, str]) -> dict[str, str]:
    return clean_environment(directory, OPENSESSION_DATA_DIR=str(directory / "data"), **installed)


def test_the_data_files_of_the_product_are_in_the_wheel(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    files = tracked_files()
    expected = {name for name in files if name.startswith("app/") and not PYTHON.search(name)}
    expected |= {re.sub("^migrations/", "app/_migrations/", name) for name in files if name.startswith("migrations/")}
    assert any(name.endswith(".txt") for name in expected)
    assert expected - packed == set()
    assert {name.split("/")[0] for name in packed if ".dist-info/" not in name} == {"app"}, "nothing but the product"


def test_its_description_of_the_api_is_the_checkouts(installed: dict[str, str], tmp_path: Path) -> None:
    described = subprocess.check_output(["opensession", "openapi"], cwd=tmp_path, env=environment_of(tmp_path, installed))
    is_the_checkouts = described == (ROOT / "openapi.yaml").read_bytes()
    assert is_the_checkouts


def test_it_serves_a_prompt_outside_the_checkout(installed: dict[str, str], tmp_path: Path) -> None:
    with serving(["opensession", "serve", "--port", "PORT"], tmp_path, installed) as server:
        where = [sys.executable, "-c", "import app; print(app.__file__)"]
        found = subprocess.check_output(where, cwd=server.workspace, env={**os.environ, **installed}, text=True)
        assert Path(found.strip()).is_relative_to(installed["PYTHONPATH"])
        with httpx2.Client(base_url=server.base, timeout=180) as http:
            session, body = http.post("/session", json={}).json()["id"], {"parts": [{"type": "text", "text": "long 1"}]}
            reply = http.post(f"/session/{session}/message", json=body).json()
        assert [part["type"] for part in reply["parts"]] == ["step-start", "text", "step-finish"]
        assert (server.data / "opensession.db").stat().st_size > 0


def test_the_images_command_serves_and_its_health_check_agrees(installed: dict[str, str], tmp_path: Path) -> None:
    command = [word.replace("4096", "PORT") for word in [*docker("ENTRYPOINT"), *docker("CMD")]]
    with serving(command, tmp_path, {**installed, "OPENCODE_SERVER_PASSWORD": "secret"}) as server:
        assert health(server, installed) == 0
    assert health(server, installed) != 0
    command = [word.replace("PORT", str(free_port())) for word in command]
    environment = environment_of(tmp_path, installed)
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
    assert refused.returncode != 0
    assert "OPENCODE_SERVER_PASSWORD" in refused.stderr + refused.stdout, "without a password it does not start"


def docker(instruction: str) -> list[str]:
    """The words of an instruction of the image, written as a JSON list."""
    found = re.search(rf"^{instruction}.*?(\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found, f"the Dockerfile has no {instruction}"
    return list(json.loads(found[1]))


def health(server: RunningServer, installed: dict[str, str]) -> int:
    words = (word.replace("4096", str(server.port)) for word in docker("HEALTHCHECK")[1:])
    command = [sys.executable, "-S", *words]  # the tests' own environment has more packages than the image
    return subprocess.run(command, env=installed, capture_output=True, timeout=180).returncode
