import re
import time

from hypothesis import given
from hypothesis import strategies as st

from app.permissions.wildcard import covers, disjoint, matches

patterns = st.text(alphabet="ab *?\n.[(", max_size=8)
values = st.text(alphabet="ab \n.[(", max_size=8)


def reference(pattern: str, value: str) -> bool:
    """The rule as it is told: whole string, `*` any run, `?` one character, a last ` *` may be missing."""
    tail = ""
    if pattern.endswith(" *"):
        pattern, tail = pattern[:-2], "( .*)?"
    pattern_text = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(pattern_text + tail, value, re.DOTALL) is not None


@given(patterns, values)
def test_it_agrees_with_the_rule_as_described(pattern: str, value: str) -> None:
    assert matches(pattern, value) == reference(pattern, value)


def test_examples() -> None:
    assert matches("ls *", "ls")
    assert matches("ls *", "ls -l\n/x")
    assert not matches("ls *", "lsof")
    assert matches("git status*", "git status --short")
    assert matches("*.env", "/a/b/.env")
    assert not matches("*.env", "/a/b/.ENV")
    assert not matches("a", "ab")
    assert not matches("a.c", "abc")
    assert matches("a?c", "a\nc")


def test_many_stars_cost_no_more_than_they_must() -> None:
    started = time.process_time()
    assert not matches("*a" * 500 + "b", "a" * 20_000)
    assert not matches("*" * 5_000 + "b", "a" * 20_000)
    assert not matches("*a?a" * 100 + "b", "a" * 20_000)
    assert time.process_time() - started < 5


@given(patterns, patterns, values)
def test_what_covers_matches_all_that_the_other_does(wide: str, narrow: str, value: str) -> None:
    if covers(wide, narrow) and matches(narrow, value):
        assert matches(wide, value)


@given(patterns, patterns, values)
def test_nothing_matches_two_disjoint_patterns(one: str, other: str, value: str) -> None:
    if disjoint(one, other):
        assert not (matches(one, value) and matches(other, value))


def test_relations_that_rules_use() -> None:
    assert covers("*", "git *")
    assert covers("git *", "git status*")
    assert covers("ls *", "ls")
    assert not covers("git status*", "git *")
    assert not covers("a?", "a*")
    assert disjoint("git *", "rm *")
    assert disjoint("bash", "edit")
    assert disjoint("*.py", "*.js")
    assert not disjoint("git*", "*push*")
