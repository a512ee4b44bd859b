"""A simple command as the rules evaluate it: as typed, in other spellings, and how readable it is."""

import re
from collections.abc import Sequence

from app.permission.arity import always_pattern
from app.permission.rules import Readability, Subject
from app.permission.shell.findings import Invocation
from app.permission.shell.programs import runs_nothing
from app.permission.shell.started import StartedProgram
from app.permission.shell.words import Word, has_glob, text_of, unquoted
from app.permission.spellings import spellings

_SUBSCRIPT_EVALUATORS = "declare typeset local export readonly let test [ printf read unset wait"
_EVALUATES_SUBSCRIPTS = frozenset(_SUBSCRIPT_EVALUATORS.split())
_VERBATIM = re.compile(r"-j\$|\"?\$\(cat <<-?\s*['\"\\]?\w")
"""What the run adds is a number (`make -j$(nproc)`), or a text that stands in the line."""


def flattened(words: Sequence[Word]) -> list[Word]:
    """One word for each field."""
    return [word if len(word.fields) == 1 else Word(unquoted(one), (one,)) for word in words for one in word.fields]


def build_invocation(words: Sequence[Word], flat: Sequence[Word], started: StartedProgram, redirections: str) -> Invocation:
    """What its arguments name is denied as if it ran: whether the program runs it is not known."""
    text, plain = text_of(words), tuple(word.plain for word in flat)
    others = spellings(plain, reorder=not started.commands)
    if redirections:
        others.append(f"{text} {redirections}")
    for named in started.named:
        others += [named.pattern, *named.spellings]
    distinct = tuple(dict.fromkeys(other for other in others if other != text))
    is_inert = runs_nothing(plain[0].lower(), plain[1:])
    readability = _readability(words[0], flat, started, is_inert)
    always = None if readability == "unreadable" else always_pattern([word.text for word in words])
    return Invocation(Subject(text, distinct, readability, () if is_inert else plain), always)


def _readability(name: Word, flat: Sequence[Word], started: StartedProgram, is_inert: bool) -> Readability:
    is_expanded = re.search(r"\$(?!['\"])|`", name.text) is not None
    if is_expanded or not flat[0].is_known or (has_glob(flat[0].fields[0]) and name.text != "["):
        return "unreadable"
    if flat[0].value in _EVALUATES_SUBSCRIPTS and any(holds_code(word.text) for word in flat[1:]):
        return "unreadable"
    may_run_unknown = not is_inert and any(not word.is_known and not _VERBATIM.match(word.text) for word in flat[1:])
    may_run_unknown |= any(named.readability == "unreadable" for named in started.named)
    return "foreign" if started.readability == "readable" and may_run_unknown else started.readability


def holds_code(typed: str) -> bool:
    """Whether single quotes enclose a substitution: whatever evaluates the text later runs it."""
    return re.search(r"'[^']*(\$\(|`)[^']*'", typed) is not None
