"""The rules of a session below another: never more than its parent may; of a subagent, never more than its own agent may."""

from app.permission.wildcard import covers, disjoint
from app.schema.permission import Action, Rule, Ruleset

_EVERYTHING = Rule(permission="*", pattern="*", action="allow")
_UNSAID = Rule(permission="*", pattern="*", action="ask")
_STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}


def child_rules(parent_effective: Ruleset, child_agent: Ruleset, child_session: Ruleset) -> Ruleset:
    """What the child's session stores; its effective rules are `child_agent` followed by these.

    They end with the parent's denies and asks. A parent's later exception to one of them (`bash *: deny`, `bash git*: allow`)
    opens it again only as far as the child's own rules go. Where two patterns overlap in a way that no pattern can express,
    the stricter of the two wins for more than the overlap: a child may then do less than both, never more than either.
    """
    own = [_UNSAID, *child_agent, *child_session]
    tail: Ruleset = []
    for limit in [_UNSAID, *parent_effective]:
        tail = [rule for rule in tail if not _covers(limit, rule)]
        if limit.action != "allow" or any(_overlap(limit, rule) for rule in tail):
            tail = extended(tail, _narrowed(own, limit))
    return [*child_session, *_without_overruled(tail)]


def inherited(parent_session: Ruleset, own: Ruleset) -> Ruleset:
    """What a session stores that a client puts below another: the parent's rules, and its own within their limits."""
    if not parent_session or not own:
        return [*parent_session, *own]
    return [*parent_session, *child_rules([_EVERYTHING, *parent_session], [_EVERYTHING], own)]


def extended(rules: Ruleset, added: Ruleset) -> Ruleset:
    """`added` behind the rules that are there. An earlier rule for the same permission and pattern goes: the last one counts."""
    spoken_of = {(rule.permission, rule.pattern) for rule in added}
    return [*(rule for rule in rules if (rule.permission, rule.pattern) not in spoken_of), *added]


def restricted(own: Ruleset, limits: Ruleset) -> Ruleset:
    """`own`, followed by what keeps it within `limits`; both follow the rules of an agent that may do everything."""
    if not limits:
        return own
    return extended(own, child_rules([_EVERYTHING, *limits], [_EVERYTHING], own)[len(own) :])


def _narrowed(own: Ruleset, limit: Rule) -> Ruleset:
    """The child's own rules within the parent's rule, each with the stricter of the two actions."""
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


def _without_overruled(rules: Ruleset) -> Ruleset:
    """Rules that a later one covers have no say."""
    return [rule for at, rule in enumerate(rules) if not any(_covers(later, rule) for later in rules[at + 1 :])]


def _covers(wide: Rule, narrow: Rule) -> bool:
    return covers(wide.permission, narrow.permission) and covers(wide.pattern, narrow.pattern)
