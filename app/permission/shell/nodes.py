"""What is asked of the nodes of a script's syntax tree."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.permission.shell.variables import Variables
from app.permission.shell.words import (
    UNKNOWN,
    UNKNOWN_INPUT,
    Word,
    node_text,
    quoted,
    read_word,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_WORDS = """word string raw_string ansi_c_string translated_string concatenation number simple_expansion expansion regex
process_substitution command_substitution arithmetic_expansion brace_expression extglob_pattern"""
WORDS = set(_WORDS.split())


def joined(words: Sequence[tuple["Node", Word]]) -> list[Word]:
    """Nodes without a blank between them are one word."""
    done: list[Word] = []
    end = -1
    for node, word in words:
        done.append(done.pop().followed_by(word) if node.start_byte == end else word)
        end = node.end_byte
    return done


def last_command(node: "Node") -> "Node":
    """The one that a redirection after a pipeline belongs to."""
    while node.type in {"pipeline", "list", "negated_command", "redirected_statement"}:
        node = node.child_by_field_name("body") or node.named_children[-1]
    return node


def in_background(node: "Node") -> bool:
    return node.next_sibling is not None and node.next_sibling.type == "&"


def belongs_to_command(assignment: "Node") -> bool:
    return assignment.parent is not None and assignment.parent.type == "command"


def is_descriptor(node: "Node") -> bool:
    return re.fullmatch(r"\d+|-|\d+-", node_text(node)) is not None and re.search(rb"&$", _before(node)) is not None


def _before(node: "Node") -> bytes:
    sibling = node.prev_sibling
    return (sibling.text or b"") if sibling is not None else b""


def stray_arguments(redirect: "Node") -> list["Node"]:
    if redirect.type == "file_redirect":
        return redirect.children_by_field_name("destination")[1:]
    if redirect.type == "heredoc_redirect":
        nested = [extra for child in redirect.named_children for extra in stray_arguments(child)]
        return [*redirect.children_by_field_name("argument"), *nested]
    return []


def heredoc_text(node: "Node") -> Word:
    """The heredoc as a script: known only if nothing in it is expanded first."""
    body = next((child for child in node.named_children if child.type == "heredoc_body"), None)
    text = node_text(body) if body is not None else ""
    start = next((node_text(child) for child in node.named_children if child.type == "heredoc_start"), "")
    is_literal = any(mark in start for mark in "'\"\\") or not re.search(r"[$`\\]", text)
    return Word(text, (quoted(text),) if is_literal else (UNKNOWN,))


def name_of(node: "Node") -> str:
    while node.type == "redirected_statement" and (body := node.child_by_field_name("body")) is not None:
        node = body
    name = node.child_by_field_name("name") if node.type == "command" else None
    return node_text(name) if name is not None else ""


def printed(node: "Node", variables: Variables) -> Word:
    """What `echo 'rm x' | sh` feeds: shown and held against deny rules, but never trusted to be all."""
    if name_of(node) not in {"echo", "printf"} or node.type != "command":
        return UNKNOWN_INPUT
    words = [read_word(child, variables.lookup) for child in node.named_children if child.type in WORDS]
    return Word(" ".join(word.plain for word in words), (UNKNOWN,))
