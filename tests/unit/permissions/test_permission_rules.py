"""Which rule counts for what is asked; that nobody below another may do more; and which patterns match what."""

import re
import time
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_form import LONG

from app.permissions import rules
from app.permissions.rules import Subject, child_rules, decide_permission, evaluate, rules_for
from app.permissions.wildcard import covers, disjoint, matches
from app.schema.permission import Action, Rule, Ruleset

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}

actions = st.sampled_from(["allow", "deny", "ask"])
names = st.sampled_from(["bash", "edit", "read"])
name_patterns = st.sampled_from(["bash", "edit", "read", "*", "b*"])
things = st.text(alphabet="ab ", max_size=4)
thing_patterns = st.text(alphabet="ab *?", max_size=4) | st.just("*")
rulesets = st.lists(st.builds(Rule, permission=name_patterns, pattern=thing_patterns, action=actions), max_size=6)
approvals = st.lists(st.builds(Rule, permission=names, pattern=thing_patterns, action=st.just("allow")), max_size=4)
most_compared = st.sampled_from([rules.MAX_COMPARED, 0]).map(lambda most: patch.object(rules, "MAX_COMPARED", most))
several = settings(max_examples=300 if LONG else 100)


def bash(patterns: dict[str, Action]) -> Ruleset:
    return [rule("bash", pattern, action) for pattern, action in patterns.items()]


def rule(permission: str, pattern: str, action: Action) -> Rule:
    return Rule(permission=permission, pattern=pattern, action=action)


@given(names, things, rulesets, rulesets)
def test_the_last_rule_that_matches_wins_over_all_rulesets(name: str, thing: str, one: Ruleset, other: Ruleset) -> None:
    matching = [each for each in [*one, *other] if matches(each.permission, name) and matches(each.pattern, thing)]
    expected = matching[-1] if matching else rule(name, "*", "ask")
    assert evaluate(name, thing, one, other) == expected


@given(names, st.lists(things, max_size=4), rulesets, approvals)
def test_a_configured_deny_beats_every_approval_and_without_one_each_pattern_needs_one_or_an_allow(
    name: str, asked: list[str], ruleset: Ruleset, approved: Ruleset
) -> None:
    decision = decide_permission(name, asked, ruleset, approved)
    denied = any(evaluate(name, thing, ruleset).action == "deny" for thing in asked)
    assert (decision == "deny") == denied
    if not denied:
        free = all(evaluate(name, thing, ruleset, approved).action == "allow" for thing in asked)
        assert (decision == "allow") == free


@given(names, things, st.lists(things, max_size=3), st.sampled_from(["readable", "foreign", "unreadable"]), rulesets, approvals)
def test_spellings_and_poor_sight_only_ever_restrict(
    name: str, thing: str, spellings: list[str], readability: Any, ruleset: Ruleset, approved: Ruleset
) -> None:
    plain = decide_permission(name, [thing], ruleset, approved)
    seen = decide_permission(name, [Subject(thing, tuple(spellings), readability)], ruleset, approved)
    assert STRICTNESS[seen] >= STRICTNESS[plain]


def wordy(text: str) -> Subject:
    return Subject(text, words=tuple(text.split()))


NO_RM, ASK_RM = bash({"*": "allow", "rm *": "deny"}), bash({"*": "allow", "rm *": "ask"})
NAMED = [*NO_RM, *bash({"git push*": "ask"})]
SPELLED, GRADLEW, TEXT = (
    Subject("/bin/rm x", ("rm x",)),
    Subject("./gradlew build", ("gradlew build",)),
    Subject("a", text="rm x"),
)
UNSEEN, FOREIGN = Subject("$CMD x", readability="unreadable"), Subject("python -c 1", readability="foreign")


@pytest.mark.parametrize(
    ("asked", "ruleset", "approved", "decision"),
    [
        pytest.param([], bash({"*": "deny"}), {}, "allow", id="nothing to ask about"),
        pytest.param(["ls"], [], {}, "ask", id="no rule"),
        pytest.param(["touch x", "rm x"], bash({"*": "ask", "rm *": "deny"}), {}, "deny", id="a deny behind an ask"),
        pytest.param([GRADLEW], bash({"*": "deny", "./gradlew *": "allow"}), {}, "allow", id="the text beside its spelling"),
        pytest.param([SPELLED], NO_RM, {}, "deny", id="a deny evaded by spelling"),
        pytest.param([SPELLED], ASK_RM, {}, "ask", id="an ask evaded by spelling"),
        pytest.param([SPELLED], ASK_RM, {"/bin/rm*": "allow"}, "allow", id="the text is approved"),
        pytest.param([SPELLED], ASK_RM, {"rm*": "allow"}, "allow", id="its spelling is approved"),
        pytest.param([UNSEEN], NO_RM, {"*": "allow"}, "ask", id="unseen, whatever was approved"),
        pytest.param([UNSEEN], bash({"*": "allow"}), {}, "allow", id="unseen where all is allowed"),
        pytest.param([FOREIGN], NO_RM, {}, "ask", id="a foreign program needs a rule that names it"),
        pytest.param([FOREIGN], bash({"*": "ask", "python *": "allow"}), {}, "allow", id="a rule that names it"),
        pytest.param([FOREIGN], bash({"*": "ask"}), {"python -c*": "allow"}, "allow", id="an approval that names it"),
        pytest.param([wordy("perf stat rm x")], NAMED, {}, "deny", id="a program that a word names"),
        pytest.param([wordy("perf /bin/RM x")], NAMED, {}, "deny", id="a program that a path names"),
        pytest.param([wordy("perf stat rm x")], ASK_RM, {"perf *": "allow"}, "ask", id="an approval of another program"),
        pytest.param([wordy("perf stat rm x")], ASK_RM, {"rm *": "allow"}, "allow", id="an approval of that program"),
        pytest.param([wordy("perf rm")], bash({"rm *": "deny", "*": "allow"}), {}, "allow", id="a rule that another overrides"),
        pytest.param([TEXT], bash({"rm *": "deny", "*": "allow"}), {}, "allow", id="names nothing in a text either"),
        *(
            pytest.param([Subject("any", text=text)], NAMED, {"*": "allow"}, "ask", id=f"named in {text!r}")
            for text in ("(rm x)", "ls;rm", "a=/bin/rm", "git\tpush", "cd x && git -C y push")
        ),
        *(
            pytest.param([Subject("any", text=text)], NAMED, {}, "allow", id=f"not named in {text!r}")
            for text in ("remove", "rm.txt", "x-rm", "git pull", "rmdir x")
        ),
    ],
)
def test_what_is_asked_is_decided(
    asked: list[str | Subject], ruleset: Ruleset, approved: dict[str, Action], decision: Action
) -> None:
    assert decide_permission("bash", asked, ruleset, bash(approved)) == decision


def test_the_rules_of_a_permission_are_its_own_alone() -> None:
    assert rules_for("bash", [rule("edit", "*", "deny"), *NO_RM]) == NO_RM


def test_unrestricted_looks_behind_the_last_rule_for_everything() -> None:
    assert rules.is_unrestricted("bash", [rule("*", "*", "deny"), *bash({"*": "allow"})])
    assert not rules.is_unrestricted("bash", ASK_RM)
    assert not rules.is_unrestricted("bash", bash({"git *": "allow"}))
    assert rules.is_unrestricted("bash", bash({"rm *": "ask", "*": "allow"}))


def test_hidden_tools_are_those_whose_last_rule_denies_everything() -> None:
    ruleset = [rule("*", "*", "allow"), rule("edit", "*", "deny"), *bash({"*": "deny", "git *": "allow"})]
    tools = ["edit", "write", "patch", "multiedit", "apply_patch", "bash", "webfetch", "read"]
    hidden = rules.hidden_tools(tools, [*ruleset, rule("webfetch", "http*", "deny")])
    assert hidden == {"edit", "write", "patch", "multiedit", "apply_patch"}
    assert rules.hidden_tools(tools, []) == set()


# Rules of those below others.


@settings(max_examples=600 if LONG else 150)
@given(rulesets, rulesets, rulesets, rulesets, names, things, most_compared)
def test_children_and_grandchildren_may_do_no_more_than_their_parents_and_than_their_own_rules(
    parent: Ruleset, agent: Ruleset, third: Ruleset, session: Ruleset, name: str, thing: str, compared: Any
) -> None:
    def strictness(*held: Ruleset) -> int:
        return STRICTNESS[evaluate(name, thing, *held).action]

    limit = strictness(parent)
    with compared:
        assert strictness(agent, child_rules(parent, agent, session)) >= max(strictness(agent, session), limit)
        child = [*agent, *child_rules(parent, agent, [])]
        assert strictness(third, child_rules(child, third, session)) >= limit


prefixes = st.sampled_from(["*", "git *", "git push *", "rm *", "rm x"])
nested = st.lists(st.builds(Rule, permission=st.just("bash"), pattern=prefixes, action=actions), max_size=5)


@several
@given(nested, nested, st.sampled_from(["ls", "git status", "git push x", "rm x", "rm y"]))
def test_with_patterns_that_nest_it_is_exactly_the_stricter_of_the_two(parent: Ruleset, agent: Ruleset, command: str) -> None:
    child = evaluate("bash", command, agent, child_rules(parent, agent, [])).action
    both = {evaluate("bash", command, parent).action, evaluate("bash", command, agent).action}
    assert STRICTNESS[child] == max(map(STRICTNESS.__getitem__, both))


@pytest.mark.parametrize(("number", "pattern"), [(10_000, "run{} a?c *"), (200, "run{} a?c *" + "x" * 10_000 + " *")])
def test_many_and_long_rules_cost_a_child_no_more_than_they_must(number: int, pattern: str) -> None:
    many: Ruleset = bash({pattern.format(each): "ask" if each % 2 else "deny" for each in range(number)})
    command = pattern.replace("?", "b").replace("*", "x")
    started = time.process_time()
    held = child_rules(many, many, [])
    assert time.process_time() - started < 2
    assert [evaluate("bash", command.format(each), many, held).action for each in (0, 1)] == ["deny", "ask"]


def test_children_by_the_hundred_cost_together_no_more_than_one_may() -> None:
    top: Ruleset = [*bash({f"*{each}*b": "ask" for each in range(200)}), *bash({"rm*": "deny"})]
    children = [(f"{number}", "top", bash({f"a*{number}*{each}*": "allow" for each in range(200)})) for number in range(200)]
    started = time.process_time()
    held = rules.rules_below(("top", top), children)
    assert time.process_time() - started < 4
    assert {evaluate("bash", "rm x", held[child]).action for child, *_ in children} == {"deny"}
    assert {evaluate("bash", "a199b", held[child]).action for child, *_ in children} == {"ask"}


def test_a_parent_adds_its_denies_alone_and_at_the_end() -> None:
    everything, own = [rule("*", "*", "allow")], [rule("todowrite", "*", "deny")]
    assert child_rules([*everything, rule("edit", "*", "deny")], everything, own) == [*own, rule("edit", "*", "deny")]
    assert child_rules(everything, [rule("*", "*", "deny"), rule("read", "*", "allow")], []) == []


def test_a_parents_exception_holds_for_the_child_as_far_as_the_childs_rules_go() -> None:
    parent = [rule("*", "*", "allow"), *bash({"*": "deny", "git *": "allow"})]
    general, explorer = [rule("*", "*", "allow")], [rule("*", "*", "deny"), rule("read", "*", "allow")]
    for own, permission, pattern, action in (
        (general, "bash", "git status", "allow"),
        (general, "bash", "rm x", "deny"),
        (explorer, "bash", "git status", "deny"),
        (explorer, "read", "f", "allow"),
    ):
        assert evaluate(permission, pattern, own, child_rules(parent, own, [])).action == action


def test_a_session_that_a_client_puts_below_another_has_its_rules_and_cannot_lift_them() -> None:
    parent = [*bash({"*": "deny", "git *": "allow"}), rule("webfetch", "*", "allow")]
    assert rules.inherited_rules(parent, []) == parent
    assert rules.inherited_rules([], [rule("edit", "*", "deny")]) == [rule("edit", "*", "deny")]
    held = rules.inherited_rules(parent, [*bash({"*": "allow"}), rule("edit", "*", "ask")])
    asked = {("bash", "rm x"): "deny", ("bash", "git log"): "allow", ("webfetch", "u"): "allow", ("edit", "f"): "ask"}
    assert {each: evaluate(*each, held).action for each in asked} == asked


@several
@given(rulesets, rulesets, names, things, most_compared)
def test_rules_that_are_restricted_allow_no_more_than_either(
    own: Ruleset, limits: Ruleset, name: str, thing: str, compared: Any
) -> None:
    def strictness(held: Ruleset) -> int:
        return STRICTNESS[evaluate(name, thing, [rule("*", "*", "allow")], held).action]

    with compared:
        once = rules.within_limits(own, limits)
        assert strictness(once) >= max(strictness(own), strictness(limits))
        twice = rules.within_limits(once, limits)
        assert strictness(twice) >= strictness(once), "patterns that seem to overlap are denied where they meet again"
        assert len(rules.within_limits(twice, limits)) == len(twice)


@several
@given(rulesets, rulesets, names, things)
def test_added_rules_count_as_the_last_ones(own: Ruleset, added: Ruleset, name: str, thing: str) -> None:
    once = rules.with_rules_appended(own, added)
    assert evaluate(name, thing, once) == evaluate(name, thing, own, added)
    assert len(rules.with_rules_appended(once, added)) == len(once)


# Patterns.

written = st.text(alphabet="ab *?\n.[(", max_size=8)
values = st.text(alphabet="ab \n.[(", max_size=8)


def reference(pattern: str, value: str) -> bool:
    """The rule as it is told: whole string, `*` any run, `?` one character, a last ` *` may be missing."""
    tail = ""
    if pattern.endswith(" *"):
        pattern, tail = pattern[:-2], "( .*)?"
    pattern_text = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(pattern_text + tail, value, re.DOTALL) is not None


@given(written, written, values)
def test_patterns_match_as_described_and_cover_or_exclude_others(one: str, other: str, value: str) -> None:
    assert matches(one, value) == reference(one, value)
    assert not (covers(one, other) and matches(other, value)) or matches(one, value)
    assert not (disjoint(one, other) and matches(one, value) and matches(other, value))


@pytest.mark.parametrize(
    ("holds", "one", "other", "expected"),
    [
        *((matches, *pair, True) for pair in (("ls *", "ls"), ("ls *", "ls -l\n/x"), ("git status*", "git status --short"))),
        *((matches, *pair, True) for pair in (("*.env", "/a/b/.env"), ("a?c", "a\nc"))),
        *((matches, *pair, False) for pair in (("ls *", "lsof"), ("*.env", "/a/b/.ENV"), ("a", "ab"), ("a.c", "abc"))),
        *((covers, *pair, True) for pair in (("*", "git *"), ("git *", "git status*"), ("ls *", "ls"))),
        *((covers, *pair, False) for pair in (("git status*", "git *"), ("a?", "a*"))),
        *((disjoint, *pair, True) for pair in (("git *", "rm *"), ("bash", "edit"), ("*.py", "*.js"))),
        (disjoint, "git*", "*push*", False),
    ],
)
def test_patterns_as_rules_use_them(holds: Any, one: str, other: str, expected: bool) -> None:
    assert holds(one, other) is expected


def test_many_stars_cost_no_more_than_they_must() -> None:
    started = time.process_time()
    for pattern in ("*a" * 500 + "b", "*" * 5_000 + "b", "*a?a" * 100 + "b"):
        assert not matches(pattern, "a" * 20_000)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("text", ["a" * 5_000 + "b", "a?" * 1_000 + "b"])
def test_a_long_text_between_stars_costs_no_more_than_it_must(text: str) -> None:
    started = time.process_time()
    assert not matches(f"*{text}*", "a" * 1_000_000)
    assert time.process_time() - started < 2.5


def test_a_word_of_many_brackets_costs_no_more_than_it_must() -> None:
    started = time.process_time()
    subject = Subject("perf x", words=("perf", "[" * 20_000))
    found = decide_permission("bash", [subject], bash({"*": "allow", "rm *": "deny"}), [])
    assert found == "allow" and time.process_time() - started < 5


@pytest.mark.parametrize(
    ("denied", "subject"),
    [
        ("/" * 20_000 + "b", Subject("perf x", words=("perf", "x"), text="/" * 500_000)),
        ("a" * 200_000, Subject("perf x", words=("perf", "*" + "a" * 50_000 + "b*"))),
    ],
    ids=["mentioned", "globbed"],
)
def test_a_rule_about_a_long_name_costs_no_more_than_it_must(denied: str, subject: Subject) -> None:
    started = time.process_time()
    found = decide_permission("bash", [subject], bash({"*": "allow", denied: "deny"}), [])
    assert found != "deny" and time.process_time() - started < 2
