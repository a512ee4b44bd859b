"""Parses a shell script with tree-sitter, within limits of size and time, and answers questions about the nodes of its tree."""

import re
import time
from collections.abc import Collection, Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node

MAX_CHARACTERS = 128 * 1024
"""Linux starts no program with a longer argument."""
MAX_NODES = 10_000
_TIMEOUT_SECONDS = 0.5
_WORDS = """word string raw_string ansi_c_string translated_string concatenation number simple_expansion expansion regex
process_substitution command_substitution arithmetic_expansion brace_expression extglob_pattern"""
WORDS = frozenset(_WORDS.split())
_RESERVED_CHARACTERS = re.compile("[\0\ue000-\ue07f\uf8ff]")
"""The characters by which `words.py` marks quoted and unknown text; and NUL, which no command may have, and of which 100,000
would take the parser minutes and 5 GB, whatever its timeout."""
_CONTINUED_WORD = re.compile(rb"(?<![\s\\])(?:\\\\)*\\\n(?=\S)")
_LIVE_BLANK = re.compile(rb"(?<!\\)(?:\\\\)*\s")
_FALSE_BLANK = re.compile(rb"[\v\f]|\r(?!\n)")
"""What is a blank for the grammar alone, which takes a `#` after it for a comment."""
_SUBSTITUTION = re.compile(r"\$\(|`")
_EVALUATES = re.compile(rb"\(\(|\$\[|\[\[?\s|\$\{!|\$\{\w+:[^-=?+]")
"""Arithmetic and tests, which run a substitution in a variable's subscript: `x='a[$(ls)]'; echo $((x))`."""
_SUBSCRIPT = re.compile(r"\w\[")
_IN_QUOTES, _ESCAPED = re.compile(r"'(?:[^'`$]|\$(?!\())*+(?:\$\(|`)[^']*+'"), re.compile(r"\\(?:\$[\\'\"]*\(|`)")
_VERBATIM = ("raw_string", "ansi_c_string", "regex")
_QUOTED = {**dict.fromkeys(_VERBATIM, _SUBSTITUTION), **dict.fromkeys(["string", "word", "concatenation"], _ESCAPED)}
"""By type of node, a substitution that the shell does not run at once."""


@cache
def _bash() -> "Language":
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def parse(script: str) -> "Node | None":
    """Returns the tree's root, which may have errors (`has_error`); None if the script is too large, too slow or no text."""
    from tree_sitter import Parser

    if len(script) > MAX_CHARACTERS or _RESERVED_CHARACTERS.search(script):
        return None
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    try:
        source = script.encode()
        tree = Parser(_bash()).parse(
            lambda offset, _: source[offset : offset + 65536],
            progress_callback=lambda _offset, _has_error: time.monotonic() > deadline,
        )
    except ValueError:  # the parser was stopped, or the text has half a surrogate pair
        return None
    return tree.root_node


def is_misread(root: "Node") -> bool:
    """The grammar splits the text differently from the shell, so that nothing in the tree can be trusted."""
    text = root.text or b""
    return any(sign.search(text) for sign in (_CONTINUED_WORD, _FALSE_BLANK)) or any(map(_is_misread_node, nodes_of(root)))


def _is_misread_node(node: "Node") -> bool:
    """Whether a word has a blank in it, the end of a heredoc is written like an expansion, or backquotes have backslashes, which
    the shell removes before it reads the script."""
    text = node.text or b""
    if node.type == "heredoc_start":
        return b"$" in text or b"`" in text
    if node.type == "command_substitution":
        return text.startswith(b"`") and b"\\" in text
    return node.type == "word" and _LIVE_BLANK.search(text) is not None


def nodes_of(root: "Node") -> Iterator["Node"]:
    """The root and every node below it, in the order of the text."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def loose_texts(root: "Node") -> Iterator[str]:
    """The words that belong to no command, and the texts of heredocs."""
    for node in nodes_of(root):
        if node.type == "heredoc_body" or (node.type in WORDS and parent_type(node) not in ("command", "command_name")):
            yield node_text(node)


def unread_code(root: "Node") -> Iterator[str]:
    """Texts with substitutions that the grammar keeps as they are, and the shell may run: patterns, and texts in quotes that are
    in an expansion, a subscript or a test, or that arithmetic may evaluate."""
    evaluates = _EVALUATES.search(root.text or b"") is not None
    kept = (node for node in nodes_of(root) if node.type in _QUOTED)
    return (node_text(node) for node in kept if _is_run_unread(node, evaluates))


def _is_run_unread(node: "Node", evaluates: bool) -> bool:
    text = node_text(node)
    if node.type == "regex" or parent_type(statement_of(node, {"concatenation"}, ())) in ("expansion", "subscript"):
        return node.type in _VERBATIM and _SUBSTITUTION.search(text) is not None
    return evaluates and _is_in_subscript(_QUOTED[node.type], text)


def holds_code(typed: str) -> bool:
    """Whether single quotes, or a subscript in others, enclose a substitution: whatever evaluates the text later runs it."""
    return _IN_QUOTES.search(typed) is not None or _is_in_subscript(_ESCAPED, typed)


def _is_in_subscript(sign: re.Pattern[str], text: str) -> bool:
    subscript = _SUBSCRIPT.search(text)
    return subscript is not None and sign.search(text, subscript.end()) is not None


def node_text(node: "Node") -> str:
    return (node.text or b"").decode()


def in_background(node: "Node") -> bool:
    return node.next_sibling is not None and node.next_sibling.type == "&"


def is_list_in_pipeline(node: "Node") -> bool:
    """`cd x && make 2>&1 | tail`: the grammar puts the whole list into the pipeline, the shell only its last command."""
    body = node.child_by_field_name("body") if node.type == "redirected_statement" else None
    is_first = node.parent is not None and node.parent.type == "pipeline" and node.prev_sibling is None
    return is_first and body is not None and body.type == "list"


def statement_of(node: "Node", within: Collection[str], operators: Collection[str]) -> "Node":
    """The statement that the node is part of through nodes of the types `within`, and as the first of a pipeline's list; the node
    itself after one of the operators."""
    top = node
    while top.parent is not None and (top.parent.type in within or is_list_in_pipeline(top)):
        if top.prev_sibling is not None and top.prev_sibling.type in operators:
            return node
        top = top.parent
    return top


def parent_type(node: "Node") -> str:
    return node.parent.type if node.parent is not None else ""


def command_name(node: "Node") -> str:
    """The name as typed; empty if the node is no simple command."""
    name = node.child_by_field_name("name") if node.type == "command" else None
    return node_text(name) if name is not None else ""


def is_descriptor(node: "Node") -> bool:
    """The target of `2>&1` or `>&-`."""
    operator = node.prev_sibling
    return re.fullmatch(r"\d+-?|-", node_text(node)) is not None and operator is not None and node_text(operator).endswith("&")


def heredoc_text(node: "Node") -> tuple[str, bool]:
    """The text as typed, and whether the shell expands substitutions in it."""
    parts = {child.type: node_text(child) for child in node.named_children}
    return parts.get("heredoc_body", ""), not any(mark in parts.get("heredoc_start", "") for mark in "'\"\\")
