import os
from pathlib import Path

import pytest

from app.tool.base import ToolError
from app.tool.text_file import FileTimes, Stamp


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("one")
    return path


def test_a_file_must_have_been_read(file: Path) -> None:
    with pytest.raises(ToolError, match=r"You must read file .*a\.txt before overwriting it"):
        FileTimes().check("ses_1", file)


def test_reading_allows_writing_in_that_session_only(file: Path) -> None:
    times = FileTimes()
    times.record("ses_1", file)
    times.check("ses_1", file)
    with pytest.raises(ToolError):
        times.check("ses_2", file)


def test_a_change_since_is_noticed(file: Path) -> None:
    times = FileTimes()
    times.record("ses_1", file)
    file.write_text("longer than before")
    with pytest.raises(ToolError, match=r"(?s)modified since it was last read.*Modified: 20.*Z.*Last read: 20.*Z"):
        times.check("ses_1", file)


def test_a_change_to_an_older_time_is_noticed(file: Path) -> None:
    times = FileTimes()
    times.record("ses_1", file)
    os.utime(file, ns=(0, 1_000))
    with pytest.raises(ToolError, match="modified"):
        times.check("ses_1", file)


def test_the_version_that_was_read_counts_not_the_present_one(file: Path) -> None:
    times = FileTimes()
    times.record("ses_1", file, Stamp(1, 1))
    with pytest.raises(ToolError, match="modified"):
        times.check("ses_1", file)
    times.check("ses_1", file, Stamp(1, 1))


def test_a_symlink_is_the_file_it_leads_to(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    times = FileTimes()
    times.record("ses_1", link)
    times.check("ses_1", file)


def test_the_check_can_be_turned_off(file: Path) -> None:
    FileTimes(check_disabled=True).check("ses_1", file)


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
