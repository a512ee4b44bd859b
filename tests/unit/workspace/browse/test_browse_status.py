"""What git prints, read."""

from app.workspace.browse.content import parse_hunks
from app.workspace.vcs.comparison import GitChange, parse_changes

RAW = (
    b":100644 000000 aaaaaaa 0000000 D\0gone.txt\0"
    b":000000 100644 0000000 bbbbbbb A\0new\n\tline\0"
    b":100644 100644 ccccccc 0000000 M\0x.bin\0"
)
NUMBERS = b"0\t3\tgone.txt\0" + b"2\t0\tnew\n\tline\0" + b"-\t-\tx.bin\0"


def test_raw_and_numbers_are_put_together() -> None:
    assert list(parse_changes(RAW + NUMBERS)) == [
        GitChange("gone.txt", 0, 3, "deleted"),
        GitChange("new\n\tline", 2, 0, "added"),
        GitChange("x.bin", 0, 0, "modified"),
    ]


def test_nothing_changed() -> None:
    assert list(parse_changes(b"")) == []


def test_counts_of_one_and_missing_newlines_in_a_hunk() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1 @@ def f():\n+@@ -1 +1 @@\n\\ No newline at end of file\n"
    (hunk,) = parse_hunks(diff)
    assert (hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines) == (0, 0, 1, 1)
    assert hunk.lines == ["+@@ -1 +1 @@", "\\ No newline at end of file"]
