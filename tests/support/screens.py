"""What real clients show, kept for people to look at where OPENSESSION_TEST_SCREENS names a directory."""

import os
from pathlib import Path

DIRECTORY = os.environ.get("OPENSESSION_TEST_SCREENS")


def keep(name: str, screen: str) -> None:
    if DIRECTORY:
        Path(DIRECTORY).mkdir(parents=True, exist_ok=True)
        lines = [line.rstrip() for line in screen.splitlines()]
        Path(DIRECTORY, f"{name}.txt").write_text("\n".join(lines).strip("\n") + "\n")
