"""Which processes a turn left behind."""

from pathlib import Path

import psutil


def running_in(directory: Path) -> list[int]:
    """Processes that work in a directory, but for those that only wait to be reaped."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd() == str(directory):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
