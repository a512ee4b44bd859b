import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tools.changes import FileDelta, changed_regions, compare
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


def test_a_new_and_an_emptied_file() -> None:
    assert body("", "a\nb\n") == ["@@ -0,0 +1,2 @@", "+a", "+b"]
    assert body("a\nb\n", "") == ["@@ -1,2 +0,0 @@", "-a", "-b"]


def test_no_change_has_no_hunk() -> None:
    assert body("a\n", "a\n") == []


def test_a_missing_final_newline_is_shown() -> None:
    assert body("a", "a\n") == ["@@ -1,1 +1,1 @@", "-a", "\\ No newline at end of file", "+a"]


def test_near_changes_share_a_hunk_and_far_ones_do_not() -> None:
    lines = numbered(40)
    near = [*lines[:10], "x", *lines[11:15], "y", *lines[16:]]
    far = [*lines[:10], "x", *lines[11:30], "y", *lines[31:]]
    assert [line for line in body(text(lines), text(near)) if line.startswith("@@")] == ["@@ -7,14 +7,14 @@"]
    assert [line for line in body(text(lines), text(far)) if line.startswith("@@")] == ["@@ -7,9 +7,9 @@", "@@ -27,9 +27,9 @@"]


def test_common_indentation_is_trimmed() -> None:
    assert body("        a\n\n          b\n", "        a\n\n          c\n") == ["@@ -1,3 +1,3 @@", " a", " ", "-  b", "+  c"]


def test_lines_that_look_like_headers_are_content() -> None:
    assert body("-- x\n", "++ y\n") == ["@@ -1,1 +1,1 @@", "--- x", "+++ y"]


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


class TestLargeFiles:
    def test_ten_thousand_lines_all_different(self) -> None:
        start = time.process_time()
        delta = compare("f", text(numbered(10_000)), text([line + "!" for line in numbered(10_000)]))
        assert (delta.additions, delta.deletions) == (10_000, 10_000)
        assert time.process_time() - start < 10

    def test_ten_thousand_lines_all_alike(self) -> None:
        start = time.process_time()
        delta = compare("f", "x\ny\n" * 5_000, "y\nx\nx\n" * 5_000)
        assert delta.additions - delta.deletions == 5_000
        assert time.process_time() - start < 10

    def test_two_places_far_apart_in_a_long_file(self) -> None:
        before = numbered(100_000)
        after = ["first", *before[1:-1], "last"]
        start = time.process_time()
        delta = compare("f", text(before), text(after))
        assert (delta.additions, delta.deletions) == (2, 2)
        assert time.process_time() - start < 10

    def test_what_is_beyond_exact_comparison_is_still_right(self) -> None:
        before = "a\nb\n" * 20_000
        after = "b\nb\na\n" * 20_000
        assert applied("1\n" + before, "2\n" + after) == with_newlines("2\n" + after)
