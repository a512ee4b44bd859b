"""Reads a shell command before it runs: walks its syntax tree in the order of execution, and adds the commands and paths that it
finds to `Findings`."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from posixpath import basename, isdir, normpath
from typing import TYPE_CHECKING

from app.permissions.paths import PATH_COMMANDS, Boundary, PathCheck, is_likely
from app.permissions.rules import MAX_WORDS, Subject
from app.permissions.shell import syntax
from app.permissions.shell.findings import Findings, TooComplex, build_subject, flattened
from app.permissions.shell.programs import (
    StartedProgram,
    Stdin,
    changes_programs,
    may_hold_commands,
    may_take_scripts,
    runs_nothing,
    started_by,
    texts_in,
)
from app.permissions.shell.words import (
    UNKNOWN,
    UNKNOWN_WORD,
    Variables,
    Word,
    always_runs,
    has_glob,
    read_word,
    read_words,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_DEPTH = 150
_DEPTH_OF_SCRIPT = 18
_DEPTH_OF_CALL = 12
"""What a script within a script, and a call, count towards _MAX_DEPTH."""
_MAX_WORDS = 300
"""Of a command that contains others."""
_OWN_PROCESS = {"subshell", "command_substitution", "process_substitution"}
_RESERVED_WORDS = "if then elif else fi do done case esac while until for select function in ]]"
_KEYWORDS = frozenset(_RESERVED_WORDS.split())
"""Where one is the name of a command, the grammar has misread the script."""
_PLAIN_WORD = re.compile(r"[\w./+][\w./+-]*")
_GROUP_ENDS = {"}", ")"}
_DIRECTORY_COMMANDS = {"cd", "pushd", "popd", "chdir"}
_UNESCAPED_BACKQUOTE = re.compile(r"(?<!\\)(?:\\\\)*`")
_SETS_VARIABLES = {"read", "mapfile", "readarray", "getopts", "unset", "declare", "typeset", "local", "export", "readonly"}
_LISTS_FILES = {"find", "fd", "ls", "git", "grep", "egrep", "rg", "sort", "uniq", "head", "tail", "wc", "echo"}


@dataclass(frozen=True, slots=True)
class _Context:
    """What surrounds a command: its input, the redirections around it, and how deep it is nested."""

    depth: int
    stdin: Stdin | None = None
    redirections: str = ""

    def deeper(self, by: int = 1) -> "_Context":
        if self.depth + by > _MAX_DEPTH:
            raise TooComplex
        return replace(self, depth=self.depth + by)

    def fed_by(self, stdin: Stdin | None) -> "_Context":
        return replace(self, stdin=stdin)


class ShellReader:
    """`in_place`: another script evaluates this one, as by `eval` or `trap`, and its assignments may not run."""

    def __init__(
        self,
        boundary: Boundary,
        variables: Variables,
        directories: tuple[str, ...],
        findings: Findings,
        in_place: bool = False,
    ) -> None:
        self._boundary = boundary
        self._variables = variables
        self._findings = findings
        self._paths = PathCheck(boundary, variables.lookup, directories)
        self._after_failed_cd: tuple[str, ...] = ()
        self._in_place = in_place

    def read(self, script: str, depth: int = 0) -> bool:
        """Returns whether all of the script is understood. Raises TooComplex."""
        root = syntax.parse(script)
        if root is None:
            return False
        self._findings.count(root.descendant_count + script.count("/"))
        self._variables.count(root)
        self._walk(root, _Context(depth))  # first: raises for a tree in which to find parents would take minutes
        for text in syntax.loose_texts(root):
            self._findings.add_loose(text)
        for text in syntax.unread_code(root):
            self._findings.add_unreadable(text)
        return not (root.has_error or syntax.is_misread(root) or self._variables.is_contradicted)

    @contextmanager
    def _restoring_directory(self) -> Iterator[None]:
        """A `cd` in a process of its own does not last."""
        before = self._paths.directories, self._after_failed_cd
        yield
        self._paths.directories, self._after_failed_cd = before

    def _walk(self, node: "Node", context: _Context) -> None:
        readers: dict[str, Callable[[Node, _Context], None]] = {
            "command": self._command,
            "redirected_statement": self._redirected,
            "pipeline": self._pipeline,
            "list": self._list,
            "variable_assignment": self._assignment,
            "file_redirect": self._file_redirect,
            "herestring_redirect": self._expansions,
            "heredoc_redirect": self._heredoc,
            "declaration_command": self._declaration,
            "unset_command": self._declaration,
            "for_statement": self._for,
            **dict.fromkeys(_OWN_PROCESS, self._expansions),
            **dict.fromkeys(syntax.WORDS - _OWN_PROCESS, self._loose_word),
        }
        # More for each other directory that it may run in, whose links are followed: a `cd` that can fail doubles them.
        self._findings.count(3 * (len(self._paths.directories) - 1) * (1 + node.child_count))
        readers.get(node.type, self._statements)(node, context.deeper())

    def _statements(self, node: "Node", context: _Context) -> None:
        if node.type == "function_definition" and syntax.node_text(node.named_children[0]) in _DIRECTORY_COMMANDS:
            self._findings.is_unparsable = True
        for child in node.named_children:
            with self._restoring_directory() if syntax.in_background(child) else nullcontext():
                self._walk(child, context)
            self._add_failed_cd()

    def _add_failed_cd(self) -> None:
        """Commands after a `;` or `||` run even if the `cd` before them failed: then in the directory from before it."""
        self._paths.directories = tuple(dict.fromkeys([*self._paths.directories, *self._after_failed_cd]))
        self._after_failed_cd = ()

    def _list(self, node: "Node", context: _Context) -> None:
        for child in node.children:
            if child.is_named:
                self._walk(child, context)
                continue
            self._findings.has_run = True
            if child.type == "||":
                self._add_failed_cd()

    def _pipeline(self, node: "Node", context: _Context) -> None:
        lists_files = True
        for child in node.named_children:
            with nullcontext() if syntax.is_list_in_pipeline(child) else self._restoring_directory():
                self._walk(child, context)
            lists_files = lists_files and syntax.command_name(child) in _LISTS_FILES
            context = context.fed_by(Stdin(lists_files=lists_files))

    def _for(self, node: "Node", context: _Context) -> None:
        values = [read_word(child, self._variables.lookup) for child in node.named_children if child.type in syntax.WORDS]
        variable = node.child_by_field_name("variable")
        name = syntax.node_text(variable) if variable is not None else ""
        if changes_programs(f"{name}=any"):
            self._findings.add_unreadable(syntax.node_text(node))
        self._variables.set(name, Word("", tuple(one for word in values for one in word.fields)) if values else UNKNOWN_WORD)
        self._statements(node, context)
        self._variables.set(name, UNKNOWN_WORD)

    def _assignment(self, node: "Node", context: _Context) -> None:
        typed = syntax.node_text(node)
        name, _, value = typed.partition("=")
        self._expansions(node, context)
        target = node.child_by_field_name("value")
        if target is not None and target.type in syntax.WORDS:
            word = read_word(target, self._variables.lookup)
            self._findings.report(
                self._paths.outside_of_arguments("", [Word(word.text, tuple(f"={one}" for one in word.fields))])
            )
            if always_runs(node) and not self._in_place:
                self._variables.set(name, word)
        belongs_to_command = node.parent is not None and node.parent.type == "command"
        if syntax.holds_code(value) or (changes_programs(typed) and not belongs_to_command):
            self._findings.add_unreadable(typed)

    def _declaration(self, node: "Node", context: _Context) -> None:
        if any(child.type != "variable_assignment" for child in node.named_children):
            self._variables.forget_all()
        if syntax.holds_code(syntax.node_text(node)):
            self._findings.add_unreadable(syntax.node_text(node))
        self._statements(node, context)

    def _loose_word(self, node: "Node", context: _Context) -> None:
        """A word of a test, a `for` or a `case`, which belongs to no command."""
        self._findings.report(self._paths.outside_of_arguments("", [read_word(node, self._variables.lookup)]))
        self._expansions(node, context)

    def _expansions(self, node: "Node", context: _Context) -> None:
        """Walks the substitutions in a word, however deep in quotes. `${x@P}` runs the value of x; `${x:=y}` sets x."""
        context = context.deeper()
        if node.type in _OWN_PROCESS:
            with self._restoring_directory():
                self._statements(node, context)
            return
        if node.type == "expansion" and re.search(r"@P|:?=", syntax.node_text(node)):
            self._variables.forget_all()
            if "@P" in syntax.node_text(node):
                self._findings.add_unreadable(syntax.node_text(node))
        for child in node.named_children:
            self._expansions(child, context)

    def _redirected(self, node: "Node", context: _Context) -> None:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        before = self._paths.directories
        if body is None:
            self._findings.subjects.append(Subject(syntax.node_text(node)))
        else:
            self._walk(body, self._redirected_by(redirects, context))
        after = self._paths.directories
        if body is None or body.type != "list" or syntax.command_name(body.named_children[-1]) in {"", "cd"}:
            self._paths.directories = tuple(dict.fromkeys([*before, *after]))
        for redirect in redirects:
            self._walk(redirect, context)
        self._paths.directories = after

    def _redirected_by(self, redirects: Sequence["Node"], context: _Context) -> _Context:
        files = " ".join(syntax.node_text(one) for one in redirects if one.type == "file_redirect")
        inputs = [stdin for stdin in map(self._input_of, redirects) if stdin]
        return replace(context, redirections=files or context.redirections, stdin=inputs[-1] if inputs else context.stdin)

    def _input_of(self, redirect: "Node") -> Stdin | None:
        match redirect.type:
            case "herestring_redirect":
                return Stdin(read_word(redirect.named_children[-1], self._variables.lookup).plain)
            case "heredoc_redirect":
                return Stdin(syntax.heredoc_text(redirect)[0])
            case _:
                return Stdin() if any(child.type in {"<", "<&", "<>"} for child in redirect.children) else None

    def _file_redirect(self, node: "Node", context: _Context) -> None:
        """The grammar takes a command's words after a redirection for further targets: such a command is not understood."""
        targets = node.children_by_field_name("destination")
        self._findings.is_unparsable |= len(targets) > 1
        if targets and not syntax.is_descriptor(targets[0]):
            word = read_word(targets[0], self._variables.lookup)
            self._findings.report(self._paths.outside_of_target(word))
            self._findings.writes(word.value)
        for target in targets:
            self._expansions(target, context)

    def _heredoc(self, node: "Node", context: _Context) -> None:
        """The grammar puts the rest of the line (`<<EOF | sh`) into the heredoc's node."""
        text, is_expanded = syntax.heredoc_text(node)
        if is_expanded and _UNESCAPED_BACKQUOTE.search(text):
            self._findings.add_unreadable(text)
        self._findings.is_unparsable |= bool(node.children_by_field_name("argument"))
        for child in node.named_children:
            if child.type == "heredoc_body":
                self._expansions(child, context.fed_by(Stdin(text)))
            elif child.type not in {"heredoc_start", "heredoc_end"}:
                self._walk(child, context.fed_by(Stdin(text)))

    def _command(self, node: "Node", context: _Context) -> None:
        own = [child for child in node.named_children if child.type == "command_name" or child.type in syntax.WORDS]
        others = [child for child in node.named_children if child not in own]
        words = read_words(own, self._variables.lookup)
        if words:
            redirected = self._redirected_by([child for child in others if child.type.endswith("_redirect")], context)
            settings = (syntax.node_text(child) for child in others if child.type == "variable_assignment")
            self._call(words, redirected, any(map(changes_programs, settings)), None if self._in_place else node)
        for child in own:
            self._expansions(child, context)
        for child in others:
            self._walk(child, context)

    def _call(self, words: Sequence[Word], context: _Context, is_unreadable: bool = False, node: "Node | None" = None) -> None:
        """`node`: the command, unless another program or script runs it."""
        self._findings.count(len(words))
        flat = flattened(words)
        if words[0].text.startswith("=") and flat[0].is_known:  # zsh: `=name` is the path of the program
            flat[0] = Word(flat[0].text, (flat[0].fields[0].lstrip("=") or "=",))
        name = flat[0].value
        bare = (basename(name) or name).lower()
        if words[0].text in _GROUP_ENDS and len(flat) == 1:
            return
        if len(flat) > _MAX_WORDS and may_hold_commands(bare):
            raise TooComplex
        self._note_effects(bare, flat, words[0].text)
        self._note_loose(name.lower(), [word.plain for word in flat[1:]])
        context = context.deeper(_DEPTH_OF_CALL)
        if bare in _DIRECTORY_COMMANDS:
            self._change_directory(words, flat, node)
        if bare != "cd":
            self._findings.has_run = True
            self._start(words, flat, bare, context, is_unreadable)

    def _note_loose(self, name: str, args: Sequence[str]) -> None:
        """Notes arguments that may be scripts: all that are no plain word, and all of a command that runs nothing (`echo`)."""
        is_inert = runs_nothing(name, args)
        for at, arg in enumerate(args):
            if is_inert or at >= MAX_WORDS or not _PLAIN_WORD.fullmatch(arg):
                self._findings.add_loose(arg)

    def _note_effects(self, bare: str, flat: Sequence[Word], typed_name: str) -> None:
        args = [word.value for word in flat[1:]]
        if typed_name in _KEYWORDS or (bare == "alias" and any(arg.partition("=")[0] in _DIRECTORY_COMMANDS for arg in args)):
            self._findings.is_unparsable = True
        if bare in _SETS_VARIABLES or (bare == "printf" and any(arg.startswith("-v") for arg in args)):
            self._variables.forget_all()
            if any(map(changes_programs, (f"{arg.partition('[')[0]}=any" for arg in args))):
                self._findings.add_unreadable(" ".join([bare, *args]))
        self._paths.makes_links |= bare == "ln"
        self._findings.calls(bare, flat[0].value, args)

    def _start(self, words: Sequence[Word], flat: Sequence[Word], bare: str, context: _Context, is_unreadable: bool) -> None:
        """Notes the command before those that it starts."""
        started = started_by(bare, flat[1:], context.stdin)
        position = len(self._findings.subjects)
        for command in started.commands:
            self._call(command, context.fed_by(None if bare == "xargs" else context.stdin))
        if may_take_scripts(bare, [word.plain for word in flat[1:]]):
            started.named = [subject for text in texts_in(flat[1:]) for subject in self._commands_in(text, context)]
        in_place = bare in {"eval", "trap", "alias", "source", "."}
        unread = [script for script in started.scripts if not self._script(script, in_place, context)]
        if unread:
            self._findings.report([text_of(words)])
        if unread or is_unreadable:
            started.readability = "unreadable"
        for file in started.files:
            self._findings.runs(file)
        self._findings.subjects.insert(position, build_subject(words, flat, started, context.redirections))
        if bare not in _DIRECTORY_COMMANDS:
            self._check_arguments(words, flat, bare, started, context.stdin)

    def _commands_in(self, text: str, context: _Context) -> list[Subject]:
        """The commands of a text, which run if the program takes it for a script; none if the text is no script."""
        found = Findings()
        reader = ShellReader(self._boundary, self._variables.in_child_process(), self._paths.directories, found)
        is_script = reader.read(text, context.depth + _DEPTH_OF_SCRIPT)
        self._findings.count(len(text) // 10)
        self._findings.report(filter(is_likely, found.outside) if is_script else ())
        return found.subjects if is_script else []

    def _script(self, script: str, in_place: bool, context: _Context) -> bool:
        """Returns whether all of the script is understood. The rules are applied to what can be read in any case."""
        if in_place:
            self._variables.forget_all()
        variables = self._variables if in_place else self._variables.in_child_process()
        reader = ShellReader(self._boundary, variables, self._paths.directories, self._findings, in_place)
        is_understood = reader.read(script.replace(UNKNOWN, ""), context.depth + _DEPTH_OF_SCRIPT)
        self._paths.makes_links |= reader._paths.makes_links
        return UNKNOWN not in script and is_understood

    def _check_arguments(
        self, words: Sequence[Word], flat: Sequence[Word], bare: str, started: StartedProgram, stdin: Stdin | None
    ) -> None:
        inner = [word for command in started.commands for word in command]
        self._findings.report(self._paths.outside_of_arguments(bare, [word for word in flat[1:] if word not in inner]))
        takes_paths = any(basename(command[0].value) in PATH_COMMANDS for command in started.commands)
        if bare == "xargs" and takes_paths and not (stdin and stdin.lists_files):
            self._findings.report([text_of(words)])
        if started.readability == "foreign":
            for word in flat[1:]:
                self._findings.report(self._paths.outside_in_program(word.plain, word.text))
            text = stdin.text if stdin else ""
            self._findings.report(self._paths.outside_in_program(text, text))

    def _change_directory(self, words: Sequence[Word], flat: Sequence[Word], node: "Node | None") -> None:
        """Follows a plain `cd folder`. Any other way to change the directory is reported as typed."""
        target = flat[-1]
        is_relative = not target.value.startswith(("/", "~", "./"))
        if node is None or not _is_plain_cd(node, flat) or (is_relative and self._variables.may_be_set("CDPATH")):
            self._findings.report([text_of(words)])
            return
        self._findings.report(self._paths.outside_of_target(target))
        reached = tuple(normpath(path) for path in self._paths.absolute_paths(target.value))
        if self._findings.has_run or not all(map(isdir, reached)):
            self._after_failed_cd += self._paths.directories
        self._paths.directories = reached


def _is_plain_cd(node: "Node", flat: Sequence[Word]) -> bool:
    """Whether the `cd` has one known folder, and is in a script or a subshell, neither in a block nor after `||`."""
    if syntax.command_name(node) != "cd" or len(flat) != 2:
        return False
    target = flat[1]
    is_folder_name = target.is_known and not has_glob(target.fields[0]) and target.value[:1] not in {"", "-"}
    return is_folder_name and syntax.parent_type(syntax.statement_of(node, {"list", "redirected_statement"}, {"||"})) in {
        "program",
        *_OWN_PROCESS,
    }
