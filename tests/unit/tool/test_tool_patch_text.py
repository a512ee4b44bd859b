import time

import pytest

from app.tool.patch import AddFile, Chunk, DeleteFile, PatchError, PatchLine, UpdateFile, apply_chunks, parse


def envelope(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def updated(content: str, *lines: str) -> str:
    [change] = parse(envelope("*** Update File: f", *lines))
    assert isinstance(change, UpdateFile)
    return apply_chunks(content, change.chunks, "f")


class TestParse:
    def test_every_kind_of_change(self) -> None:
        patch = envelope(
            "*** Add File: new.txt",
            "+one",
            "+",
            "+two",
            "*** Delete File: old.txt",
            "",
            "*** Update File: a.txt",
            "*** Move to: b.txt",
            "@@ def f():",
            " kept",
            "-gone",
            "+come",
        )
        assert parse(patch) == [
            AddFile("new.txt", "one\n\ntwo\n"),
            DeleteFile("old.txt"),
            UpdateFile(
                "a.txt",
                "b.txt",
                [Chunk(["def f():"], [PatchLine(" ", "kept"), PatchLine("-", "gone"), PatchLine("+", "come")])],
            ),
        ]

    def test_a_path_may_hold_colons_and_spaces(self) -> None:
        assert parse(envelope("*** Add File: a: b: c.txt", "+x")) == [AddFile("a: b: c.txt", "x\n")]

    def test_an_empty_new_file(self) -> None:
        assert parse(envelope("*** Add File: a")) == [AddFile("a", "")]

    @pytest.mark.parametrize("shell", ["cat <<'EOF'\n{}\nEOF", "<<EOF\n{}\nEOF\n", '<<"PATCH"\n{}\nPATCH'])
    def test_a_heredoc_around_it_is_taken_off(self, shell: str) -> None:
        assert parse(shell.format(envelope("*** Delete File: a"))) == [DeleteFile("a")]

    def test_words_around_the_envelope_are_left_out(self) -> None:
        assert parse("Here you are:\n" + envelope("*** Delete File: a") + "\nDone.") == [DeleteFile("a")]

    def test_crlf(self) -> None:
        assert parse(envelope("*** Add File: a", "+x").replace("\n", "\r\n")) == [AddFile("a", "x\n")]

    def test_nothing_in_it(self) -> None:
        assert parse(envelope()) == []

    def test_chunks_are_distinguished_by_their_marker(self) -> None:
        [change] = parse(envelope("*** Update File: f", "@@", "-a", "+b", "@@ class C", "@@ def g", "-c"))
        assert isinstance(change, UpdateFile)
        assert [chunk.contexts for chunk in change.chunks] == [[], ["class C", "def g"]]

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
    def test_what_cannot_be_read_is_named(self, patch: str, message: str) -> None:
        with pytest.raises(PatchError, match=message):
            parse(patch)


class TestApply:
    def test_a_line_is_replaced(self) -> None:
        assert updated("a\nb\nc\n", "@@", " a", "-b", "+B") == "a\nB\nc\n"

    def test_without_a_marker(self) -> None:
        assert updated("a\nb\n", "-b", "+B") == "a\nB\n"

    def test_chunks_follow_each_other(self) -> None:
        assert updated("x\na\nx\nb\nx\n", "@@", "-x", "+1", "@@", " b", "-x", "+3") == "1\na\nx\nb\n3\n"

    def test_context_says_where_to_look(self) -> None:
        content = "def f():\n  pass\ndef g():\n  pass\n"
        assert updated(content, "@@ def g():", "-  pass", "+  return") == "def f():\n  pass\ndef g():\n  return\n"

    def test_nested_context(self) -> None:
        content = "class A\ndef f\nx\nclass B\ndef f\nx\n"
        assert updated(content, "@@ class B", "@@ def f", "-x", "+y") == "class A\ndef f\nx\nclass B\ndef f\ny\n"

    def test_additions_alone_go_to_the_end(self) -> None:
        assert updated("a\nb\n", "@@", "+c", "@@", "-a", "+A") == "A\nb\nc\n"

    def test_a_new_line_in_an_empty_file(self) -> None:
        assert updated("", "@@", "+c") == "c\n"

    def test_the_end_of_file_marker_prefers_the_end(self) -> None:
        assert updated("x\na\nx\n", "@@", "-x", "+y", "*** End of File") == "x\na\ny\n"

    @pytest.mark.parametrize(
        ("content", "old"),
        [("a  \n", "a"), ("   a\n", "a"), ("it’s – “so”…\n", 'it\'s - "so"...')],
        ids=["right-trimmed", "trimmed", "punctuation"],
    )
    def test_looser_and_looser(self, content: str, old: str) -> None:
        assert updated(content, "@@", f"-{old}", "+new") == "new\n"

    def test_a_literal_match_goes_before_a_loose_one(self) -> None:
        assert updated("  a\na\n", "@@", "-a", "+b") == "  a\nb\n"

    def test_kept_lines_stay_as_the_file_has_them(self) -> None:
        assert updated("a \t\nb\n", "@@", " a", "-b", "+c") == "a \t\nc\n"

    def test_blank_lines_before_the_next_section(self) -> None:
        assert updated("a\nb\n", "@@", "-a", "+A", "", "") == "A\nb\n"

    def test_a_missing_final_newline_stays_missing(self) -> None:
        assert updated("a\nb", "@@", "-b", "+c") == "a\nc"
        assert updated("a\nb", "@@", "+c") == "a\nb\nc"

    def test_crlf_stays(self) -> None:
        assert updated("a\r\nb\r\n", "@@", " a", "-b", "+c", "+d") == "a\r\nc\r\nd\r\n"
        assert updated("a\r\nb", "@@", "+c") == "a\r\nb\r\nc"

    def test_everything_is_removed(self) -> None:
        assert updated("a\nb\n", "@@", "-a", "-b") == ""

    def test_lines_that_are_not_there(self) -> None:
        with pytest.raises(PatchError, match="not found in f:\nmissing\nlines"):
            updated("a\n", "@@", "-missing", "-lines", "+x")

    def test_context_that_is_not_there(self) -> None:
        with pytest.raises(PatchError, match="'def g'"):
            updated("a\n", "@@ def g", "-a")

    def test_many_chunks_of_a_long_file(self) -> None:
        content = "".join(f"line {number}\n" for number in range(100_000))
        lines = [text for number in range(0, 100_000, 100) for text in ("@@", f"-line {number}", "+changed")]
        start = time.process_time()
        assert updated(content, *lines).count("changed\n") == 1_000
        assert time.process_time() - start < 10
