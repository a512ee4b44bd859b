from hypothesis import given
from hypothesis import strategies as st

from app.permissions.rules import (
    Allowed,
    Forbidden,
    NeedsApproval,
    Subject,
    applies,
    decide_permission,
    evaluate,
    hidden_tools,
    unrestricted,
)
from app.schema.permission import Action, Rule, Ruleset

actions = st.sampled_from(["allow", "deny", "ask"])
names = st.sampled_from(["bash", "edit", "read"])
name_patterns = st.sampled_from(["bash", "edit", "read", "*", "b*"])
things = st.text(alphabet="ab", min_size=1, max_size=3)
thing_patterns = st.text(alphabet="ab*", min_size=1, max_size=3)
rules = st.builds(Rule, permission=name_patterns, pattern=thing_patterns, action=actions)
rulesets = st.lists(rules, max_size=6)
approvals = st.lists(st.builds(Rule, permission=names, pattern=thing_patterns, action=st.just("allow")), max_size=4)


def bash(*pairs: tuple[str, Action]) -> Ruleset:
    return [Rule(permission="bash", pattern=pattern, action=action) for pattern, action in pairs]


@given(names, things, rulesets, rulesets)
def test_the_last_rule_that_matches_wins_over_all_rulesets(name: str, thing: str, one: Ruleset, other: Ruleset) -> None:
    matching = [rule for rule in [*one, *other] if applies(rule, name, thing)]
    expected = matching[-1] if matching else Rule(permission=name, pattern="*", action="ask")
    assert evaluate(name, thing, one, other) == expected


@given(names, st.lists(things, max_size=4), rulesets, approvals)
def test_a_configured_deny_beats_every_approval(name: str, asked: list[str], ruleset: Ruleset, approved: Ruleset) -> None:
    denied = any(evaluate(name, thing, ruleset).action == "deny" for thing in asked)
    assert isinstance(decide_permission(name, asked, ruleset, approved), Forbidden) == denied


@given(names, st.lists(things, max_size=4), rulesets, approvals)
def test_without_a_deny_each_pattern_needs_an_allow_or_an_approval(
    name: str, asked: list[str], ruleset: Ruleset, approved: Ruleset
) -> None:
    decision = decide_permission(name, asked, ruleset, approved)
    if not isinstance(decision, Forbidden):
        free = all(evaluate(name, thing, ruleset, approved).action == "allow" for thing in asked)
        assert isinstance(decision, Allowed) == free


@given(names, things, st.lists(things, max_size=3), st.sampled_from(["readable", "foreign", "unreadable"]), rulesets, approvals)
def test_spellings_and_poor_sight_only_ever_restrict(
    name: str, thing: str, spellings: list[str], readability: str, ruleset: Ruleset, approved: Ruleset
) -> None:
    order = [Allowed, NeedsApproval, Forbidden]
    subject = Subject(thing, tuple(spellings), readability)  # type: ignore[arg-type]
    plain = decide_permission(name, [thing], ruleset, approved)
    assert order.index(type(decide_permission(name, [subject], ruleset, approved))) >= order.index(type(plain))


def test_a_deny_behind_an_ask_is_seen_before_anyone_is_asked() -> None:
    assert isinstance(decide_permission("bash", ["touch x", "rm x"], bash(("*", "ask"), ("rm *", "deny")), []), Forbidden)


def test_forbidden_carries_the_rules_of_that_permission() -> None:
    ruleset = [Rule(permission="edit", pattern="*", action="deny"), *bash(("*", "allow"), ("rm *", "deny"))]
    assert decide_permission("bash", ["rm x"], ruleset, []) == Forbidden(ruleset[1:])


def test_nothing_to_ask_about_is_allowed() -> None:
    assert decide_permission("bash", [], bash(("*", "deny")), []) == Allowed()


def test_no_rule_means_ask() -> None:
    assert decide_permission("bash", ["ls"], [], []) == NeedsApproval()


def test_a_rule_that_also_matches_the_text_does_not_count_against_its_spellings() -> None:
    subject = Subject("./gradlew build", ("gradlew build",))
    assert decide_permission("bash", [subject], bash(("*", "deny"), ("./gradlew *", "allow")), []) == Allowed()


def test_a_rule_evaded_by_spelling_counts() -> None:
    subject = Subject("/bin/rm x", ("rm x",))
    assert isinstance(decide_permission("bash", [subject], bash(("*", "allow"), ("rm *", "deny")), []), Forbidden)
    assert decide_permission("bash", [subject], bash(("*", "allow"), ("rm *", "ask")), []) == NeedsApproval()


def test_an_approved_spelling_is_not_asked_about_again() -> None:
    ruleset = bash(("*", "allow"), ("rm *", "ask"))
    assert decide_permission("bash", [Subject("/bin/rm x", ("rm x",))], ruleset, bash(("/bin/rm*", "allow"))) == Allowed()
    assert decide_permission("bash", [Subject("/bin/rm x", ("rm x",))], ruleset, bash(("rm*", "allow"))) == Allowed()


def test_what_cannot_be_seen_is_asked_about_whatever_was_approved() -> None:
    subject = Subject("$CMD x", readability="unreadable")
    assert decide_permission("bash", [subject], bash(("*", "allow"), ("rm *", "deny")), bash(("*", "allow"))) == NeedsApproval()
    assert decide_permission("bash", [subject], bash(("*", "allow")), []) == Allowed()


def test_a_foreign_program_needs_a_rule_that_names_it() -> None:
    subject = Subject("python -c 1", readability="foreign")
    assert decide_permission("bash", [subject], bash(("*", "allow"), ("rm *", "deny")), []) == NeedsApproval()
    assert decide_permission("bash", [subject], bash(("*", "ask"), ("python *", "allow")), []) == Allowed()
    assert decide_permission("bash", [subject], bash(("*", "ask")), bash(("python -c*", "allow"))) == Allowed()


def test_a_program_that_a_rule_names_is_found_wherever_a_command_names_it() -> None:
    ruleset = bash(("*", "allow"), ("rm *", "deny"), ("git push*", "ask"))
    for words in (["perf", "stat", "rm", "x"], ["perf", "/bin/RM", "x"]):
        assert isinstance(decide_permission("bash", [Subject(" ".join(words), words=tuple(words))], ruleset, []), Forbidden)
    for text in ("(rm x)", "ls;rm", "a=/bin/rm", "git\tpush", "cd x && git -C y push"):
        assert decide_permission("bash", [Subject("any", text=text)], ruleset, bash(("*", "allow"))) == NeedsApproval(), text
    for text in ("remove", "rm.txt", "x-rm", "git pull", "rmdir x"):
        assert decide_permission("bash", [Subject("any", text=text)], ruleset, []) == Allowed(), text


def test_an_approval_holds_for_a_program_that_it_names_alone() -> None:
    subject = Subject("perf stat rm x", words=("perf", "stat", "rm", "x"))
    ruleset = bash(("*", "allow"), ("rm *", "ask"))
    assert decide_permission("bash", [subject], ruleset, bash(("perf *", "allow"))) == NeedsApproval()
    assert decide_permission("bash", [subject], ruleset, bash(("rm *", "allow"))) == Allowed()


def test_a_rule_that_another_overrides_names_nothing() -> None:
    ruleset = bash(("rm *", "deny"), ("*", "allow"))
    assert decide_permission("bash", [Subject("perf rm", words=("perf", "rm"), text="rm x")], ruleset, []) == Allowed()


def test_unrestricted_looks_behind_the_last_rule_for_everything() -> None:
    explore = [Rule(permission="*", pattern="*", action="deny"), *bash(("*", "allow"))]
    assert unrestricted("bash", explore)
    assert not unrestricted("bash", bash(("*", "allow"), ("rm *", "ask")))
    assert not unrestricted("bash", bash(("git *", "allow")))
    assert unrestricted("bash", bash(("rm *", "ask"), ("*", "allow")))


def test_hidden_tools_are_those_whose_last_rule_denies_everything() -> None:
    ruleset = [
        Rule(permission="*", pattern="*", action="allow"),
        Rule(permission="edit", pattern="*", action="deny"),
        Rule(permission="bash", pattern="*", action="deny"),
        Rule(permission="bash", pattern="git *", action="allow"),
        Rule(permission="webfetch", pattern="http*", action="deny"),
    ]
    tools = ["edit", "write", "patch", "multiedit", "apply_patch", "bash", "webfetch", "read"]
    assert hidden_tools(tools, ruleset) == {"edit", "write", "patch", "multiedit", "apply_patch"}
    assert hidden_tools(tools, []) == set()
