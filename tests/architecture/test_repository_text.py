"""The repository works anywhere: it names no package registry's host and no path of the machine it was written on."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Written in pieces, so that this file does not contain what it looks for.
REGISTRIES = [
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "registry.npm" + "js.org",
    "npm" + "js.com",
    "deb.debian" + ".org",
    "proxy.golang" + ".org",
]
ELSEWHERE = re.compile("|".join([*map(re.escape, REGISTRIES), r"(?<![\w.~-])/wor" + r"k/", r"(?<![\w.~-])/opt/py" + r"pi"]))


def repository_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [file for name in listed.stdout.split("\0") if name and (file := ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for file in repository_files()
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert found == []


LOCKS = ("requirements.lock", "requirements-replicas.lock", "requirements-dev.lock")


def test_the_lock_files_pin_exact_versions() -> None:
    for name in LOCKS:
        requirements = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
        assert requirements
        assert [line for line in requirements if not re.fullmatch(r"[\w.-]+==[\w.]+( ;.*)?", line)] == []


def test_each_lock_is_part_of_the_next() -> None:
    runtime, replicas, development = (set((ROOT / name).read_text().splitlines()) for name in LOCKS)
    assert runtime - replicas == set() and replicas - development == set()
