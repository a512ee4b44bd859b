import time

import pytest

from app.tools.patch import AddFile, Chunk, DeleteFile, PatchError, PatchLine, UpdateFile, apply_chunks, parse


def envelope(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def updated(content: str, *lines: str) -> str:
    [change] = parse(envelope("*** Update File: f", *lines))
    return apply_chunks(content, change.chunks, "f")


DELETION = "*** Delete File: a"
EVERY_KIND = """*** Add File: a: b: c.txt
+one
+
+two
*** Delete File: old.txt

*** Update File: a.txt
*** Move to: b.txt
@@ def f():
 kept
-gone
+come
@@ class C
@@ def g
-c"""
LINES = [PatchLine(" ", "kept"), PatchLine("-", "gone"), PatchLine("+", "come")]
CHUNKS = [Chunk(["def f():"], LINES), Chunk(["class C", "def g"], [PatchLine("-", "c")])]


@pytest.mark.parametrize(
    ("patch", "changes"),
    [
        pytest.param(
            envelope(EVERY_KIND),
            [AddFile("a: b: c.txt", "one\n\ntwo\n"), DeleteFile("old.txt"), UpdateFile("a.txt", "b.txt", CHUNKS)],
            id="every kind",
        ),
        pytest.param(envelope("*** Add File: a"), [AddFile("a", "")], id="an empty new file"),
        pytest.param(f"cat <<'EOF'\n{envelope(DELETION)}\nEOF", [DeleteFile("a")], id="a heredoc"),
        pytest.param(f"<<EOF\n{envelope(DELETION)}\nEOF\n", [DeleteFile("a")], id="a heredoc of nothing"),
        pytest.param(f'<<"PATCH"\n{envelope(DELETION)}\nPATCH', [DeleteFile("a")], id="a heredoc with another word"),
        pytest.param(f"Here you are:\n{envelope(DELETION)}\nDone.", [DeleteFile("a")], id="words around"),
        pytest.param(envelope("*** Add File: a", "+x").replace("\n", "\r\n"), [AddFile("a", "x\n")], id="CRLF"),
        pytest.param(envelope(), [], id="nothing in it"),
    ],
)
def test_a_patch_is_read(patch: str, changes: list[object]) -> None:
    assert parse(patch) == changes


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("no patch at all", "must start with"),
        ("*** Begin Patch\n*** Delete File: a", "must start with"),
        ("*** End Patch\n*** Begin Patch", "must start with"),
        (envelope("rubbish"), "line 1 .*'rubbish'"),
        (envelope("*** Rename File: a"), "line 1"),
        (envelope("*** Add File:"), "no file is named"),
        (envelope("*** Add File: a", "text without plus"), "line 2 .*starts with \\+"),
        (envelope("*** Update File: a", "@@", "text without mark"), "line 3"),
        (envelope("*** Update File: a"), "changes nothing"),
    ],
)
def test_what_cannot_be_read_is_named(patch: str, message: str) -> None:
    with pytest.raises(PatchError, match=message):
        parse(patch)


APPLIED = {
    "a line": ("a\nb\nc\n", ["@@", " a", "-b", "+B"], "a\nB\nc\n"),
    "without a marker": ("a\nb\n", ["-b", "+B"], "a\nB\n"),
    "chunks follow each other": ("x\na\nx\nb\nx\n", ["@@", "-x", "+1", "@@", " b", "-x", "+3"], "1\na\nx\nb\n3\n"),
    "a context": ("f\n  x\ng\n  x\n", ["@@ g", "-  x", "+  y"], "f\n  x\ng\n  y\n"),
    "nested contexts": ("A\nf\nx\nB\nf\nx\n", ["@@ B", "@@ f", "-x", "+y"], "A\nf\nx\nB\nf\ny\n"),
    "additions alone go to the end": ("a\nb\n", ["@@", "+c", "@@", "-a", "+A"], "A\nb\nc\n"),
    "an empty file": ("", ["@@", "+c"], "c\n"),
    "the end is preferred": ("x\na\nx\n", ["@@", "-x", "+y", "*** End of File"], "x\na\ny\n"),
    "right-trimmed": ("a  \n", ["@@", "-a", "+new"], "new\n"),
    "trimmed": ("   a\n", ["@@", "-a", "+new"], "new\n"),
    "punctuation": ("it’s – “so”…\n", ["@@", '-it\'s - "so"...', "+new"], "new\n"),
    "a literal match before a loose one": ("  a\na\n", ["@@", "-a", "+b"], "  a\nb\n"),
    "kept lines stay as the file has them": ("a \t\nb\n", ["@@", " a", "-b", "+c"], "a \t\nc\n"),
    "blank lines before the next section": ("a\nb\n", ["@@", "-a", "+A", "", ""], "A\nb\n"),
    "no final newline": ("a\nb", ["@@", "-b", "+c"], "a\nc"),
    "no final newline before an addition": ("a\nb", ["@@", "+c"], "a\nb\nc"),
    "CRLF": ("a\r\nb\r\n", ["@@", " a", "-b", "+c", "+d"], "a\r\nc\r\nd\r\n"),
    "CRLF without a final one": ("a\r\nb", ["@@", "+c"], "a\r\nb\r\nc"),
    "everything is removed": ("a\nb\n", ["@@", "-a", "-b"], ""),
}


@pytest.mark.parametrize(("content", "lines", "outcome"), APPLIED.values(), ids=list(APPLIED))
def test_an_update_is_applied(content: str, lines: list[str], outcome: str) -> None:
    assert updated(content, *lines) == outcome


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["@@", "-missing", "-lines", "+x"], "not found in f:\nmissing\nlines"),
        (["@@ def g", "-a"], "'def g'"),
        (["@@ def g", "+x"], "'def g'"),
    ],
)
def test_lines_and_contexts_that_are_not_there_are_named(lines: list[str], message: str) -> None:
    with pytest.raises(PatchError, match=message):
        updated("a\n", *lines)


def test_many_chunks_of_a_long_file() -> None:
    content = "".join(f"line {number}\n" for number in range(100_000))
    lines = [text for number in range(0, 100_000, 100) for text in ("@@", f"-line {number}", "+changed")]
    start = time.process_time()
    assert updated(content, *lines).count("changed\n") == 1_000
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["@@", *["-a"] * 100_000, "-b"], "not found"),
        (["@@ a", "+x"] * 30_000, "so many pieces"),
    ],
)
def test_no_patch_hangs(lines: list[str], message: str) -> None:
    """Equal lines, and many pieces, would take minutes."""
    start = time.process_time()
    with pytest.raises(PatchError, match=message):
        updated("z\n" * 200_000 + "a\n" * 200_000, *lines)
    assert time.process_time() - start < 10
