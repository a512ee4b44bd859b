"""The README's facts that can drift: the table of settings, and the targets it names."""

import re
from pathlib import Path

from app.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROSE = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)


def settings_table() -> str:
    rows = [
        f"| `OPENSESSION_{name.upper()}` | {' '.join((field.description or '').split())} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["| variable | meaning |", "| --- | --- |", *rows])


def test_the_table_of_settings_is_the_one_of_the_code() -> None:
    assert settings_table() in README, f"README.md must hold this table:\n{settings_table()}"


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b(?=[`\s])", "\n".join(re.findall(r"`[^`]+`|^ {4}.*$", PROSE, re.MULTILINE))))
    assert named - targets == set()
    assert {"serve", "test", "check"} <= named
