"""A simple command as the rules evaluate it: as typed, in other spellings, and how readable it is."""

import re
from collections.abc import Sequence
from posixpath import basename

from app.permission.arity import always_pattern
from app.permission.rules import Readability, Subject
from app.permission.shell.findings import Invocation
from app.permission.shell.programs import StartedProgram, runs_nothing
from app.permission.shell.words import Word, has_glob, text_of, unquoted
from app.permission.spellings import spellings

_SUBSCRIPT_EVALUATORS = "declare typeset local export readonly let test [ printf read unset wait"
_EVALUATES_SUBSCRIPTS = frozenset(_SUBSCRIPT_EVALUATORS.split())


def flattened(words: Sequence[Word]) -> list[Word]:
    """One word for each field."""
    return [word if len(word.fields) == 1 else Word(unquoted(one), (one,)) for word in words for one in word.fields]


def build_invocation(
    words: Sequence[Word], flat: Sequence[Word], started: StartedProgram, inner: Sequence[Invocation], redirections: str
) -> Invocation:
    """`inner`: commands that run under this command's permission; it takes over their spellings and readability."""
    text = text_of(words)
    others = spellings([word.plain for word in flat], reorder=started.is_covered or not started.commands)
    if redirections:
        others.append(f"{text} {redirections}")
    for one in inner:
        others += [one.subject.pattern, *one.subject.spellings]
    distinct = tuple(dict.fromkeys(other for other in others if other != text))
    levels = {started.readability, _own_readability(words[0], flat), *(one.subject.readability for one in inner)}
    readability: Readability = "unreadable" if "unreadable" in levels else "foreign" if "foreign" in levels else "readable"
    always = None if readability == "unreadable" else always_pattern([word.text for word in words])
    plain = [word.plain for word in flat]
    is_inert = runs_nothing(basename(plain[0]).lower(), plain[1:])
    return Invocation(Subject(text, distinct, readability, () if is_inert else tuple(plain)), always)


def _own_readability(name: Word, flat: Sequence[Word]) -> Readability:
    is_expanded = re.search(r"\$(?!['\"])|`", name.text) is not None
    if is_expanded or not flat[0].is_known or (has_glob(flat[0].fields[0]) and name.text != "["):
        return "unreadable"
    evaluates = flat[0].value in _EVALUATES_SUBSCRIPTS and any(holds_code(word.text) for word in flat[1:])
    return "unreadable" if evaluates else "readable"


def holds_code(typed: str) -> bool:
    """Whether single quotes enclose a substitution: whatever evaluates the text later runs it."""
    return re.search(r"'[^']*(\$\(|`)[^']*'", typed) is not None
