"""The syntax tree of a shell script, within bounds."""

import re
import time
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Point

MAX_BYTES = 512 * 1024
MAX_NODES = 10_000
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
    root = _parse_in_time(source)
    return root if root is not None and root.descendant_count <= MAX_NODES else None


_CONTINUED = re.compile(rb"(?<![\s\\])(?:\\\\)*\\\n(?=\S)")
_READ_BY_CHARACTER = {"raw_string", "string", "string_content", "comment", "heredoc_body", "heredoc_content"}
_ESCAPED_IN_BACKQUOTES = re.compile(rb"\\[`$\\]")
_LIVE_BLANK = re.compile(rb"(?<!\\)(?:\\\\)*\s")


def is_misread(root: "Node") -> bool:
    """The tree shows signs that the grammar and the shell part the text differently: then nothing in it can be trusted."""
    return _joins_differently(root) or any(_is_misread_leaf(leaf) for leaf in _leaves(root))


def _is_misread_leaf(leaf: "Node") -> bool:
    """A blank in a word; a backquote around what the shell takes backslashes off before it reads it."""
    if leaf.type == "`" and leaf.parent is not None:
        return _ESCAPED_IN_BACKQUOTES.search(leaf.parent.text or b"") is not None
    return leaf.type == "word" and _LIVE_BLANK.search(leaf.text or b"") is not None


def _joins_differently(root: "Node") -> bool:
    """The shell takes `r\\⏎m` for one word, the grammar for two. In quotes and comments they agree."""
    for found in _CONTINUED.finditer(root.text or b""):
        node = root.descendant_for_byte_range(found.end() - 2, found.end() - 1)
        if node is None or node.type not in _READ_BY_CHARACTER:
            return True
    return False


def _leaves(root: "Node") -> Iterator["Node"]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.child_count:
            waiting.extend(reversed(node.children))
        else:
            yield node


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
