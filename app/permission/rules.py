"""What permission rules say, without asking anyone (behaviour §10). The last rule that matches wins; where none does, ask."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal

from app.permission.wildcard import matches
from app.schema.permission import Action, Rule, Ruleset

Sight = Literal["clear", "foreign", "unseen"]

_EDITING_TOOLS = {"edit", "write", "patch", "multiedit", "apply_patch"}


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that leave is asked for. `pattern` is what the person is shown and what rules are matched with.

    `spellings`: other ways to write the same thing. They never allow anything; they stop a deny or ask rule from being
    evaded by the way a thing is written.
    `sight`: "foreign" does what a program in another language says, "unseen" does what only its run will show.
    """

    pattern: str
    spellings: tuple[str, ...] = ()
    sight: Sight = "clear"


@dataclass(frozen=True, slots=True)
class Allowed:
    pass


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    pass


@dataclass(frozen=True, slots=True)
class Forbidden:
    """`rules`: every rule about this permission, so that the model can learn what is open to it."""

    rules: list[Rule]


Decision = Allowed | NeedsApproval | Forbidden


def applies(rule: Rule, permission: str, pattern: str) -> bool:
    return matches(rule.permission, permission) and matches(rule.pattern, pattern)


def evaluate(permission: str, pattern: str, *rulesets: Ruleset) -> Rule:
    for rule in reversed(list(chain(*rulesets))):
        if applies(rule, permission, pattern):
            return rule
    return Rule(permission=permission, pattern="*", action="ask")


def decide_permission(permission: str, subjects: Iterable[str | Subject], ruleset: Ruleset, approved: Ruleset) -> Decision:
    """`ruleset` is what is configured; `approved` is what people allowed with `always`: it turns an ask into an allow and never
    a deny. Every subject is judged before any is asked about."""
    of_permission = rules_of(permission, ruleset)
    judge = _Judge(permission, of_permission, rules_of(permission, approved), unrestricted(permission, of_permission))
    verdicts = {judge.verdict(subject if isinstance(subject, Subject) else Subject(subject)) for subject in subjects}
    if "deny" in verdicts:
        return Forbidden(of_permission)
    return NeedsApproval() if "ask" in verdicts else Allowed()


def rules_of(permission: str, ruleset: Ruleset) -> Ruleset:
    return [rule for rule in ruleset if _names(rule.permission, permission)]


_names = lru_cache(maxsize=4096)(matches)
"""Permissions are few and asked about again and again, unlike their patterns."""


def unrestricted(permission: str, ruleset: Ruleset) -> bool:
    """Everything is allowed: a rule for `*` allows, and no rule after it denies or asks."""
    for rule in reversed(rules_of(permission, ruleset)):
        if rule.action != "allow":
            return False
        if set(rule.pattern) == {"*"}:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Judge:
    """A rule counts against a spelling only if it does not match the text as typed. If it matches both, then it has had its say
    about the text, and a later rule exempted the text on purpose (`*: ask`, then `./gradlew *: allow`)."""

    permission: str
    ruleset: Ruleset
    approved: Ruleset
    unrestricted: bool

    def verdict(self, subject: Subject) -> Action:
        typed = evaluate(self.permission, subject.pattern, self.ruleset)
        evaded = self._evaded(subject)
        if "deny" in {typed.action, *evaded.values()}:
            return "deny"
        if subject.sight == "unseen":
            return "allow" if self.unrestricted else "ask"
        if self._is_approved(subject.pattern):
            return "allow"
        if subject.sight == "foreign" and not self.unrestricted and _is_broad(typed):
            return "ask"
        asking = [spelling for spelling, action in evaded.items() if action == "ask"]
        return typed.action if all(map(self._is_approved, asking)) else "ask"

    def _evaded(self, subject: Subject) -> dict[str, Action]:
        found = {spelling: evaluate(self.permission, spelling, self.ruleset) for spelling in subject.spellings}
        return {text: rule.action for text, rule in found.items() if not matches(rule.pattern, subject.pattern)}

    def _is_approved(self, pattern: str) -> bool:
        return evaluate(self.permission, pattern, self.approved).action == "allow"


def _is_broad(rule: Rule) -> bool:
    """It does not name what it allows: `*`, `* --help`."""
    return rule.pattern.startswith(("*", "?"))


def hidden_tools(tool_ids: Iterable[str], ruleset: Ruleset) -> set[str]:
    """The tools that a model is not shown: the last rule of their permission denies every pattern."""
    return {tool for tool in tool_ids if _is_shut(permission_of(tool), ruleset)}


def permission_of(tool_id: str) -> str:
    return "edit" if tool_id in _EDITING_TOOLS else tool_id


def _is_shut(permission: str, ruleset: Ruleset) -> bool:
    rules: Sequence[Rule] = rules_of(permission, ruleset)
    return bool(rules) and rules[-1].pattern == "*" and rules[-1].action == "deny"
