"""Splits text into lines (only at newlines) and finds sequences of lines with list comparisons."""

from collections.abc import Iterator, Sequence
from itertools import accumulate


def with_newlines(text: str) -> list[str]:
    """Lines including their newline, so that a last line without one differs from the same line with one."""
    *whole, rest = text.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])


def runs(lines: Sequence[str], wanted: Sequence[str], start: int = 0) -> Iterator[int]:
    """Every index from `start` at which `wanted` (at least one line) occurs in `lines`."""
    first = wanted[0]
    for index in range(start, len(lines) - len(wanted) + 1):
        if lines[index] == first and lines[index : index + len(wanted)] == wanted:
            yield index


def blocks(keys: Sequence[str], wanted: str, count: int, separator: str) -> Iterator[int]:
    """Every index at which `count` keys, joined by `separator`, equal `wanted`. Empty keys are not joined unless the separator is
    a newline.
    """
    pieces = [key + separator if key or separator == "\n" else "" for key in keys]
    joined = "".join(pieces)
    starts = list(accumulate(map(len, pieces), initial=0))
    wanted += separator
    for index in range(len(keys) - count + 1):
        if starts[index + count] - starts[index] == len(wanted) and joined.startswith(wanted, starts[index]):
            yield index
