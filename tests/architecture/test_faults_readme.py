"""The fault tests' README: each of its commands selects tests, and each test stands in it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTS = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "OPENSESSION_LONG=1" in line)
README = (ROOT / "tests" / "faults" / "README.md").read_text()


def test_each_command_selects_tests_and_each_test_is_named() -> None:
    elsewhere = [ROOT / file for file in re.findall(r"tests/(?!faults )\S+\.py", FAULTS)]
    run_by_make_faults = [*(ROOT / "tests" / "faults").glob("test_*.py"), *elsewhere]
    assert elsewhere
    words = set(re.findall(r"-k (\w+)", README))
    assert [word for word in words if not any(word in file.stem for file in run_by_make_faults)] == []
    assert [file.name for file in run_by_make_faults if not any(word in file.stem for word in words)] == []


def test_each_file_that_it_names_exists() -> None:
    named = re.findall(r"ARGS=(tests/\S+\.py)", README)
    assert named and all((ROOT / file).is_file() for file in named)
