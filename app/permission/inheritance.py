"""Permission rules of child sessions: never broader than the parent's, and for a subagent never broader than its agent's."""

from app.permission.wildcard import covers, disjoint
from app.schema.permission import Action, Rule, Ruleset

_EVERYTHING = Rule(permission="*", pattern="*", action="allow")
_DEFAULT = Rule(permission="*", pattern="*", action="ask")
_STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}


def child_rules(parent_effective: Ruleset, child_agent: Ruleset, child_session: Ruleset) -> Ruleset:
    """The rules to store in the child session; its effective rules are `child_agent` followed by these.

    They end with the parent's denies and asks. A parent's later exception to one of them (`bash *: deny`, `bash git*: allow`)
    applies only as far as the child's own rules allow. Where two patterns overlap in a way that no pattern can express, the
    stricter one applies to more than the overlap: the child may then do less than both rules allow, never more than either.
    """
    own = [_DEFAULT, *child_agent, *child_session]
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


def within_limits(own: Ruleset, limits: Ruleset) -> Ruleset:
    """`own`, followed by the rules that keep it within `limits`. Both start from an agent that may do everything."""
    if not limits:
        return own
    return with_rules_appended(own, child_rules([_EVERYTHING, *limits], [_EVERYTHING], own)[len(own) :])


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
    """Without the rules that a later one fully covers."""
    return [rule for at, rule in enumerate(rules) if not any(_covers(later, rule) for later in rules[at + 1 :])]


def _covers(wide: Rule, narrow: Rule) -> bool:
    return covers(wide.permission, narrow.permission) and covers(wide.pattern, narrow.pattern)
