import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tools.diff import FileDelta, changed_regions, compare
from app.tools.replace import with_newlines


def applied(before: str, after: str) -> list[str]:
    """The old lines with every region put in: must be the new lines."""
    old, new = with_newlines(before), with_newlines(after)
    result: list[str] = []
    at = 0
    for region in changed_regions(old, new):
        result += old[at : region.old] + new[region.new : region.new_end]
        at = region.old_end
    return result + old[at:]


def numbered(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


def text(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


def test_the_whole_form() -> None:
    rule = "=" * 67
    assert compare("/p/a.txt", "hello\nworld\n", "goodbye\nworld\n") == FileDelta(
        f"Index: /p/a.txt\n{rule}\n--- /p/a.txt\n+++ /p/a.txt\n@@ -1,2 +1,2 @@\n-hello\n+goodbye\n world\n", 1, 1
    )


def body(before: str, after: str) -> list[str]:
    return compare("f", before, after).text.splitlines()[4:]


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        pytest.param("", "a\nb\n", ["@@ -0,0 +1,2 @@", "+a", "+b"], id="new"),
        pytest.param("a\nb\n", "", ["@@ -1,2 +0,0 @@", "-a", "-b"], id="emptied"),
        pytest.param("a\n", "a\n", [], id="no change"),
        pytest.param("a", "a\n", ["@@ -1,1 +1,1 @@", "-a", "\\ No newline at end of file", "+a"], id="no final newline"),
        pytest.param("-- x\n", "++ y\n", ["@@ -1,1 +1,1 @@", "--- x", "+++ y"], id="like headers"),
        pytest.param(
            "        a\n\n          b\n",
            "        a\n\n          c\n",
            ["@@ -1,3 +1,3 @@", " a", " ", "-  b", "+  c"],
            id="common indentation is trimmed",
        ),
    ],
)
def test_changes_are_shown_as_hunks(before: str, after: str, lines: list[str]) -> None:
    assert body(before, after) == lines


def test_near_changes_share_a_hunk_and_far_ones_do_not() -> None:
    lines = numbered(40)
    near = [*lines[:10], "x", *lines[11:15], "y", *lines[16:]]
    far = [*lines[:10], "x", *lines[11:30], "y", *lines[31:]]
    assert [line for line in body(text(lines), text(near)) if line.startswith("@@")] == ["@@ -7,14 +7,14 @@"]
    assert [line for line in body(text(lines), text(far)) if line.startswith("@@")] == ["@@ -7,9 +7,9 @@", "@@ -27,9 +27,9 @@"]


lines_of_few = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12)


@given(lines_of_few, lines_of_few)
def test_the_regions_lead_from_one_text_to_the_other(before: list[str], after: list[str]) -> None:
    assert applied("\n".join(before), "\n".join(after)) == with_newlines("\n".join(after))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_applies_it(tmp_path: Path) -> None:
    """Unindented text, where nothing is trimmed: the diff is a patch like any other."""
    rng = random.Random(1)
    before = numbered(200)
    after = [line for line in before if rng.random() > 0.1] + ["an end without newline"]
    (tmp_path / "f").write_text(text(before))
    patch = compare("f", text(before), "\n".join(after)).text
    (tmp_path / "p").write_text(patch)
    subprocess.run(["git", "apply", "-p0", "p"], cwd=tmp_path, check=True)
    assert (tmp_path / "f").read_text() == "\n".join(after)


NUMBERED = numbered(10_000)
LONG = numbered(100_000)


@pytest.mark.parametrize(
    ("before", "after", "additions", "deletions"),
    [
        pytest.param(text(NUMBERED), text([line + "!" for line in NUMBERED]), 10_000, 10_000, id="all different"),
        pytest.param("x\ny\n" * 5_000, "y\nx\nx\n" * 5_000, 5_001, 1, id="all alike"),
        pytest.param(text(LONG), text(["first", *LONG[1:-1], "last"]), 2, 2, id="two places far apart"),
    ],
)
def test_large_files_are_compared_in_time(before: str, after: str, additions: int, deletions: int) -> None:
    start = time.process_time()
    delta = compare("f", before, after)
    assert (delta.additions, delta.deletions) == (additions, deletions)
    assert time.process_time() - start < 10


def test_what_is_beyond_exact_comparison_is_still_right() -> None:
    before = "a\nb\n" * 20_000
    after = "b\nb\na\n" * 20_000
    assert applied("1\n" + before, "2\n" + after) == with_newlines("2\n" + after)
