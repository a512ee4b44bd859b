"""The audit log on the disk: a line at a time, files of a bounded size, for their owner's eyes."""

import json
import stat
from pathlib import Path

import pytest

from app.api import audit
from app.api.audit import AuditLog


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


def write(log: AuditLog, first: int, last: int) -> None:
    for number in range(first, last):
        log.write({"number": number, "padding": "x" * 70})


def test_full_files_are_kept_the_oldest_goes_and_another_server_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES", 1000)
    monkeypatch.setattr(audit, "OLD_FILES", 2)
    first = AuditLog(tmp_path)
    write(first, 0, 1)
    assert numbers(tmp_path / "audit.log") == [0], "it is there as soon as it is written"
    write(first, 1, 5)
    first.close()
    write(AuditLog(tmp_path), 5, 35)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(file.stat().st_size <= 1000 and stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert [numbers(file) for file in files] == [[30, 31, 32, 33, 34], [*range(20, 30)], [*range(10, 20)]]
