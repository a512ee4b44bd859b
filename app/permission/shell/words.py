"""What the words of a command become once the shell has taken off quotes and expanded braces and variables.

A field is a string in which a quoted special character is moved to Unicode's private area, so that a `*` in a field is a live
wildcard and a quoted one is not, and in which UNKNOWN stands for what only the run will show.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

UNKNOWN = "\uf8ff"
_PRIVATE = 0xE000
_SPECIAL = "{},*?[]!^~ \t\n$`\\"
_HIDE = {ord(char): _PRIVATE + ord(char) for char in _SPECIAL}
_SHOW = {hidden: char for char, hidden in _HIDE.items()}
_HIDE_IN_VALUE = {ord(char): _PRIVATE + ord(char) for char in "{},~"}
_RESERVED_CHARACTERS = re.compile("[\ue000-\ue07f\uf8ff]")
MAX_FIELDS = 64

Lookup = Callable[[str], list[str] | None]
"""A variable's possible values as plain text; None when only the run will show."""


@dataclass(frozen=True, slots=True)
class Word:
    """`text` as typed; `fields` what it may become: several by braces, by splitting, or because a variable has several values."""

    text: str
    fields: tuple[str, ...]

    @property
    def plain(self) -> str:
        """As one text without quotes; as typed where something in it is unknown."""
        known = all(is_known(field) for field in self.fields)
        return " ".join(map(unquoted, self.fields)) if known else self.text

    def followed_by(self, other: "Word") -> "Word":
        fields = ["".join(pair) for pair in product(self.fields, other.fields)]
        return Word(self.text + other.text, tuple(fields) if len(fields) <= MAX_FIELDS else (UNKNOWN,))

    @property
    def is_known(self) -> bool:
        return all(is_known(field) for field in self.fields)


def has_reserved_characters(text: str) -> bool:
    return _RESERVED_CHARACTERS.search(text) is not None


def quoted(text: str) -> str:
    return text.translate(_HIDE)


def unquoted(field: str) -> str:
    return field.translate(_SHOW)


def is_known(field: str) -> bool:
    return UNKNOWN not in field


def has_glob(field: str) -> bool:
    return any(char in field for char in "*?[")


def value(word: Word) -> str:
    """The word without quotes."""
    return unquoted(" ".join(word.fields))


def literal_word(text: str) -> Word:
    """A word of a script that this module did not read itself: nothing in it is expanded any more."""
    return Word(text, (quoted(text),))


UNKNOWN_INPUT = Word("", (UNKNOWN,))
NO_INPUT = Word("", ())


def node_text(node: "Node") -> str:
    return (node.text or b"").decode()


def read_word(node: "Node", lookup: Lookup) -> Word:
    readings = _readings(node, lookup, in_quotes=False)
    braced = (expanded for reading in readings for expanded in expand_braces(reading))
    fields = [field for expanded in braced for field in _split(_with_home(expanded, lookup))]
    if len(fields) > MAX_FIELDS:
        return Word(node_text(node), (UNKNOWN,))
    return Word(node_text(node), tuple(dict.fromkeys(fields)))


def _with_home(reading: str, lookup: Lookup) -> str:
    homes = lookup("HOME") if reading == "~" or reading.startswith("~/") else None
    return quoted(homes[0]) + reading[1:] if homes else reading


def _split(reading: str) -> list[str]:
    """Blanks that are live come from a variable's value. An empty word stays a word: it was quoted, or shows itself as such."""
    return re.split(r"[ \t\n]+", reading.strip(" \t\n"))


def _readings(node: "Node", lookup: Lookup, in_quotes: bool) -> list[str]:
    """Every text that the node may stand for."""
    match node.type:
        case "raw_string":
            return [quoted(node_text(node)[1:-1])]
        case "ansi_c_string":
            return [quoted(_ansi_c(node_text(node)[2:-1]))]
        case "string":
            return _joined(node, lookup, node.children[1:-1], start=node.start_byte + 1, end=node.end_byte - 1, in_quotes=True)
        case "translated_string":
            return _readings(node.children[-1], lookup, in_quotes=True)
        case "concatenation" | "command_name":
            return _joined(node, lookup, node.children, start=node.start_byte, end=node.end_byte, in_quotes=in_quotes)
        case "simple_expansion" | "expansion":
            return _variable(node_text(node), lookup, in_quotes)
        case "process_substitution":
            return ["/dev/fd/63"]
        case "arithmetic_expansion":
            return ["0"]
        case "word" | "number" | "string_content" | "brace_expression" | "extglob_pattern" | "regex" | "variable_name":
            return [_literal(node_text(node), in_quotes)]
        case _:
            return [UNKNOWN] if node.named_child_count or node.is_named else [_literal(node_text(node), in_quotes)]


def _joined(node: "Node", lookup: Lookup, children: Iterable["Node"], start: int, end: int, in_quotes: bool) -> list[str]:
    """The children's readings in a row. What stands between two children belongs to the word as well."""
    between = partial(_between, node, in_quotes=in_quotes)
    pieces: list[list[str]] = []
    for child in children:
        pieces += [between(start, child.start_byte), _readings(child, lookup, in_quotes)]
        start = child.end_byte
    return _combined([*pieces, between(start, end)])


def _between(node: "Node", start: int, end: int, in_quotes: bool) -> list[str]:
    raw = (node.text or b"")[start - node.start_byte : end - node.start_byte]
    return [_literal(raw.decode(), in_quotes)]


def _combined(pieces: list[list[str]]) -> list[str]:
    count = 1
    for piece in pieces:
        count *= len(piece)
    return ["".join(choice) for choice in product(*pieces)] if count <= MAX_FIELDS else [UNKNOWN]


def _literal(raw: str, in_quotes: bool) -> str:
    if in_quotes:
        return quoted(re.sub(r"\\(\n|[$`\"\\])", _escaped, raw))
    return re.sub(r"\\(.|\n)", lambda found: "" if found[1] == "\n" else quoted(found[1]), raw)


def _escaped(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]


_PURE_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def _variable(text: str, lookup: Lookup, in_quotes: bool) -> list[str]:
    found = _PURE_VARIABLE.fullmatch(text)
    values = lookup(found[1] or found[2]) if found else None
    if not values:
        return [UNKNOWN]
    hidden = _HIDE if in_quotes else _HIDE_IN_VALUE
    return [value.translate(hidden) for value in values]


_ANSI_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANSI_ESCAPES |= {char: char for char in "\\'\"?"}


def _ansi_c(body: str) -> str:
    """`$'…'`. What an escaped number stands for is left to the run."""
    return re.sub(r"\\(.)", lambda found: _ANSI_ESCAPES.get(found[1], UNKNOWN), body, flags=re.DOTALL)


_BRACES = re.compile(r"\{([^{},]*(?:,[^{},]*)+|(-?\d{1,9})\.\.(-?\d{1,9})|([A-Za-z])\.\.([A-Za-z]))\}")


def expand_braces(field: str) -> list[str]:
    """`a{b,c}` → `ab`, `ac`; `{1..3}` → `1`, `2`, `3`, the innermost group first. Too many, or a group that is left → UNKNOWN."""
    if field.count("{") > MAX_FIELDS:
        return [UNKNOWN]
    done: list[str] = []
    waiting = [field]
    while waiting:
        if len(waiting) + len(done) > MAX_FIELDS:
            return [UNKNOWN]
        current = waiting.pop()
        if group := _BRACES.search(current):
            choices = _choices(group)
            waiting += [current[: group.start()] + choice + current[group.end() :] for choice in reversed(choices)]
        else:
            done.append(UNKNOWN if "{" in current and "}" in current and ("," in current or ".." in current) else current)
    return done


def _choices(group: re.Match[str]) -> list[str]:
    if group[2]:
        span = _span(int(group[2]), int(group[3]))
        return [str(number) for number in span] if len(span) <= MAX_FIELDS else [UNKNOWN]
    return [chr(code) for code in _span(ord(group[4]), ord(group[5]))] if group[4] else group[1].split(",")


def _span(first: int, last: int) -> range:
    return range(first, last + 1) if first <= last else range(first, last - 1, -1)
