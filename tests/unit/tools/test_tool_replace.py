import re
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_form import LONG

from app.tools import replace as module
from app.tools.replace import Lines, OldStringAmbiguous, OldStringNotFound, replace

OUTCOMES = [
    ("exact", "one two three", "two", "2", "one 2 three"),
    ("exact before line-trimmed", "x\n  x1\n", "  x1", "y", "x\ny\n"),
    ("line-trimmed", "def f():\n    return 1\n", "def f():\nreturn 1", "def g():\n    return 2", "def g():\n    return 2\n"),
    ("line-trimmed before block anchor", "{\n  a\n}\n{\n  b\n}\n", "{\nb\n}", "B", "{\n  a\n}\nB\n"),
    ("a trailing newline is taken along", "    foo  \nbar\n", "foo\n", "x\n", "x\nbar\n"),
    ("block anchor", "if x:\n    old code here\nfi\nrest\n", "if x:\n    old code there\nfi", "gone", "gone\nrest\n"),
    ("the more alike of two blocks", "{\nzzz\n}\n{\nalpha = 1\n}\n", "{\nalpha = 2\n}", "B", "{\nzzz\n}\nB\n"),
    ("whitespace", "a   =  1;\n", "a = 1", "b = 2", "b = 2;\n"),
    ("whitespace within a line", "if (a   ==  1) return;\n", "a == 1", "b", "if (b) return;\n"),
    ("whitespace over lines", "call(  1,\n   2 )\n", "call( 1,\n2   )", "do()", "do()\n"),
    ("lines for spaces", "x y z\n", "x\ny\nz", "w", "w\n"),
    ("escapes", 'say("hi")\n', 'say(\\"hi\\")', "hush()", "hush()\n"),
    ("escaped newlines", "a\n\tb\n", "a\\n\\tb", "c", "c\n"),
    ("escapes of the file", 'x = \\"hi\\"\n', 'x = "hi"', "y", "y\n"),
    ("trimmed lines as a boundary", "one\ntwo\n", "\n  one\ntwo  ", "1", "1\n"),
    ("one line agrees of two", "a\nsame\nqqq\nb\n", "a\nsame\nold one\nb", "c", "c\n"),
    ("trimmed boundary", "say hi now\n", "  hi  ", "ho", "say ho now\n"),
    ("context", "b\nx\nb\nb\nsame\nother\ne\n", "b\nsame\nwrong\ne", "B", "b\nx\nb\nB\n"),
    ("deletion", "one two", " two", "", "one"),
    ("unicode", "häß → ok\n", "häß", "nice", "nice → ok\n"),
    # `f()` stands on two lines; indented as quoted, with the newline, it is only the second.
    ("one that occurs once before one that occurs twice", "f() # f()\n    f()\n", "\tf()\n", "g()\n", "f() # f()\ng()\n"),
    ("a forgotten line", "{\na\nb\nc\nd\n}\n", "{\nb\nc\nd\n}", "gone", "gone\n"),
    ("LF in a CRLF file", "one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2\n2b", "1\r\n2\r\n2b\r\nthree\r\n"),
    ("one CRLF line becomes several", "one\r\ntwo\r\n", "one", "1\n1b", "1\r\n1b\r\ntwo\r\n"),
    ("mixed endings, as CRLF", "a\r\nb\nc\r\nd\n", "c\nd", "x\ny", "a\r\nb\nx\r\ny\n"),
    ("mixed endings, as LF", "a\r\nb\nc\nd\n", "b\nc", "x\ny", "a\r\nx\ny\nd\n"),
    ("a loose match in a CRLF file", "  one\r\n  two\r\nend\r\n", "one\ntwo", "1\n2", "1\r\n2\r\nend\r\n"),
    ("CRLF in an LF file", "one\ntwo\n", "one\r\ntwo", "1\r\n2", "1\n2\n"),
    ("endings changed on purpose", "one\r\ntwo\r\n", "one\r\n", "one\n", "one\ntwo\r\n"),
]


@pytest.mark.parametrize(("content", "old", "new", "outcome"), [pytest.param(*row, id=case) for case, *row in OUTCOMES])
def test_one_place_is_replaced(content: str, old: str, new: str, outcome: str) -> None:
    assert replace(content, old, new) == outcome


@pytest.mark.parametrize(
    ("content", "old", "new", "outcome"),
    [
        ("a b a b a", "a", "c", "c b c b c"),
        ("f(  1 )\ng\nf(  1 )\n", "f( 1 )", "h()", "h()\ng\nh()\n"),
        ("a\r\nb\r\na\r\n", "a\n", "c\nd\n", "c\r\nd\r\nb\r\nc\r\nd\r\n"),
    ],
    ids=["literally", "loosely", "CRLF"],
)
def test_every_place_is_replaced_on_request(content: str, old: str, new: str, outcome: str) -> None:
    assert replace(content, old, new, replace_all=True) == outcome


def test_several_places_are_refused() -> None:
    with pytest.raises(OldStringAmbiguous, match="Found multiple matches for oldString"):
        replace("x = 1\nx = 1\n", "x = 1", "y")


ANCHORED = "{\n\n\n\n\nx\ny\nz\n}\n"


@pytest.mark.parametrize(
    ("content", "old"),
    [
        pytest.param("some text\n", "other words", id="nothing like it"),
        *(pytest.param("a\n\nb\n", blank, id=f"whitespace alone: {blank!r}") for blank in (" \n ", "\n\n\n", "\t")),
        pytest.param("top\n\n\n\n\nsame\nqqq\nzzz\nbottom\n", "top\nsame\nold one\nold two\nbottom\n", id="blank lines and one"),
        pytest.param("top\nsame\nqqq\nzzz\nbottom\n", "top\nsame\nold one\nold two\nbottom\n", id="one of three"),
        pytest.param("{\nkept\n}\n", "{\nsomething else\n}", id="none of one"),
        pytest.param("{\nkept\n}\n{\nalso\n}\n", "{\nsomething else\n}", id="none of two blocks"),
        pytest.param("{\nkept\nkept too\n}\n", "{\n\n}", id="nothing quoted between"),
        pytest.param(ANCHORED, "{\n\n\n\n\np\nq\nr\n}", id="one block, alike in its blank lines"),
        pytest.param(ANCHORED + "{\n1\n}\n", "{\n\n\n\n\np\nq\nr\n}", id="the best of two"),
        pytest.param("{\nx\ny\nz\nw\n}\n", "{\np\n}", id="far more lines than were quoted"),
        pytest.param("start\na\nb\nc\nend\n", "start\na\nx\ny\nend", id="one of three as context"),
        pytest.param("a\nsame\nqqq\nzzz\nb\n", "a\nsame\nb", id="two lines more than were quoted"),
        pytest.param("{\nx\n}\n", "{\nx\np\nq\nr\ns\n}", id="far fewer lines than were quoted"),
    ],
)
def test_what_is_not_there_is_not_found(content: str, old: str) -> None:
    """Also a block of which less than half agrees: its first and last line, by which it is found, say nothing of the lines
    between."""
    for everywhere in (False, True):
        with pytest.raises(OldStringNotFound, match="oldString not found in content"):
            replace(content, old, "new", replace_all=everywhere)


@given(st.text(alphabet="ab \n\r\t", max_size=30), st.text(alphabet="ab \n\r\t", min_size=1, max_size=8), st.booleans())
def test_what_stands_outside_the_places_is_untouched(content: str, old: str, everywhere: bool) -> None:
    """With a marker for the new text, taking the markers out of the outcome leaves pieces of the content, in order."""
    try:
        outcome = replace(content, old, "#", replace_all=everywhere)
    except (OldStringNotFound, OldStringAmbiguous):
        return
    at = 0
    for piece in outcome.split("#"):
        at = content.index(piece, at) + len(piece)
    assert outcome.count("#") >= 1


@given(st.lists(st.sampled_from(["x", "  y", "z  ", ""]), min_size=1, max_size=8).map("\n".join))
def test_a_literal_quote_is_always_found(content: str) -> None:
    if content.strip():
        assert replace(content, content, "new") == "new"


def words(text: str) -> list[str]:
    """What is left of a text when neither whitespace nor escapes count."""
    return re.sub(r"\\([nt])", " ", text).replace("\\", "").split()


def agreeing(block: str, old: str) -> float:
    """The share of the block's lines with text that `old` has too, in the same order; all of them where only whitespace or
    escapes differ."""
    if words(block) == words(old):
        return 1
    ours, theirs = ([words(line) for line in text.split("\n") if line.strip()] for text in (block, old))
    common = [0] * (len(theirs) + 1)
    for line in ours:
        above = [*common]
        for at, other in enumerate(theirs):
            common[at + 1] = above[at] + 1 if line == other else max(above[at + 1], common[at])
    return common[-1] / len(ours)


LINES = st.sampled_from(["{", "}", "", "", "  ", "a", "b", "  c", "d  ", "a  b", "e\\n", '\\"f', "g\th"])
TEXTS = st.lists(LINES, min_size=1, max_size=10).map("\n".join)
BLOCKS = st.lists(LINES, min_size=1, max_size=10).map(lambda lines: "\n".join(["{", *lines, "}"]))


@pytest.mark.parametrize("strategy", module.STRATEGIES[1:], ids=lambda strategy: strategy.__name__)
@settings(max_examples=300 if LONG else 100)
@given(content=TEXTS | BLOCKS | st.tuples(BLOCKS, BLOCKS).map("\n".join), old=TEXTS | BLOCKS)
def test_half_of_a_loosely_found_block_s_lines_agree(
    strategy: Callable[[Lines, Lines], Iterator[str]], content: str, old: str
) -> None:
    if old.strip():
        found = [block for block in strategy(Lines(content), Lines(old)) if block.strip()]
        assert all(agreeing(block, old) >= 0.5 for block in found)


@pytest.mark.parametrize(
    ("content", "old"),
    [
        pytest.param("some line of ordinary text\n" * 40_000, "a line that is not\nin there\nat all\n", id="1 MB of prose"),
        pytest.param("a\n" * 200_000, "a\n" * 50 + "b", id="lines all alike"),
        pytest.param("a" * 1_000_000, "a" * 1_000 + " b", id="one line"),
        pytest.param("{\nx\n}\n" * 50_000, "{\nnothing like it\n}", id="too many anchored blocks"),
        pytest.param("{\n" * 200_000, "{\nx\n}", id="first anchors without last"),
        pytest.param("{\n" * 22_000, "{\n" + "xx\n" * 10_000 + "{", id="all lines are anchors"),
        pytest.param("\n" * 200_000, "\n\nx\n\n", id="blank lines"),
        pytest.param(("a " * 2_000 + "\n") * 1_000, "a  a  " * 1_000 + "b", id="words all alike"),
        pytest.param(("a  " * 100_000 + "b\n") * 2, "a " * 50_000 + "b", id="words all alike, and found"),
        pytest.param(
            "{\n" + "a" * 2_000_000 + "\n}\n{\n" + "b" * 2_000_000 + "\n}\n", "{\n" + "c" * 100_000 + "\n}", id="long lines"
        ),
    ],
)
def test_no_input_hangs(content: str, old: str) -> None:
    """The bound is loose, for slow machines; without limits these take minutes."""
    start = time.process_time()
    with pytest.raises((OldStringNotFound, OldStringAmbiguous)):
        replace(content, old, "new")
    assert time.process_time() - start < 10


def test_too_much_work_leaves_the_literal_strategy() -> None:
    content = "  x\n" * 1_000_000 + "y  z\n"
    assert replace(content, "y  z", "w").endswith("w\n")
    with pytest.raises(OldStringNotFound):
        replace(content, "y z", "w")
