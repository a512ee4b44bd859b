"""A simple command as the rules judge it: as typed, in other spellings, and how much of it can be seen."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.permission.arity import always_pattern
from app.permission.rules import Sight, Subject
from app.permission.shell.steps import Runs
from app.permission.shell.words import (
    Word,
    has_glob,
    unquoted,
)
from app.permission.shell.wrappers import Unwrapped
from app.permission.spellings import spellings

_EVALUATES_SUBSCRIPTS = {
    "declare",
    "typeset",
    "local",
    "export",
    "readonly",
    "let",
    "test",
    "[",
    "printf",
    "read",
    "unset",
    "wait",
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """One simple command. `always`: what a reply of `always` may allow; None where that would allow what nobody saw."""

    subject: Subject
    always: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A simple command before it is judged. `redirections` as typed."""

    words: Sequence[Word]
    stdin: Word
    redirections: str = ""
    is_unseen: bool = False
    more_arguments: bool = False


def flattened(words: Sequence[Word]) -> list[Word]:
    """One word a field."""
    return [word if len(word.fields) == 1 else Word(unquoted(one), (one,)) for word in words for one in word.fields]


def text_of(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


def as_judged(call: Call, flat: Sequence[Word], bare: str, found: Unwrapped, started: Sequence[Invocation]) -> Invocation:
    text = text_of(call.words)
    plain = [word.plain for word in flat]
    others = spellings(plain, reorder=not any(isinstance(step, Runs) for step in found.steps))
    if call.redirections:
        others.append(f"{text} {call.redirections}")
    for inner in started:
        others += [inner.subject.pattern, *inner.subject.spellings]
    sight = _sight(call, flat, bare, found, started)
    distinct = tuple(dict.fromkeys(other for other in others if other != text))
    always = None if sight == "unseen" else always_pattern([word.text for word in call.words])
    return Invocation(Subject(text, distinct, sight), always)


def _sight(call: Call, flat: Sequence[Word], bare: str, found: Unwrapped, started: Sequence[Invocation]) -> Sight:
    sights = {inner.subject.sight for inner in started}
    if call.is_unseen or found.is_unseen or "unseen" in sights or _is_name_unseen(call.words[0], flat[0]):
        return "unseen"
    if bare in _EVALUATES_SUBSCRIPTS and any(holds_code(word.text) for word in flat[1:]):
        return "unseen"
    return "foreign" if found.is_foreign or "foreign" in sights else "clear"


def _is_name_unseen(name: Word, first: Word) -> bool:
    is_expanded = re.search(r"\$(?!['\"])|`", name.text) is not None
    return is_expanded or not first.is_known or (has_glob(first.fields[0]) and name.text != "[")


def holds_code(typed: str) -> bool:
    """Single quotes around a substitution: it isn't run now, but by whatever evaluates the text later."""
    return re.search(r"'[^']*(\$\(|`)[^']*'", typed) is not None
