"""Evaluates permission rules. Pure. The last matching rule wins; without a match the action is `ask`.

The rules of a child session are never broader than its parent's, and for a subagent never broader than its agent's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal

from app.permissions.spellings import NamedPrograms, spellings
from app.permissions.wildcard import covers, disjoint, matches
from app.schema.permission import EDITING_TOOLS, Action, Rule, Ruleset

Readability = Literal["readable", "foreign", "unreadable"]

MAX_WORDS = 100
"""Programs are looked for among so many words of a command. The words after them are searched as text."""

MAX_COMPARED = 500
"""The rules of a parent and a child are compared with each other if there are at most so many together, those with long patterns
counted more than once. Comparing thousands, which a project's configuration may have, would take minutes, and it is done in the
transaction that makes the child."""
_CHARACTERS_A_RULE = 200

_applies_to_permission = lru_cache(maxsize=4096)(matches)
"""Cached because there are few permissions and each is evaluated often, unlike patterns."""
_EVERYTHING = Rule(permission="*", pattern="*", action="allow")
_DEFAULT = Rule(permission="*", pattern="*", action="ask")
_STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that needs permission. `pattern` is what the user sees and what rules match.

    `spellings`: other ways to write the same thing. They never allow anything, but keep deny and ask rules from being evaded.
    `readability`: `foreign` runs code in another language, `unreadable` runs something that is known only at run time.
    `words`: of a command that may run programs that its words name, without quotes. `text`: what else it may run: scripts, input,
    values. A rule about a program holds wherever the program is named. `always`: the pattern of a shell command that a reply of
    `always` may allow; None where that allows what the user has not seen.
    """

    pattern: str
    spellings: tuple[str, ...] = ()
    readability: Readability = "readable"
    words: tuple[str, ...] = ()
    text: str = ""
    always: str | None = None


def evaluate(permission: str, pattern: str, *rulesets: Ruleset) -> Rule:
    for rule in reversed(list(chain(*rulesets))):
        if matches(rule.permission, permission) and matches(rule.pattern, pattern):
            return rule
    return Rule(permission=permission, pattern="*", action="ask")


def decide_permission(permission: str, subjects: Iterable[str | Subject], ruleset: Ruleset, approved: Ruleset) -> Action:
    """`ruleset` is the configuration; `approved` holds the replies of `always`: they turn an ask into an allow, never a deny.
    All subjects are evaluated before the user is asked: the strictest action counts."""
    relevant = rules_for(permission, ruleset)
    evaluator = _SubjectEvaluator(
        permission,
        relevant,
        rules_for(permission, approved),
        is_unrestricted(permission, relevant),
        NamedPrograms(rule.pattern for rule in relevant if rule.action != "allow"),
    )
    actions = (evaluator.action_for(subject if isinstance(subject, Subject) else Subject(subject)) for subject in subjects)
    return max(actions, key=_STRICTNESS.__getitem__, default="allow")


def rules_for(permission: str, ruleset: Ruleset) -> Ruleset:
    return [rule for rule in ruleset if _applies_to_permission(rule.permission, permission)]


def is_unrestricted(permission: str, ruleset: Ruleset) -> bool:
    """Whether everything is allowed: a rule for `*` allows, and no later rule denies or asks."""
    for rule in reversed(rules_for(permission, ruleset)):
        if rule.action != "allow":
            return False
        if set(rule.pattern) == {"*"}:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _SubjectEvaluator:
    """A rule applies to another spelling only if it does not match the text as typed. If it matches both, a later rule exempts
    the typed text on purpose (`*: ask`, then `./gradlew *: allow`)."""

    permission: str
    ruleset: Ruleset
    approved: Ruleset
    is_unrestricted: bool
    named: NamedPrograms

    def action_for(self, subject: Subject) -> Action:
        typed = evaluate(self.permission, subject.pattern, self.ruleset)
        by_spelling = self._actions_of(subject, subject.spellings)
        by_name = self._actions_of(subject, self._commands_named(subject.words))
        if "deny" in {typed.action, *by_spelling.values(), *by_name.values()}:
            return "deny"
        if subject.readability == "unreadable":
            return "allow" if self.is_unrestricted else "ask"
        if self._may_run_named(subject) or not self._are_approved(by_name):
            return "ask"
        if self._is_approved(subject.pattern):
            return "allow"
        if subject.readability == "foreign" and not self.is_unrestricted and _is_broad(typed):
            return "ask"
        return typed.action if self._are_approved(by_spelling) else "ask"

    def _may_run_named(self, subject: Subject) -> bool:
        """Whether the command may run a program that a rule denies or asks about: a word's wildcards may expand to its name, or
        the text mentions it and no later rule allows that."""
        mentioned = (evaluate(self.permission, pattern, self.ruleset) for pattern in self.named.mentioned_in(subject.text))
        return any(map(self.named.may_expand_to_one, subject.words[1:])) or any(rule.action != "allow" for rule in mentioned)

    def _commands_named(self, words: Sequence[str]) -> Iterator[str]:
        """The commands that may begin at any of the words: `perf stat rm x` → `rm x`."""
        for index, word in enumerate(words[1:MAX_WORDS], 1):
            if self.named.has(word):
                yield from spellings(words[index:])

    def _actions_of(self, subject: Subject, others: Iterable[str]) -> dict[str, Action]:
        """The actions for other texts than the typed one, by text: those of rules that do not match the typed text too."""
        found = {text: evaluate(self.permission, text, self.ruleset) for text in others}
        return {text: rule.action for text, rule in found.items() if not matches(rule.pattern, subject.pattern)}

    def _are_approved(self, actions: Mapping[str, Action]) -> bool:
        return all(self._is_approved(text) for text, action in actions.items() if action == "ask")

    def _is_approved(self, pattern: str) -> bool:
        return evaluate(self.permission, pattern, self.approved).action == "allow"


def _is_broad(rule: Rule) -> bool:
    """Whether the rule starts with a wildcard, so that it does not name what it allows: `*`, `* --help`."""
    return rule.pattern.startswith(("*", "?"))


def hidden_tools(tool_ids: Iterable[str], ruleset: Ruleset) -> set[str]:
    """The tools that are not offered to the model: the last rule of their permission denies every pattern."""
    hidden = set()
    for tool_id in tool_ids:
        rules = rules_for("edit" if tool_id in EDITING_TOOLS else tool_id, ruleset)
        if rules and rules[-1].pattern == "*" and rules[-1].action == "deny":
            hidden.add(tool_id)
    return hidden


def child_rules(parent_effective: Ruleset, child_agent: Ruleset, child_session: Ruleset, most: int | None = None) -> Ruleset:
    """The rules to store in the child session; its effective rules are `child_agent` followed by these.

    They end with the parent's denies and asks. A parent's later exception to one of them (`bash *: deny`, `bash git*: allow`)
    applies only as far as the child's own rules allow. Where two patterns overlap in a way that no pattern can express, the
    stricter one applies to more than the overlap: the child may then do less than both rules allow, never more than either.
    With more than `most` rules, by default MAX_COMPARED, it is asked about all that none of them denies.
    """
    own = [_DEFAULT, *child_agent, *child_session]
    if _size(own) + _size(parent_effective) > (MAX_COMPARED if most is None else most):
        denied = {(rule.permission, rule.pattern): rule for rule in (*own, *parent_effective) if rule.action == "deny"}
        return [*child_session, _DEFAULT, *denied.values()]
    tail: Ruleset = []
    for limit in [_DEFAULT, *parent_effective]:
        tail = [rule for rule in tail if not _covers(limit, rule)]
        if limit.action != "allow" or any(_overlap(limit, rule) for rule in tail):
            tail = with_rules_appended(tail, _limited_rules(own, limit))
    return [*child_session, *_without_overridden(tail)]


def inherited_rules(parent_session: Ruleset, own: Ruleset) -> Ruleset:
    """The rules to store in a session that a client creates as a child: the parent's, then its own within their limits."""
    if not parent_session or not own:
        return [*parent_session, *own]
    return [*parent_session, *child_rules([_EVERYTHING, *parent_session], [_EVERYTHING], own)]


def with_rules_appended(rules: Ruleset, added: Ruleset) -> Ruleset:
    """`rules` followed by `added`. Earlier rules for the same permission and pattern are removed: the last match wins."""
    replaced = {(rule.permission, rule.pattern) for rule in added}
    return [*(rule for rule in rules if (rule.permission, rule.pattern) not in replaced), *added]


def within_limits(own: Ruleset, limits: Ruleset, most: int | None = None) -> Ruleset:
    """`own`, followed by the rules that keep it within `limits`. Both start from an agent that may do everything."""
    if not limits:
        return own
    return with_rules_appended(own, child_rules([_EVERYTHING, *limits], [_EVERYTHING], own, most)[len(own) :])


def rules_below(top: tuple[str, Ruleset], descendants: Iterable[tuple[str, str, Ruleset]]) -> dict[str, Ruleset]:
    """The rules of a session and its descendants, each within its parent's. `descendants`: the id, the parent's and the rules of
    each, parents first. All together cost what one may: the others are asked as if they had too many rules."""
    rules, left = dict([top]), MAX_COMPARED**2
    for session_id, parent_id, own in descendants:
        limits = rules[parent_id]
        left -= (_size(own) + _size(limits)) ** 2
        rules[session_id] = within_limits(own, limits, MAX_COMPARED if left >= 0 else 0)
    return rules


def _size(rules: Ruleset) -> int:
    return len(rules) + sum(len(rule.permission) + len(rule.pattern) for rule in rules) // _CHARACTERS_A_RULE


def _limited_rules(own: Ruleset, limit: Rule) -> Ruleset:
    """The child's rules that overlap the parent's rule, each with the stricter of the two actions."""
    if limit.action == "deny":
        return [limit]
    return [rule for mine in own if (rule := _stricter(mine, limit)) is not None]


def _stricter(mine: Rule, limit: Rule) -> Rule | None:
    if not _overlap(mine, limit):
        return None
    action = max(mine.action, limit.action, key=_STRICTNESS.__getitem__)
    permission = _narrower(mine.permission, limit.permission)
    pattern = _narrower(mine.pattern, limit.pattern)
    if permission is not None and pattern is not None:
        return Rule(permission=permission, pattern=pattern, action=action)
    if action == limit.action:
        return None
    return Rule(permission=mine.permission, pattern=mine.pattern, action="deny")


def _narrower(one: str, other: str) -> str | None:
    if covers(one, other):
        return other
    return one if covers(other, one) else None


def _overlap(one: Rule, other: Rule) -> bool:
    return not (disjoint(one.permission, other.permission) or disjoint(one.pattern, other.pattern))


def _without_overridden(rules: Ruleset) -> Ruleset:
    """Without rules that a later one fully covers."""
    return [rule for index, rule in enumerate(rules) if not any(_covers(later, rule) for later in rules[index + 1 :])]


def _covers(wide: Rule, narrow: Rule) -> bool:
    return covers(wide.permission, narrow.permission) and covers(wide.pattern, narrow.pattern)
