import os
from pathlib import Path

import pytest

from app.tools.base import ToolError
from app.tools.text_file import FileTimes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("one")
    return path


def test_a_change_to_an_older_time_is_noticed(file: Path) -> None:
    times = FileTimes()
    times.record("ses_1", file)
    os.utime(file, ns=(0, 1_000))
    with pytest.raises(ToolError, match="modified"):
        times.check("ses_1", file)


def test_a_symlink_is_the_file_it_leads_to(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    times = FileTimes()
    times.record("ses_1", link)
    times.check("ses_1", file)


def test_memory_is_bounded_and_the_oldest_goes_first(tmp_path: Path) -> None:
    times = FileTimes(capacity=2)
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text("x")
    times.record("ses_1", paths[0])
    times.record("ses_1", paths[1])
    times.record("ses_1", paths[0])
    times.record("ses_1", paths[2])
    times.check("ses_1", paths[0])
    times.check("ses_1", paths[2])
    with pytest.raises(ToolError, match="must read"):
        times.check("ses_1", paths[1])
