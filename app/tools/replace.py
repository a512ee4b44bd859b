"""Finds the text that an edit refers to, even if the model quotes it inexactly, and replaces it.

Seven strategies are tried in order, from literal to loose. Each proposes strings of the file; the first that occurs exactly
once is replaced (with `replace_all`, every occurrence of the first that occurs). Above MAX_LOOSE_WORK (a file of a million lines,
or 7 KB searched in 125,000 lines) only the literal strategy is used, so that no input blocks the server.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice

from app.tools.base import ToolError

# Lines of the file × (characters searched for + the cost of a line).
MAX_LOOSE_WORK = 1_000_000_000
_COST_OF_A_LINE = 1_000
MAX_CANDIDATES = 1_000
MAX_SIMILARITY_COMPARISONS = 50_000
MAX_COMPARED_LINES = 1_000_000
_COMPARED_CHARS = 2_000
_SIMILAR_ENOUGH = 0.3
_ALIKE_ENOUGH = 0.65
_EQUAL_ENOUGH = 0.5
_ANCHORED_LINES = 3
_ESCAPE = re.compile(r"""\\([ntr'"`\\$]|\n)""")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
TextSpan = tuple[int, int]


def with_newlines(text: str) -> list[str]:
    """Lines including their newline, so that a last line without one differs from the same line with one."""
    *whole, rest = text.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])


class JoinedLines:
    """Lines without newlines, in which others are found. One text is searched: line by line, equal lines take time by the square
    of their number."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._text = "\n".join(["", *lines, ""])
        self._starts = list(accumulate((len(line) + 1 for line in lines), initial=0))

    def runs(self, wanted: Sequence[str], start: int = 0) -> Iterator[int]:
        """Every index from `start`, which is one of the lines, at which `wanted` (at least one line) occurs."""
        sought = "\n".join(["", *wanted, ""])
        at = self._text.find(sought, self._starts[start])
        while at >= 0:
            yield bisect_left(self._starts, at)
            at = self._text.find(sought, at + 1)


def blocks(keys: Sequence[str], wanted: str, count: int, separator: str) -> Iterator[int]:
    """Every index at which `count` keys, joined by `separator`, equal `wanted`. Empty keys are not joined unless the separator is
    a newline."""
    pieces = [key + separator if key or separator == "\n" else "" for key in keys]
    joined = "".join(pieces)
    starts = list(accumulate(map(len, pieces), initial=0))
    wanted += separator
    for index in range(len(keys) - count + 1):
        if starts[index + count] - starts[index] == len(wanted) and joined.startswith(wanted, starts[index]):
            yield index


class OldStringNotFound(ToolError):
    def __init__(self) -> None:
        super().__init__("oldString not found in content. Read the file again and quote the text to replace as it stands there.")


class OldStringAmbiguous(ToolError):
    def __init__(self) -> None:
        super().__init__(
            "Found multiple matches for oldString. Quote more of the lines around it so that it names one place, "
            "or set replaceAll to change every occurrence."
        )


class Lines:
    """A text as lines. A final newline ends the last line; `ends_with_newline` records it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.ends_with_newline = len(self.lines) > 1 and self.lines[-1] == ""
        if self.ends_with_newline:
            self.lines.pop()

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def trimmed(self) -> list[str]:
        return [line.strip() for line in self.lines]

    @cached_property
    def spaced(self) -> list[str]:
        """The lines with each run of whitespace replaced by one space."""
        return [" ".join(line.split()) for line in self.lines]

    def block(self, start: int, count: int, like: "Lines") -> str:
        """These lines, including the last newline if there is one and `like`, the text searched for, ends with one."""
        text = "\n".join(self.lines[start : start + count])
        has_newline = start + count < len(self) or self.ends_with_newline
        return text + "\n" if like.ends_with_newline and has_newline else text


Strategy = Callable[[Lines, Lines], Iterator[str]]


def replace(content: str, old: str, new: str, *, replace_all: bool = False) -> str:
    """`content` with `old` replaced by `new`. Line endings need not agree: the new text takes the file's (CRLF or LF). Raises
    OldStringNotFound or OldStringAmbiguous."""
    if "\r" in old and old in content:
        return _splice(content, find_spans(content, old, replace_all=replace_all), lambda _: new)
    view = _with_lf(content)
    spans = find_spans(view, _with_lf(old), replace_all=replace_all)
    if len(view) == len(content):
        ours = _with_lf(new) if "\r\n" in old else new
        return _splice(content, spans, lambda _: ours)
    return _splice_crlf(content, _raw_spans(content, spans), _with_lf(new))


def find_spans(content: str, old: str, *, replace_all: bool = False) -> list[TextSpan]:
    """The matches of `old`: one (start, end), or with `replace_all` one per occurrence, ascending."""
    found = False
    for candidate in islice(_candidates(content, old), MAX_CANDIDATES):
        first = content.find(candidate)
        if first == -1:
            continue
        found = True
        if replace_all:
            return [found.span() for found in re.finditer(re.escape(candidate), content)]
        if content.find(candidate, first + 1) == -1:
            return [(first, first + len(candidate))]
    raise OldStringAmbiguous if found else OldStringNotFound


def _candidates(content: str, old: str) -> Iterator[str]:
    """The proposals of the strategies in order, each string once."""
    seen: set[str] = set()
    haystack, needle = Lines(content), Lines(old)
    # Text of whitespace alone is matched exactly: a loose match would find every blank line.
    is_exact = not old.strip() or len(haystack) * (len(old) + _COST_OF_A_LINE) > MAX_LOOSE_WORK
    for strategy in STRATEGIES[:1] if is_exact else STRATEGIES:
        for candidate in strategy(haystack, needle):
            if candidate and candidate not in seen:
                seen.add(candidate)
                yield candidate


def exact(haystack: Lines, needle: Lines) -> Iterator[str]:
    yield needle.text


def line_trimmed(haystack: Lines, needle: Lines) -> Iterator[str]:
    """Blocks whose lines are equal except for leading and trailing whitespace."""
    for start in JoinedLines(haystack.trimmed).runs(needle.trimmed):
        yield haystack.block(start, len(needle), needle)


def block_anchor(haystack: Lines, needle: Lines) -> Iterator[str]:
    """The block between the first and the last line of the needle, if the lines between agree. Of several blocks the one with
    the most similar inner lines, above a threshold."""
    if len(needle) < _ANCHORED_LINES:
        return
    anchored = _anchored_blocks(haystack.trimmed, needle.trimmed)
    if len(anchored) > 1:
        anchored = _most_similar(haystack.trimmed, needle.trimmed, anchored)
    for start, count in anchored:
        if _agree(haystack.trimmed[start + 1 : start + count - 1], needle.trimmed[1:-1]):
            yield haystack.block(start, count, needle)


def whitespace_normalised(haystack: Lines, needle: Lines) -> Iterator[str]:
    """Treats runs of whitespace as one space: whole lines, parts of a line, then blocks of lines."""
    yield from _spaced_lines(haystack, needle)
    if len(needle) > 1:
        for start in blocks(haystack.spaced, " ".join(needle.text.split()), len(needle), " "):
            yield haystack.block(start, len(needle), needle)


def escape_normalised(haystack: Lines, needle: Lines) -> Iterator[str]:
    r"""The text with `\n`, `\t`, `\"` and other escapes replaced by their characters, on both sides."""
    plain = Lines(_unescape(needle.text))
    if plain.text in haystack.text:
        yield plain.text
    unescaped = [_unescape(line) if "\\" in line else line for line in haystack.lines]
    for start in blocks(unescaped, "\n".join(plain.lines), len(plain), "\n"):
        yield haystack.block(start, len(plain), plain)


def trimmed_boundary(haystack: Lines, needle: Lines) -> Iterator[str]:
    """The text without whitespace at both ends, or a block of lines that is equal without it."""
    wanted = needle.text.strip()
    if wanted == needle.text or wanted not in haystack.text:
        return
    yield wanted
    first = wanted.split("\n", 1)[0]
    for start in range(len(haystack) - len(needle) + 1):
        if haystack.trimmed[start] and not haystack.lines[start].lstrip().startswith(first):
            continue
        if "\n".join(haystack.lines[start : start + len(needle)]).strip() == wanted:
            yield haystack.block(start, len(needle), needle)


def context_aware(haystack: Lines, needle: Lines) -> Iterator[str]:
    """The first block of the same length with equal first and last lines, if half of the inner lines are equal."""
    count = len(needle)
    if count < _ANCHORED_LINES:
        return
    first, last = needle.trimmed[0], needle.trimmed[-1]
    starts = (start for start in range(len(haystack) - count + 1) if haystack.trimmed[start] == first)
    anchored = (start for start in starts if haystack.trimmed[start + count - 1] == last)
    for start in islice(anchored, MAX_COMPARED_LINES // count):
        if _half_equal(haystack.trimmed[start + 1 : start + count - 1], needle.trimmed[1:-1]):
            yield haystack.block(start, count, needle)
            return


STRATEGIES: tuple[Strategy, ...] = (
    exact,
    line_trimmed,
    block_anchor,
    whitespace_normalised,
    escape_normalised,
    trimmed_boundary,
    context_aware,
)


def _anchored_blocks(lines: list[str], wanted: list[str]) -> list[tuple[int, int]]:
    """(start, count) of each block from a line equal to the first to the next one equal to the last, at least one line
    between."""
    ends = [index for index, line in enumerate(lines) if line == wanted[-1]]
    found = []
    for start, line in enumerate(lines):
        at = bisect_left(ends, start + _ANCHORED_LINES - 1) if line == wanted[0] else len(ends)
        if at < len(ends):
            found.append((start, ends[at] - start + 1))
    return found


def _most_similar(lines: list[str], wanted: list[str], anchored: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The best of several blocks, or none; none if it would take more than MAX_SIMILARITY_COMPARISONS."""
    if sum(min(count, len(wanted)) for _, count in anchored) > MAX_SIMILARITY_COMPARISONS:
        return []
    scored = [(_similarity(lines[start + 1 : start + count - 1], wanted[1:-1]), start, count) for start, count in anchored]
    score, start, count = max(scored, key=lambda entry: entry[0])
    return [(start, count)] if score >= _SIMILAR_ENOUGH else []


def _similarity(lines: list[str], wanted: list[str]) -> float:
    """0 to 1: the average over pairs of lines that are not both blank, comparing the first _COMPARED_CHARS of each."""
    from rapidfuzz.distance import Levenshtein  # 3 MB: loaded on first use

    scores = [
        Levenshtein.normalized_similarity(ours[:_COMPARED_CHARS], theirs[:_COMPARED_CHARS])
        for ours, theirs in zip(lines, wanted, strict=False)
        if ours or theirs
    ]
    return sum(scores) / len(scores) if scores else 1.0


def _agree(lines: list[str], wanted: list[str]) -> bool:
    """Whether half of the non-blank lines of the longer side occur on both sides, in the same order, or their texts are much
    alike."""
    from rapidfuzz.distance import LCSseq

    ours, theirs = [list(filter(None, side)) for side in (lines, wanted)]
    longer, shorter = max(len(ours), len(theirs)), min(len(ours), len(theirs))
    if shorter < _EQUAL_ENOUGH * longer:
        return False
    if LCSseq.similarity(ours, theirs) >= _EQUAL_ENOUGH * longer:
        return True
    return longer <= MAX_SIMILARITY_COMPARISONS and _similarity(ours, theirs) * shorter >= _ALIKE_ENOUGH * longer


def _spaced_lines(haystack: Lines, needle: Lines) -> Iterator[str]:
    wanted = " ".join(needle.text.split())
    for index, spaced in enumerate(haystack.spaced):
        if spaced == wanted:
            yield haystack.block(index, 1, needle)
        elif not needle.ends_with_newline and (at := spaced.find(wanted)) >= 0:
            yield _unspaced(haystack.lines[index], at, at + len(wanted) - 1)


def _unspaced(line: str, first: int, last: int) -> str:
    """The part of a line by indices of the same line with single spaces; both are of characters of words. A pattern of the words
    would take time by the square of their number."""
    words = list(re.finditer(r"\S+", line))
    starts = list(accumulate((len(word[0]) + 1 for word in words), initial=0))

    def raw(index: int) -> int:
        number = bisect_right(starts, index) - 1
        return words[number].start() + index - starts[number]

    return line[raw(first) : raw(last) + 1]


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def _half_equal(lines: list[str], wanted: list[str]) -> bool:
    pairs = [(ours, theirs) for ours, theirs in zip(lines, wanted, strict=True) if ours or theirs]
    return sum(ours == theirs for ours, theirs in pairs) >= _EQUAL_ENOUGH * len(pairs)


def _with_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _splice(content: str, spans: list[TextSpan], new: Callable[[str], str]) -> str:
    """`new`: what takes the place of a text."""
    pieces = []
    at = 0
    for start, end in spans:
        pieces += [content[at:start], new(content[start:end])]
        at = end
    return "".join([*pieces, content[at:]])


def _splice_crlf(content: str, spans: list[TextSpan], new: str) -> str:
    """`new` has LF; each replacement takes the line ending of the text it replaces, or else the file's most frequent one."""
    crlf = new.replace("\n", "\r\n")
    file_is_crlf = content.count("\r\n") * 2 >= content.count("\n")

    def replacement(replaced: str) -> str:
        is_crlf = "\r\n" in replaced if "\n" in replaced else file_is_crlf
        return crlf if is_crlf else new

    return _splice(content, spans, replacement)


def _raw_spans(content: str, spans: list[TextSpan]) -> list[TextSpan]:
    """Converts offsets in the text with LF to offsets in the original text."""
    newlines = [match.start() - index for index, match in enumerate(re.finditer("\r\n", content))]

    def raw(offset: int) -> int:
        return offset + bisect_left(newlines, offset)

    return [(raw(start), raw(end)) for start, end in spans]
