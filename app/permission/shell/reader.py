"""Walks a script's syntax tree in the order in which it runs, and gathers what analysis.analyse reports."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from posixpath import basename, normpath
from typing import TYPE_CHECKING

from app.permission.boundary import Boundary
from app.permission.rules import Subject
from app.permission.shell.files import OwnFiles
from app.permission.shell.invocation import Invocation, SimpleCommand, as_judged, flattened, holds_code, text_of
from app.permission.shell.nodes import (
    WORDS,
    belongs_to_command,
    heredoc_text,
    in_background,
    is_descriptor,
    joined,
    last_command,
    name_of,
    printed,
    stray_arguments,
)
from app.permission.shell.paths import PATH_COMMANDS, PathCheck, Places, is_folder, looks_like_path
from app.permission.shell.programs import StartedProgram, changes_programs, may_hold_commands, runs_its_arguments, started_by
from app.permission.shell.syntax import MAX_NODES, is_misread, parse
from app.permission.shell.variables import Variables, surely_runs
from app.permission.shell.words import (
    NO_INPUT,
    UNKNOWN,
    UNKNOWN_INPUT,
    Word,
    has_glob,
    has_reserved_characters,
    literal_word,
    node_text,
    read_word,
    unquoted,
    value,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_DEEPEST = 150
_DEEPEST_SCRIPT = 8
_DEEPEST_CALL = 12
_MOST_WORDS = 300
"""Of a command that holds others."""
_APART = {"subshell", "command_substitution", "process_substitution"}
_REPEATED = {"for_statement", "c_style_for_statement", "while_statement", "function_definition"}
_STATEMENTS = {"program", "compound_statement", "do_group", "if_statement", "elif_clause", "else_clause", "case_item", *_APART}
_MISPLACED = {"if", "then", "elif", "else", "fi", "do", "done", "case", "esac", "while", "until", "for", "select", "function"}
_MISPLACED |= {"in", "]]"}
_GROUP_ENDS = {"}", ")"}
_MOVES = {"cd", "pushd", "popd", "chdir"}
_LIVE_BACKQUOTE = re.compile(r"(?<!\\)(?:\\\\)*`")
_SETS_VARIABLES = {"read", "mapfile", "readarray", "getopts", "eval", "source", ".", "unset", "let", "env", "sudo", "trap"}
_LISTS_FILES = {"find", "fd", "ls", "git", "grep", "egrep", "rg", "sort", "uniq", "head", "tail", "wc", "echo"}


class Undone(Exception):
    """Too deep or too much to read."""


class ShellReader:
    def __init__(self, boundary: Boundary, variables: Variables, cwd: Path) -> None:
        self.variables = variables
        self.invocations: list[Invocation] = []
        self.outside: dict[str, None] = {}
        self.is_unparsable = False
        self.files = OwnFiles()
        self._paths = PathCheck(boundary, variables.lookup)
        self._places = Places((str(cwd),))
        self._if_failed = Places(())
        self._stdin = NO_INPUT
        self._feeders: list[str] = []
        self._depth = 0
        self._trailing: dict[int, Sequence[Node]] = {}
        self._calls = 0
        self._nodes = 0
        self._loops = 0
        self._report(self._paths.outside_of_target(literal_word(str(cwd)), self._places))

    def read(self, root: "Node") -> None:
        self.is_unparsable |= root.has_error or is_misread(root)
        self._admit(root)
        self._walk(root)

    def _admit(self, root: "Node") -> None:
        self._nodes += root.descendant_count
        if self._nodes > MAX_NODES:
            raise Undone
        self.variables.count(root)

    def _walk(self, node: "Node") -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Undone
        self._reader_of(node)(node)
        self._depth -= 1

    def _reader_of(self, node: "Node") -> Callable[["Node"], None]:
        readers: dict[str, Callable[[Node], None]] = {
            "command": self._command,
            "redirected_statement": self._redirected,
            "pipeline": self._pipeline,
            "list": self._list,
            "variable_assignment": self._assignment,
            "file_redirect": self._file_redirect,
            "herestring_redirect": self._words_within,
            "heredoc_redirect": self._heredoc,
            "declaration_command": self._declaration,
            "unset_command": self._declaration,
            "for_statement": self._for,
        }
        if node.type in readers:
            return readers[node.type]
        if node.type in _APART:
            return self._apart
        return self._loose_word if node.type in WORDS else self._statements

    def _statements(self, node: "Node") -> None:
        self._loops += node.type in _REPEATED
        self.is_unparsable |= node.type == "function_definition" and node_text(node.named_children[0]) in _MOVES
        for child in node.named_children:
            if in_background(child):
                self._walk_apart(child)
            else:
                self._walk(child)
            if node.type in _STATEMENTS:
                self._settle_places()
        self._loops -= node.type in _REPEATED

    def _settle_places(self) -> None:
        """A `cd` before a `;` may have failed, and what follows runs all the same."""
        self._places = self._places.also(self._if_failed)
        self._if_failed = Places(())

    def _walk_apart(self, child: "Node") -> None:
        with self._own_places():
            self._walk(child)

    def _apart(self, node: "Node") -> None:
        with self._own_places():
            self._statements(node)

    @contextmanager
    def _own_places(self) -> Iterator[None]:
        """In a process of its own, `cd` doesn't last."""
        before = self._places, self._if_failed
        yield
        self._places, self._if_failed = before

    def _list(self, node: "Node") -> None:
        for child in node.children:
            if child.type == "||":
                self._settle_places()
            elif child.is_named:
                self._walk(child)

    def _pipeline(self, node: "Node") -> None:
        stdin, feeders = self._stdin, self._feeders
        for child in node.named_children:
            self._walk_apart(child)
            self._stdin = printed(child, self.variables)
            self._feeders = [*self._feeders, name_of(child)]
        self._stdin, self._feeders = stdin, feeders

    def _for(self, node: "Node") -> None:
        values = [read_word(child, self.variables.lookup) for child in node.named_children if child.type in WORDS]
        variable = node.child_by_field_name("variable")
        if variable is not None and values:
            fields = tuple(one for word in values for one in word.fields)
            self.variables.set(node_text(variable), Word("", fields))
        self._statements(node)

    def _assignment(self, node: "Node") -> None:
        name, _, typed = node_text(node).partition("=")
        self._words_within(node)
        target = node.child_by_field_name("value")
        if target is not None and target.type in WORDS:
            word = read_word(target, self.variables.lookup)
            self._check_words("", [replace(word, fields=tuple(f"={one}" for one in word.fields))])
            if surely_runs(node):
                self.variables.set(name, word)
        if holds_code(typed) or (changes_programs(node_text(node)) and not belongs_to_command(node)):
            self._add_unseen(node_text(node))

    def _declaration(self, node: "Node") -> None:
        if any(child.type in WORDS and child.type != "word" for child in node.named_children):
            self.variables.opaque = True
            if holds_code(node_text(node)):
                self._add_unseen(node_text(node))
        self._statements(node)

    def _loose_word(self, node: "Node") -> None:
        """A word that is no command's: of a test, a `for`, a `case`."""
        self._check_words("", [read_word(node, self.variables.lookup)])
        self._words_within(node)

    def _words_within(self, node: "Node") -> None:
        """What the expansion of a word runs: substitutions, however deep in quotes."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Undone
        if node.type == "expansion" and re.search(r"@P|:?=", node_text(node)):
            self._expansion(node_text(node))
        for child in node.named_children:
            if child.type in _APART:
                self._walk(child)
            else:
                self._words_within(child)
        self._depth -= 1

    def _expansion(self, text: str) -> None:
        """`${x@P}` runs what its value says; `${x:=y}` sets it."""
        self.variables.opaque = True
        if "@P" in text:
            self._add_unseen(text)

    def _redirected(self, node: "Node") -> None:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        before_body = [redirect for redirect in redirects if redirect.type == "file_redirect"]
        for redirect in before_body:
            self._walk(redirect)
        if body is None:
            self._add(Invocation(Subject(node_text(node)), always=None))
        else:
            self._trailing[last_command(body).id] = redirects
            with self._fed_by(redirects):
                self._walk(body)
        for redirect in redirects:
            if redirect not in before_body:
                self._walk(redirect)

    @contextmanager
    def _fed_by(self, redirects: Sequence["Node"]) -> Iterator[None]:
        before = self._stdin
        for redirect in redirects:
            self._stdin = self._input_of(redirect) or self._stdin
        yield
        self._stdin = before

    def _input_of(self, redirect: "Node") -> Word | None:
        match redirect.type:
            case "herestring_redirect":
                return read_word(redirect.named_children[-1], self.variables.lookup)
            case "heredoc_redirect":
                return heredoc_text(redirect)
            case _:
                return UNKNOWN_INPUT if any(child.type in {"<", "<&", "<>"} for child in redirect.children) else None

    def _file_redirect(self, node: "Node") -> None:
        targets = node.children_by_field_name("destination")
        if targets and not is_descriptor(targets[0]):
            word = read_word(targets[0], self.variables.lookup)
            self._report(self._paths.outside_of_target(word, self._places))
            self.files.writes(value(word))
        self._words_within(node)

    def _heredoc(self, node: "Node") -> None:
        """The grammar puts the rest of the line (`<<EOF | sh`) into the heredoc's node."""
        text = heredoc_text(node)
        if not text.is_known and _LIVE_BACKQUOTE.search(text.text):
            self._add_unseen(text.text)
        before, self._stdin = self._stdin, replace(text, fields=(UNKNOWN,))
        for child in node.named_children:
            if child.type == "heredoc_body":
                self._words_within(child)
            elif child.type not in {"heredoc_start", "heredoc_end"}:
                self._walk(child)
        self._stdin = before

    def _command(self, node: "Node") -> None:
        redirects = self._trailing.get(node.id, ())
        inline = [child for child in node.named_children if child.type.endswith("_redirect")]
        words, is_unseen = self._words_of(node, [*inline, *redirects])
        typed = " ".join(node_text(redirect) for redirect in redirects if redirect.type == "file_redirect")
        first = [child for child in node.named_children if child.type in {"file_redirect", "variable_assignment"}]
        for child in first:
            self._walk(child)
        with self._fed_by(inline):
            if words:
                self._call(SimpleCommand(words, self._stdin, typed, is_unseen))
        for child in node.named_children:
            if child in first:
                continue
            if child.type == "heredoc_redirect":
                self._walk(child)
            elif child.type in _APART:
                self._apart(child)
            else:
                self._words_within(child)

    def _words_of(self, node: "Node", redirects: Sequence["Node"]) -> tuple[list[Word], bool]:
        """The command's words; the grammar takes those after a redirection for further targets of it."""
        own = [child for child in node.named_children if child.type == "command_name" or child.type in WORDS]
        strays = [extra for redirect in redirects for extra in stray_arguments(redirect)]
        nodes = sorted([*own, *strays], key=lambda one: one.start_byte)
        settings = [child for child in node.named_children if child.type == "variable_assignment"]
        is_unseen = any(changes_programs(node_text(setting)) for setting in settings)
        return joined([(one, read_word(one, self.variables.lookup)) for one in nodes]), is_unseen

    def _call(self, call: SimpleCommand) -> None:
        self._calls += 1
        self._nodes += len(call.words) if self._calls > 1 else 0
        if self._calls > _DEEPEST_CALL or self._nodes > MAX_NODES:
            raise Undone
        self._read_call(call)
        self._calls -= 1

    def _read_call(self, call: SimpleCommand) -> None:
        flat = flattened(call.words)
        typed_name, name = call.words[0].text, value(flat[0])
        bare = (basename(name) or name).lower()
        if typed_name in _GROUP_ENDS and len(flat) == 1:
            return
        self.is_unparsable |= typed_name in _MISPLACED
        if len(flat) > _MOST_WORDS and may_hold_commands(bare):
            raise Undone
        self.variables.opaque |= _may_set_any_variable(bare, flat)
        self._paths = replace(self._paths, makes_links=self._paths.makes_links or bare == "ln")
        self.files.calls(bare, name, map(value, flat[1:]))
        if bare in _MOVES:
            before = self._places
            self._move(bare, flat[1:])
            if call.is_wrapped or name != bare:  # a program of that name moves nothing
                self._places = self._places.also(before)
        self.is_unparsable |= bare == "alias" and any(value(word).partition("=")[0] in _MOVES for word in flat[1:])
        given = _as_run(call, bare, flat)
        started = started_by(bare, given[1:], call.stdin)
        self._judge(replace(call, is_unseen=call.is_unseen or not given[0].is_known), flat, bare, started)
        self._check_call(call, flat, bare, started)

    def _judge(self, call: SimpleCommand, flat: Sequence[Word], bare: str, started: StartedProgram) -> None:
        """A command stands before what it starts."""
        before, self.invocations = self.invocations, []
        for words in started.commands:
            stdin = NO_INPUT if started.adds_input else call.stdin
            self._call(SimpleCommand(words, stdin, "", False, started.placeholder, started.adds_input, is_wrapped=True))
        unread = [script for script in started.scripts if not self._script(script, started.in_place)]
        if unread:
            self._report([text_of(call.words)])
            call = replace(call, is_unseen=True)
        for file in started.files:
            self.files.runs(file)
        inner, self.invocations = self.invocations, before
        if bare != "cd":
            self._add(as_judged(call, flat, bare, started, inner if started.is_covered else ()))
        for one in () if started.is_covered else inner:
            self._add(one)

    def _script(self, script: str, in_place: bool) -> bool:
        """Whether all of it was read. What can be read of it is held against the rules in any case."""
        text = script.replace(UNKNOWN, "")
        root = None if has_reserved_characters(text) else parse(text)
        if root is None:
            return False
        stdin, self._stdin = self._stdin, NO_INPUT
        self._depth += _DEEPEST // _DEEPEST_SCRIPT
        with nullcontext() if in_place else self._child_process():
            self._admit(root)
            self._walk(root)
        self._depth -= _DEEPEST // _DEEPEST_SCRIPT
        self._stdin = stdin
        return UNKNOWN not in script and not root.has_error and not is_misread(root)

    @contextmanager
    def _child_process(self) -> Iterator[None]:
        with self._own_places(), self.variables.of_child_process():
            yield

    def _check_call(self, call: SimpleCommand, flat: Sequence[Word], bare: str, started: StartedProgram) -> None:
        if bare in _MOVES:
            return
        inner = [] if started.is_covered else [word for words in started.commands for word in words]
        self._check_words(bare, [word for word in flat[1:] if word not in inner])
        if call.adds_input and bare in PATH_COMMANDS and not set(self._feeders) <= _LISTS_FILES:
            self._report([text_of(call.words)])
        if started.sight == "foreign":
            for word in (*flat[1:], call.stdin):
                self._report(self._paths.outside_in_program(word, self._places))

    def _check_words(self, name: str, words: Sequence[Word]) -> None:
        self._report(self._paths.outside_of_arguments(name, words, self._places))

    def _report(self, paths: Iterable[str]) -> None:
        self.outside.update(dict.fromkeys(paths))

    def _add_unseen(self, text: str) -> None:
        self._add(Invocation(Subject(text, sight="unseen"), always=None))

    def _add(self, invocation: Invocation) -> None:
        if invocation not in self.invocations[-50:]:
            self.invocations.append(invocation)

    def _move(self, name: str, args: Sequence[Word]) -> None:
        targets = [word for word in args if not re.fullmatch(r"-[LPe@n]+|--", value(word))]
        target = targets[0] if targets else literal_word("-" if name == "popd" else _home(self.variables))
        if value(target) == "-" or re.fullmatch(r"[+-]\d+", value(target)):
            self._places = replace(self._places.also(self._if_failed), lost=True)
            return
        self._report(self._paths.outside_of_target(target, self._places))
        self._places, self._if_failed = self._moved(target), self._failed_move(target)
        if (self._loops or self.variables.is_set("CDPATH")) and not _is_absolute(target):
            self._report([target.text] if ".." in value(target) else [])
            self._places = replace(self._places, lost=True)

    def _moved(self, target: Word) -> Places:
        if not target.is_known:
            return replace(self._places, lost=True)
        reached = [path for one in target.fields for path in self._paths.meanings(unquoted(one), self._places)]
        return Places(tuple(dict.fromkeys(map(normpath, reached)))[:8], self._places.lost or any(map(has_glob, target.fields)))

    def _failed_move(self, target: Word) -> Places:
        """Where the shell stays if the folder can't be entered. It can, if it is there and nothing ran that may remove it."""
        reached = [path for one in target.fields for path in self._paths.meanings(unquoted(one), self._places)]
        is_sure = target.is_known and self._calls == 1 and not self.invocations and all(map(is_folder, reached))
        return self._if_failed if is_sure else self._if_failed.also(self._places)


def _may_set_any_variable(name: str, words: Sequence[Word]) -> bool:
    return name in _SETS_VARIABLES or (name == "printf" and any(value(word).startswith("-v") for word in words))


def _as_run(call: SimpleCommand, name: str, flat: Sequence[Word]) -> Sequence[Word]:
    """With the words that only the run shows, where they decide what runs: `xargs env`, `find -exec {} x`."""
    if not runs_its_arguments(name) and not (call.placeholder and call.placeholder in value(flat[0])):
        return flat
    words = [UNKNOWN_INPUT if call.placeholder and call.placeholder in value(word) else word for word in flat]
    return [*words, UNKNOWN_INPUT] if call.adds_input else words


def _is_absolute(word: Word) -> bool:
    return all(looks_like_path(one) and one[:1] in {"/", "~"} for one in word.fields)


def _home(variables: Variables) -> str:
    return next(iter(variables.lookup("HOME") or ["/"]))
