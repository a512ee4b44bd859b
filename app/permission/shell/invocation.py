"""A simple command as the rules judge it: as typed, in other spellings, and how much of it can be seen."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.permission.arity import always_pattern
from app.permission.rules import Sight, Subject
from app.permission.shell.programs import StartedProgram
from app.permission.shell.words import (
    Word,
    has_glob,
    unquoted,
)
from app.permission.spellings import spellings

_EVALUATES_SUBSCRIPTS = {"declare", "typeset", "local", "export", "readonly", "let", "test", "[", "printf", "read", "unset"}
_EVALUATES_SUBSCRIPTS |= {"wait"}


@dataclass(frozen=True, slots=True)
class Invocation:
    """One simple command. `always`: what a reply of `always` may allow; None where that would allow what nobody saw."""

    subject: Subject
    always: str | None


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A simple command before it is judged. `redirections` as typed."""

    words: Sequence[Word]
    stdin: Word
    redirections: str = ""
    is_unseen: bool = False
    placeholder: str = ""
    adds_input: bool = False
    is_wrapped: bool = False


def flattened(words: Sequence[Word]) -> list[Word]:
    """One word a field."""
    return [word if len(word.fields) == 1 else Word(unquoted(one), (one,)) for word in words for one in word.fields]


def text_of(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


def as_judged(
    call: SimpleCommand, flat: Sequence[Word], bare: str, started: StartedProgram, inner: Sequence[Invocation]
) -> Invocation:
    """`inner`: what the command starts under its own permission; its spellings and its sight become the command's."""
    text = text_of(call.words)
    others = spellings([word.plain for word in flat], reorder=started.is_covered or not started.commands)
    if call.redirections:
        others.append(f"{text} {call.redirections}")
    for one in inner:
        others += [one.subject.pattern, *one.subject.spellings]
    sight = _sight(call, flat, bare, started, inner)
    distinct = tuple(dict.fromkeys(other for other in others if other != text))
    always = None if sight == "unseen" else always_pattern([word.text for word in call.words])
    return Invocation(Subject(text, distinct, sight), always)


def _sight(call: SimpleCommand, flat: Sequence[Word], bare: str, started: StartedProgram, inner: Sequence[Invocation]) -> Sight:
    sights = {started.sight, *(one.subject.sight for one in inner)}
    if call.is_unseen or "unseen" in sights or _is_name_unseen(call.words[0], flat[0]):
        return "unseen"
    if bare in _EVALUATES_SUBSCRIPTS and any(holds_code(word.text) for word in flat[1:]):
        return "unseen"
    return "foreign" if "foreign" in sights else "clear"


def _is_name_unseen(name: Word, first: Word) -> bool:
    is_expanded = re.search(r"\$(?!['\"])|`", name.text) is not None
    return is_expanded or not first.is_known or (has_glob(first.fields[0]) and name.text != "[")


def holds_code(typed: str) -> bool:
    """Single quotes around a substitution: it isn't run now, but by whatever evaluates the text later."""
    return re.search(r"'[^']*(\$\(|`)[^']*'", typed) is not None
