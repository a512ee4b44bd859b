"""What the words of a command become once the shell has taken off quotes and expanded braces and variables.

A field is a string in which a quoted special character is moved to Unicode's private area, so that a `*` in a field is a live
wildcard and a quoted one is not, and in which UNKNOWN stands for what only the run will show.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
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


_ANSI_SIMPLE = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANSI_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)


def _ansi_c(body: str) -> str:
    """`$'…'`; bash cuts it at a NUL."""
    return _ANSI_ESCAPE.sub(_ansi_character, body).partition("\0")[0]


def _ansi_character(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        return _character(int(code[1:], 16))
    if code[0] in "01234567":
        return _character(int(code, 8) & 0xFF)
    if code[0] == "c" and len(code) > 1:
        return chr(ord(code[1].upper()) & 0x1F)
    return _ANSI_SIMPLE.get(code, code)


def _character(number: int) -> str:
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else UNKNOWN


def expand_braces(field: str) -> list[str]:
    """`a{b,c}` → `ab`, `ac`; `{1..3}` → `1`, `2`, `3`. Too many → UNKNOWN."""
    if field.count("{") > MAX_FIELDS:
        return [UNKNOWN]
    done: list[str] = []
    waiting = [field]
    while waiting:
        if len(waiting) + len(done) > MAX_FIELDS:
            return [UNKNOWN]
        current = waiting.pop()
        group = _first_group(current)
        if group is None:
            done.append(current)
            continue
        start, end, choices = group
        waiting.extend(current[:start] + choice + current[end + 1 :] for choice in reversed(choices))
    return done


def _first_group(field: str) -> tuple[int, int, list[str]] | None:
    """Where the first brace group stands, and its choices."""
    for start in (at for at, char in enumerate(field) if char == "{"):
        end, commas = _group_end(field, start)
        if end is None:
            continue
        choices = _choices(field, start, end, commas)
        if choices:
            return start, end, choices
    return None


def _group_end(field: str, start: int) -> tuple[int | None, list[int]]:
    depth = 0
    commas: list[int] = []
    for at in range(start, len(field)):
        match field[at]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return at, commas
            case "," if depth == 1:
                commas.append(at)
    return None, commas


def _choices(field: str, start: int, end: int, commas: list[int]) -> list[str]:
    if not commas:
        return _sequence(field[start + 1 : end])
    edges = [start, *commas, end]
    return [field[one + 1 : other] for one, other in pairwise(edges)]


_SEQUENCE = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")


def _sequence(body: str) -> list[str]:
    found = _SEQUENCE.fullmatch(body)
    if not found:
        return []
    if found[1].isalpha() and found[2].isalpha():
        first, last = ord(found[1]), ord(found[2])
        return [chr(code) for code in _span(first, last, found[3])]
    if found[1].isalpha() or found[2].isalpha():
        return []
    span = _span(int(found[1]), int(found[2]), found[3])
    return [str(number) for number in span] if len(span) <= MAX_FIELDS else [UNKNOWN]


def _span(first: int, last: int, step: str | None) -> range:
    size = abs(int(step or 1)) or 1
    return range(first, last + 1, size) if first <= last else range(first, last - 1, -size)
