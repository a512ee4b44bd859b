from hypothesis import given, settings
from hypothesis import strategies as st
from long_form import LONG

from app.permissions.rules import child_rules, evaluate, inherited_rules, with_rules_appended, within_limits
from app.schema.permission import Action, Rule, Ruleset

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}

names = st.sampled_from(["bash", "edit"])
name_patterns = st.sampled_from(["bash", "edit", "*", "b*"])
things = st.text(alphabet="ab ", min_size=0, max_size=4)
thing_patterns = st.text(alphabet="ab *?", min_size=0, max_size=4) | st.just("*")
rulesets = st.lists(
    st.builds(Rule, permission=name_patterns, pattern=thing_patterns, action=st.sampled_from(["allow", "deny", "ask"])),
    max_size=5,
)


def rule(permission: str, pattern: str, action: Action) -> Rule:
    return Rule(permission=permission, pattern=pattern, action=action)


@settings(max_examples=600 if LONG else 150)
@given(rulesets, rulesets, rulesets, names, things)
def test_a_child_may_do_no_more_than_its_parent_and_no_more_than_its_own_rules(
    parent: Ruleset, agent: Ruleset, session: Ruleset, name: str, thing: str
) -> None:
    child = evaluate(name, thing, agent, child_rules(parent, agent, session)).action
    own = evaluate(name, thing, agent, session).action
    limit = evaluate(name, thing, parent).action
    assert STRICTNESS[child] >= max(STRICTNESS[own], STRICTNESS[limit])


@settings(max_examples=300 if LONG else 100)
@given(rulesets, rulesets, rulesets, rulesets, names, things)
def test_nor_may_a_grandchild(one: Ruleset, two: Ruleset, three: Ruleset, four: Ruleset, name: str, thing: str) -> None:
    child = [*two, *child_rules(one, two, [])]
    grandchild = [*three, *child_rules(child, three, four)]
    limit = evaluate(name, thing, one).action
    assert STRICTNESS[evaluate(name, thing, grandchild).action] >= STRICTNESS[limit]


prefixes = st.sampled_from(["*", "git *", "git push *", "rm *", "rm x"])
nested = st.lists(
    st.builds(Rule, permission=st.just("bash"), pattern=prefixes, action=st.sampled_from(["allow", "deny", "ask"])), max_size=5
)


@settings(max_examples=300 if LONG else 100)
@given(nested, nested, st.sampled_from(["ls", "git status", "git push x", "rm x", "rm y"]))
def test_with_patterns_that_nest_it_is_exactly_the_stricter_of_the_two(parent: Ruleset, agent: Ruleset, command: str) -> None:
    child = evaluate("bash", command, agent, child_rules(parent, agent, [])).action
    both = {evaluate("bash", command, parent).action, evaluate("bash", command, agent).action}
    assert STRICTNESS[child] == max(map(STRICTNESS.__getitem__, both))


def test_the_parents_denies_stand_at_the_end() -> None:
    parent = [rule("*", "*", "allow"), rule("edit", "*", "deny")]
    session = [rule("todowrite", "*", "deny")]
    assert child_rules(parent, [rule("*", "*", "allow")], session) == [*session, rule("edit", "*", "deny")]


def test_a_parents_exception_holds_for_the_child_as_far_as_the_childs_rules_go() -> None:
    parent = [rule("*", "*", "allow"), rule("bash", "*", "deny"), rule("bash", "git *", "allow")]
    general, explorer = [rule("*", "*", "allow")], [rule("*", "*", "deny"), rule("read", "*", "allow")]
    assert evaluate("bash", "git status", general, child_rules(parent, general, [])).action == "allow"
    assert evaluate("bash", "rm x", general, child_rules(parent, general, [])).action == "deny"
    assert evaluate("bash", "git status", explorer, child_rules(parent, explorer, [])).action == "deny"
    assert evaluate("read", "f", explorer, child_rules(parent, explorer, [])).action == "allow"


def test_a_parent_that_may_do_everything_adds_nothing() -> None:
    assert child_rules([rule("*", "*", "allow")], [rule("*", "*", "deny"), rule("read", "*", "allow")], []) == []


def test_a_session_that_a_client_puts_below_another_has_its_rules_and_cannot_lift_them() -> None:
    parent = [rule("bash", "*", "deny"), rule("bash", "git *", "allow"), rule("webfetch", "*", "allow")]
    assert inherited_rules(parent, []) == parent
    assert inherited_rules([], [rule("edit", "*", "deny")]) == [rule("edit", "*", "deny")]
    rules = inherited_rules(parent, [rule("bash", "*", "allow"), rule("edit", "*", "ask")])
    actions = [
        evaluate(*asked, rules).action for asked in (("bash", "rm x"), ("bash", "git log"), ("webfetch", "u"), ("edit", "f"))
    ]
    assert actions == ["deny", "allow", "allow", "ask"]


@settings(max_examples=300 if LONG else 100)
@given(rulesets, rulesets, names, things)
def test_rules_that_are_restricted_allow_no_more_than_either(own: Ruleset, limits: Ruleset, name: str, thing: str) -> None:
    everything = rule("*", "*", "allow")
    once = within_limits(own, limits)
    actions = [evaluate(name, thing, [everything], rules).action for rules in (once, own, limits)]
    strictness = [STRICTNESS[action] for action in actions]
    assert strictness[0] >= max(strictness[1:])
    twice = within_limits(once, limits)
    again = evaluate(name, thing, [everything], twice).action
    assert STRICTNESS[again] >= strictness[0], "patterns that seem to overlap are denied where they meet again"
    assert len(within_limits(twice, limits)) == len(twice)


@settings(max_examples=300 if LONG else 100)
@given(rulesets, rulesets, names, things)
def test_added_rules_count_as_the_last_ones(rules: Ruleset, added: Ruleset, name: str, thing: str) -> None:
    assert evaluate(name, thing, with_rules_appended(rules, added)) == evaluate(name, thing, rules, added)
    assert len(with_rules_appended(with_rules_appended(rules, added), added)) == len(with_rules_appended(rules, added))
