"""What the READMEs, CONTRIBUTING and docs/configuration.md say that can drift: settings, commands, and the folders of tests."""

import ast
import inspect
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from app.settings import Settings

ROOT = Path(__file__).parents[2]
README, CONTRIBUTING = ((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def descriptions() -> dict[str, str]:
    """The docstrings of the settings, from their source: a server that started would take 15 ms to read them."""
    (settings,) = ast.parse(inspect.getsource(Settings)).body
    return {
        field.target.id: " ".join(doc.value.value.split())
        for field, doc in pairwise(settings.body)
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr)
    }


def settings_table() -> str:
    rows = [f"| `OPENSESSION_{name.upper()}` | {description} |" for name, description in descriptions().items()]
    return "\n".join(["| variable | meaning |", "| --- | --- |", *rows])


def commands(page: str) -> str:
    """Inline code and indented lines, one a line."""
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(r"`[^`\n]+`|^ {4}.*$", prose, re.MULTILINE))


def selects_tests(arguments: str) -> bool:
    """Of `ARGS` for pytest: the paths are there, and a file or function below them has the keyword of `-k`."""
    words = shlex.split(arguments)
    keyword = words.pop(words.index("-k") + 1) if "-k" in words else ""
    paths = [ROOT / word for word in words if word != "-k"] or [ROOT / "tests"]
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))]
    return any(keyword in file.stem or re.search(rf"def test_\w*{keyword}", file.read_text()) for file in files)


def test_the_table_of_settings_is_the_one_of_the_code() -> None:
    assert settings_table() in CONFIGURATION, f"docs/configuration.md must hold this table:\n{settings_table()}"


def test_every_setting_is_described() -> None:
    assert list(descriptions()) == list(Settings.model_fields)


@pytest.mark.parametrize("page", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_every_command_that_is_named_is_there(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b(?=[`\s])", commands(page)))
    assert named - targets == set()
    assert {"serve", "test", "check"} <= named
    programs = re.findall(r"(?<![\w/])\.venv/bin/([\w-]+)", commands(page))
    assert [program for program in programs if not (Path(sys.executable).parent / program).exists()] == []


@pytest.mark.parametrize("page", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_the_tests_that_a_command_selects_are_there(page: str) -> None:
    arguments = re.findall(r'ARGS=(tests/\S+|"(?:tests/|-k)[^"]*")(?=[\s`)])', commands(page))
    assert arguments
    assert [wanted for wanted in arguments if not selects_tests(wanted.strip('"'))] == []


def test_arguments_that_select_nothing_are_noticed() -> None:
    assert selects_tests("tests/unit -k fork")
    assert not selects_tests("tests/unit -k no_such_test") and not selects_tests("tests/nowhere")


def test_every_folder_of_tests_stands_in_contributing() -> None:
    folders = {f"tests/{folder.name}/" for folder in (ROOT / "tests").iterdir() if folder.is_dir() and any(folder.glob("*.py"))}
    units = {f"tests/unit/{folder.name}/" for folder in (ROOT / "tests" / "unit").iterdir() if any(folder.glob("test_*.py"))}
    assert folders | {"tests/unit/"} == set(re.findall(r"^\| `(tests/\w+/)` \|", CONTRIBUTING, re.MULTILINE))
    assert [unit for unit in units if not (ROOT / "app" / Path(unit).name).exists()] == []


FAULTS = next(line for line in MAKEFILE.splitlines() if "OPENSESSION_LONG=1" in line)
FAULTS_README = (ROOT / "tests" / "faults" / "README.md").read_text()


def test_each_command_of_the_fault_tests_selects_tests_and_each_test_is_named() -> None:
    elsewhere = [ROOT / file for file in re.findall(r"tests/(?!faults )\S+\.py", FAULTS)]
    run_by_make_faults = [*(ROOT / "tests" / "faults").glob("test_*.py"), *elsewhere]
    assert elsewhere
    words = set(re.findall(r"-k (\w+)", FAULTS_README))
    assert [word for word in words if not any(word in file.stem for file in run_by_make_faults)] == []
    assert [file.name for file in run_by_make_faults if not any(word in file.stem for word in words)] == []


def test_each_file_that_their_readme_names_exists() -> None:
    named = re.findall(r"ARGS=(tests/\S+\.py)", FAULTS_README)
    assert named and all((ROOT / file).is_file() for file in named)
