"""What the words of a command become after the shell has removed quotes and expanded braces and variables.

A field is a word as text in which quoted special characters are escaped: moved to Unicode's private area, by `escaped`;
`unescaped` moves them back. So a `*` in a field is a wildcard of the shell, and a quoted one is not. UNKNOWN in a field stands
for text that is known only at run time.

A variable is known when the script sets it exactly once, by a statement that certainly runs, and reads it after that. HOME is
known from the environment.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from app.permissions.shell.syntax import in_background, node_text, nodes_of, parent_type, statement_of

if TYPE_CHECKING:
    from tree_sitter import Node

UNKNOWN = "\uf8ff"
_PRIVATE = 0xE000
_SPECIAL = "{},*?[]!^~ \t\n$`\\"
_ESCAPE = {ord(char): _PRIVATE + ord(char) for char in _SPECIAL}
_UNESCAPE = {moved: char for char, moved in _ESCAPE.items()}
_ESCAPE_IN_VALUE = {ord(char): _PRIVATE + ord(char) for char in "{},~"}
_MAX_FIELDS = 64

Lookup = Callable[[str], list[str] | None]
"""A variable's possible values as plain text; None if they are known only at run time."""


@dataclass(frozen=True, slots=True)
class Word:
    """`text` is as typed; `fields` is what the word becomes: several by braces, splitting, or a variable with several values."""

    text: str
    fields: tuple[str, ...]

    @property
    def is_known(self) -> bool:
        return all(map(is_known, self.fields))

    @property
    def value(self) -> str:
        """The fields without quotes."""
        return " ".join(map(unescaped, self.fields))

    @property
    def plain(self) -> str:
        """The fields without quotes; the text as typed if a field is not known."""
        return self.value if self.is_known else self.text


UNKNOWN_WORD = Word("", (UNKNOWN,))


def escaped(text: str) -> str:
    return text.translate(_ESCAPE)


def unescaped(field: str) -> str:
    return field.translate(_UNESCAPE)


def is_known(field: str) -> bool:
    return UNKNOWN not in field


def has_glob(field: str) -> bool:
    return any(char in field for char in "*?[")


def text_of(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


def read_words(nodes: Sequence["Node"], lookup: Lookup) -> list[Word]:
    """One word per node; adjacent nodes without a blank between them become one unknown word."""
    words: list[Word] = []
    end = -1
    for node in nodes:
        if node.start_byte == end:
            words[-1] = Word(words[-1].text + node_text(node), (UNKNOWN,))
        else:
            words.append(read_word(node, lookup))
        end = node.end_byte
    return words


def read_word(node: "Node", lookup: Lookup) -> Word:
    fields: list[str] = []
    for reading in _readings(node, lookup, in_quotes=False):
        fields += [field for part in _split(_with_home(reading, lookup)) for field in _expand_braces(part)]
    return Word(node_text(node), tuple(dict.fromkeys(fields)) if len(fields) <= _MAX_FIELDS else (UNKNOWN,))


def _with_home(reading: str, lookup: Lookup) -> str:
    homes = lookup("HOME") if reading == "~" or reading.startswith("~/") else None
    return escaped(homes[0]) + reading[1:] if homes else reading


def _split(reading: str) -> list[str]:
    """Splits at blanks that are not escaped, which come from unquoted variables. An empty text gives one empty word."""
    return re.split(r"[ \t\n]+", reading.strip(" \t\n"))


def _readings(node: "Node", lookup: Lookup, in_quotes: bool) -> list[str]:
    """Every text that the node may stand for."""
    match node.type:
        case "raw_string":
            return [escaped(node_text(node)[1:-1])]
        case "ansi_c_string":
            text = node_text(node)[2:-1]
            return [UNKNOWN if "\\" in text else escaped(text)]
        case "string":
            return _joined(node, lookup, node.children[1:-1], trim=1, in_quotes=True)
        case "translated_string":
            return _readings(node.children[-1], lookup, in_quotes=True)
        case "concatenation" | "command_name":
            return _joined(node, lookup, node.children, trim=0, in_quotes=in_quotes)
        case "simple_expansion" | "expansion":
            return _variable(node_text(node), lookup, in_quotes)
        case "process_substitution":
            return ["/dev/fd/63"]
        case "arithmetic_expansion":
            return ["0"]
        case "word" | "number" | "string_content" | "brace_expression" | "extglob_pattern" | "regex" | "variable_name":
            return [_literal(node_text(node), in_quotes)]
        case _:
            return [UNKNOWN] if node.is_named else [_literal(node_text(node), in_quotes)]


def _joined(node: "Node", lookup: Lookup, children: Iterable["Node"], trim: int, in_quotes: bool) -> list[str]:
    """The children's readings in a row, with the text between them. `trim`: the number of quote characters at each end."""
    source, start, offset = node.text or b"", trim, node.start_byte
    pieces: list[list[str]] = []
    for child in children:
        pieces += [[_literal(source[start : child.start_byte - offset].decode(), in_quotes)], _readings(child, lookup, in_quotes)]
        start = child.end_byte - offset
    pieces.append([_literal(source[start : len(source) - trim].decode(), in_quotes)])
    return ["".join(choice) for choice in product(*pieces)] if prod(map(len, pieces)) <= _MAX_FIELDS else [UNKNOWN]


def _literal(raw: str, in_quotes: bool) -> str:
    if in_quotes:
        return escaped(re.sub(r"\\(\n|[$`\"\\])", lambda found: found[1].strip("\n"), raw))
    return re.sub(r"\\(.|\n)", lambda found: escaped(found[1].strip("\n")), raw)


def _variable(text: str, lookup: Lookup, in_quotes: bool) -> list[str]:
    """Only `$name` and `${name}` are read."""
    found = re.fullmatch(r"\$(?:\{(\w+)\}|(\w+))", text)
    values = lookup(found[1] or found[2]) if found else None
    if not values:
        return [UNKNOWN]
    return [value.translate(_ESCAPE if in_quotes else _ESCAPE_IN_VALUE) for value in values]


def _expand_braces(field: str) -> list[str]:
    """`a{b,c}` → `ab`, `ac`. Nested lists are read, ranges (`{1..3}`) are not."""
    expanded: list[str] = []
    waiting = [field]
    while waiting:
        if len(waiting) + len(expanded) > _MAX_FIELDS:
            return [UNKNOWN]
        current = waiting.pop()
        if found := re.search(r"\{([^{},]*(?:,[^{},]*)+)\}", current):
            waiting += [current[: found.start()] + choice + current[found.end() :] for choice in reversed(found[1].split(","))]
        else:
            within = current.partition("{")[2].rpartition("}")[0]
            expanded.append(UNKNOWN if "," in within or ".." in within else current)
    return expanded


class Variables:
    """`is_contradicted`: a value that was looked up may differ at run time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.is_contradicted = False
        self._environment = environment
        self._is_opaque = False
        self._was_used = False
        self._times_set = Counter[str]()
        self._values: dict[str, list[str]] = {}

    def in_child_process(self) -> "Variables":
        """Knows HOME alone: the script may or may not export its other variables."""
        return Variables({} if self._is_opaque or self._times_set["HOME"] else self._environment)

    def count(self, root: "Node") -> None:
        """Counts the assignments below a node; called before any word is read."""
        for node in nodes_of(root):
            if node.type == "variable_assignment":
                self._times_set[re.split(r"\+?=|\[", node_text(node))[0]] += 1
            elif node.type in {"for_statement", "c_style_for_statement"} and (name := node.child_by_field_name("variable")):
                self._times_set[node_text(name)] += 1

    def forget_all(self) -> None:
        """The script contains a command that may set any variable."""
        self._is_opaque = True
        self.is_contradicted |= self._was_used

    def lookup(self, name: str) -> list[str] | None:
        if self._is_opaque or self._times_set["IFS"] or self._times_set[name] > 1:
            return None
        is_home = name == "HOME" and not self._times_set[name] and name in self._environment
        values = [self._environment[name]] if is_home else self._values.get(name)
        self._was_used |= values is not None
        return values

    def may_be_set(self, name: str) -> bool:
        return self._is_opaque or self._times_set[name] > 0 or name in self._environment

    def set(self, name: str, value: Word) -> None:
        self._values.pop(name, None)
        if all(map(is_known, value.fields)):
            self._values[name] = [unescaped(one) for one in value.fields]


def always_runs(assignment: "Node") -> bool:
    """Whether the assignment is at the top level of the script, or first in a list there, and is not a `+=`."""
    top = statement_of(assignment, {"variable_assignments", "declaration_command", "list"}, {"&&", "||"})
    return assignment.children[1].type == "=" and not in_background(top) and parent_type(top) == "program"
