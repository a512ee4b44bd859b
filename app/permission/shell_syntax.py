"""The syntax tree of a shell script, within bounds."""

import time
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Point

MAX_BYTES = 256 * 1024
_SECONDS = 0.5


@cache
def _bash() -> "Language":
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def parse(script: str) -> "Node | None":
    """The tree's root; it may hold errors (`has_error`). None: too large, too slow to parse, or no text at all."""
    source = _encoded(script)
    if source is None or len(source) > MAX_BYTES or b"\0" in source:
        return None
    return _parse_in_time(source)


def _encoded(script: str) -> bytes | None:
    try:
        return script.encode()
    except UnicodeEncodeError:
        return None


def _parse_in_time(source: bytes) -> "Node | None":
    from tree_sitter import Parser

    end = time.monotonic() + _SECONDS

    def read(offset: int, _: "Point") -> bytes:
        return source[offset : offset + 65536]

    def is_late(_offset: int, _has_error: bool) -> bool:
        return time.monotonic() > end

    try:
        return Parser(_bash()).parse(read, progress_callback=is_late).root_node
    except ValueError:  # the parser's word for having been stopped
        return None
