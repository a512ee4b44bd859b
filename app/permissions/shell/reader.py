"""Walks the syntax tree of a script in the order in which it runs, and gathers findings."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from posixpath import basename, isdir, normpath
from typing import TYPE_CHECKING

from app.permissions.paths import PATH_COMMANDS, Boundary, PathCheck, is_likely
from app.permissions.rules import MOST_WORDS, Subject
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
_MAX_WORDS = 300
"""Of a command that contains others."""
_APART = {"subshell", "command_substitution", "process_substitution"}
_MISPLACED_WORDS = "if then elif else fi do done case esac while until for select function in ]]"
_MISPLACED = frozenset(_MISPLACED_WORDS.split())
_PLAIN_WORD = re.compile(r"[\w./+][\w./+-]*")
_GROUP_ENDS = {"}", ")"}
_DIRECTORY_COMMANDS = {"cd", "pushd", "popd", "chdir"}
_LIVE_BACKQUOTE = re.compile(r"(?<!\\)(?:\\\\)*`")
_SETS_VARIABLES = {"read", "mapfile", "readarray", "getopts", "unset", "declare", "typeset", "local", "export", "readonly"}
_LISTS_FILES = {"find", "fd", "ls", "git", "grep", "egrep", "rg", "sort", "uniq", "head", "tail", "wc", "echo"}


class ShellReader:
    """`in_place`: another script evaluates this one, as by `eval` or `trap`, and its assignments may not run."""

    def __init__(
        self,
        boundary: Boundary,
        variables: Variables,
        directories: tuple[str, ...],
        findings: Findings,
        depth: int = 0,
        in_place: bool = False,
    ) -> None:
        self._boundary = boundary
        self._variables = variables
        self._findings = findings
        self._paths = PathCheck(boundary, variables.lookup, directories)
        self._after_failed_cd: tuple[str, ...] = ()
        self._stdin: Stdin | None = None
        self._redirections = ""
        self._depth = depth
        self._in_place = in_place

    def read(self, script: str) -> bool:
        """Returns whether all of the script is understood. Raises TooComplex."""
        root = syntax.parse(script)
        if root is None:
            return False
        self._findings.count(root.descendant_count)
        self._variables.count(root)
        for text in syntax.loose_texts(root):
            self._findings.add_loose(text)
        for text in syntax.unread_code(root):
            self._findings.add_unreadable(text)
        self._walk(root)
        return not (root.has_error or syntax.is_misread(root) or self._variables.is_contradicted)

    @contextmanager
    def _deeper(self, by: int = 1) -> Iterator[None]:
        self._depth += by
        if self._depth > _MAX_DEPTH:
            raise TooComplex
        yield
        self._depth -= by

    @contextmanager
    def _restoring_directory(self) -> Iterator[None]:
        """A `cd` in a process of its own does not last."""
        before = self._paths.directories, self._after_failed_cd
        yield
        self._paths.directories, self._after_failed_cd = before

    def _walk(self, node: "Node") -> None:
        readers: dict[str, Callable[[Node], None]] = {
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
            **dict.fromkeys(_APART, self._expansions),
            **dict.fromkeys(syntax.WORDS - _APART, self._loose_word),
        }
        with self._deeper():
            readers.get(node.type, self._statements)(node)

    def _statements(self, node: "Node") -> None:
        if node.type == "function_definition" and syntax.node_text(node.named_children[0]) in _DIRECTORY_COMMANDS:
            self._findings.is_unparsable = True
        for child in node.named_children:
            with self._restoring_directory() if syntax.in_background(child) else nullcontext():
                self._walk(child)
            self._expect_failed_cd()

    def _expect_failed_cd(self) -> None:
        """Commands behind a `;` or `||` run even if the `cd` before failed."""
        self._paths.directories = tuple(dict.fromkeys([*self._paths.directories, *self._after_failed_cd]))
        self._after_failed_cd = ()

    def _list(self, node: "Node") -> None:
        for child in node.children:
            if child.is_named:
                self._walk(child)
                continue
            self._findings.has_run = True
            if child.type == "||":
                self._expect_failed_cd()

    def _pipeline(self, node: "Node") -> None:
        stdin, lists_files = self._stdin, True
        for child in node.named_children:
            with self._fed_by(stdin), nullcontext() if syntax.is_list_in_pipeline(child) else self._restoring_directory():
                self._walk(child)
            lists_files = lists_files and syntax.command_name(child) in _LISTS_FILES
            stdin = Stdin(lists_files=lists_files)

    def _for(self, node: "Node") -> None:
        values = [read_word(child, self._variables.lookup) for child in node.named_children if child.type in syntax.WORDS]
        variable = node.child_by_field_name("variable")
        name = syntax.node_text(variable) if variable is not None else ""
        if changes_programs(f"{name}=any"):
            self._findings.add_unreadable(syntax.node_text(node))
        self._variables.set(name, Word("", tuple(one for word in values for one in word.fields)) if values else UNKNOWN_WORD)
        self._statements(node)
        self._variables.set(name, UNKNOWN_WORD)

    def _assignment(self, node: "Node") -> None:
        typed = syntax.node_text(node)
        name, _, value = typed.partition("=")
        self._expansions(node)
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

    def _declaration(self, node: "Node") -> None:
        if any(child.type != "variable_assignment" for child in node.named_children):
            self._variables.forget_all()
        if syntax.holds_code(syntax.node_text(node)):
            self._findings.add_unreadable(syntax.node_text(node))
        self._statements(node)

    def _loose_word(self, node: "Node") -> None:
        """A word of a test, a `for` or a `case`, which belongs to no command."""
        self._findings.report(self._paths.outside_of_arguments("", [read_word(node, self._variables.lookup)]))
        self._expansions(node)

    def _expansions(self, node: "Node") -> None:
        """Walks the substitutions in a word, however deep in quotes. `${x@P}` runs the value of x; `${x:=y}` sets x."""
        with self._deeper():
            if node.type in _APART:
                with self._restoring_directory():
                    self._statements(node)
                return
            if node.type == "expansion" and re.search(r"@P|:?=", syntax.node_text(node)):
                self._variables.forget_all()
                if "@P" in syntax.node_text(node):
                    self._findings.add_unreadable(syntax.node_text(node))
            for child in node.named_children:
                self._expansions(child)

    def _redirected(self, node: "Node") -> None:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        before = self._paths.directories
        with self._redirected_by(redirects):
            if body is None:
                self._findings.subjects.append(Subject(syntax.node_text(node)))
            else:
                self._walk(body)
        after = self._paths.directories
        if body is None or body.type != "list" or syntax.command_name(body.named_children[-1]) in {"", "cd"}:
            self._paths.directories = tuple(dict.fromkeys([*before, *after]))
        for redirect in redirects:
            self._walk(redirect)
        self._paths.directories = after

    @contextmanager
    def _fed_by(self, stdin: Stdin | None) -> Iterator[None]:
        before, self._stdin = self._stdin, stdin
        yield
        self._stdin = before

    @contextmanager
    def _redirected_by(self, redirects: Sequence["Node"]) -> Iterator[None]:
        before = self._redirections
        self._redirections = " ".join(syntax.node_text(one) for one in redirects if one.type == "file_redirect") or before
        inputs = [stdin for stdin in map(self._input_of, redirects) if stdin]
        with self._fed_by(inputs[-1] if inputs else self._stdin):
            yield
        self._redirections = before

    def _input_of(self, redirect: "Node") -> Stdin | None:
        match redirect.type:
            case "herestring_redirect":
                return Stdin(read_word(redirect.named_children[-1], self._variables.lookup).plain)
            case "heredoc_redirect":
                return Stdin(syntax.heredoc_text(redirect)[0])
            case _:
                return Stdin() if any(child.type in {"<", "<&", "<>"} for child in redirect.children) else None

    def _file_redirect(self, node: "Node") -> None:
        """The grammar takes a command's words behind a redirection for further targets: such a command is not understood."""
        targets = node.children_by_field_name("destination")
        self._findings.is_unparsable |= len(targets) > 1
        if targets and not syntax.is_descriptor(targets[0]):
            word = read_word(targets[0], self._variables.lookup)
            self._findings.report(self._paths.outside_of_target(word))
            self._findings.writes(word.value)
        for target in targets:
            self._expansions(target)

    def _heredoc(self, node: "Node") -> None:
        """The grammar puts the rest of the line (`<<EOF | sh`) into the heredoc's node."""
        text, is_expanded = syntax.heredoc_text(node)
        if is_expanded and _LIVE_BACKQUOTE.search(text):
            self._findings.add_unreadable(text)
        self._findings.is_unparsable |= bool(node.children_by_field_name("argument"))
        with self._fed_by(Stdin(text)):
            for child in node.named_children:
                if child.type == "heredoc_body":
                    self._expansions(child)
                elif child.type not in {"heredoc_start", "heredoc_end"}:
                    self._walk(child)

    def _command(self, node: "Node") -> None:
        own = [child for child in node.named_children if child.type == "command_name" or child.type in syntax.WORDS]
        others = [child for child in node.named_children if child not in own]
        words = read_words(own, self._variables.lookup)
        with self._redirected_by([child for child in others if child.type.endswith("_redirect")]):
            if words:
                settings = (syntax.node_text(child) for child in others if child.type == "variable_assignment")
                self._call(words, any(map(changes_programs, settings)), None if self._in_place else node)
        for child in own:
            self._expansions(child)
        for child in others:
            self._walk(child)

    def _call(self, words: Sequence[Word], is_unreadable: bool = False, node: "Node | None" = None) -> None:
        """`node`: the command, unless another program or script runs it."""
        self._findings.count(len(words))
        flat = flattened(words)
        if words[0].text.startswith("=") and flat[0].is_known:  # zsh: where the program is that follows
            flat[0] = Word(flat[0].text, (flat[0].fields[0].lstrip("=") or "=",))
        name = flat[0].value
        bare = (basename(name) or name).lower()
        if words[0].text in _GROUP_ENDS and len(flat) == 1:
            return
        if len(flat) > _MAX_WORDS and may_hold_commands(bare):
            raise TooComplex
        self._note_effects(bare, flat, words[0].text)
        self._note_loose(name.lower(), [word.plain for word in flat[1:]])
        with self._deeper(_DEPTH_OF_CALL):
            if bare in _DIRECTORY_COMMANDS:
                self._change_directory(words, flat, node)
            if bare != "cd":
                self._findings.has_run = True
                self._start(words, flat, bare, is_unreadable)

    def _note_loose(self, name: str, args: Sequence[str]) -> None:
        """Notes arguments that may be scripts: all that are no plain word, and all of a command that runs nothing (`echo`)."""
        is_inert = runs_nothing(name, args)
        for at, arg in enumerate(args):
            if is_inert or at >= MOST_WORDS or not _PLAIN_WORD.fullmatch(arg):
                self._findings.add_loose(arg)

    def _note_effects(self, bare: str, flat: Sequence[Word], typed_name: str) -> None:
        args = [word.value for word in flat[1:]]
        if typed_name in _MISPLACED or (bare == "alias" and any(arg.partition("=")[0] in _DIRECTORY_COMMANDS for arg in args)):
            self._findings.is_unparsable = True
        if bare in _SETS_VARIABLES or (bare == "printf" and any(arg.startswith("-v") for arg in args)):
            self._variables.forget_all()
            if any(map(changes_programs, (f"{arg.partition('[')[0]}=any" for arg in args))):
                self._findings.add_unreadable(" ".join([bare, *args]))
        self._paths.makes_links |= bare == "ln"
        self._findings.calls(bare, flat[0].value, args)

    def _start(self, words: Sequence[Word], flat: Sequence[Word], bare: str, is_unreadable: bool) -> None:
        """Notes the command before those that it starts."""
        started = started_by(bare, flat[1:], self._stdin)
        position = len(self._findings.subjects)
        with self._fed_by(None if bare == "xargs" else self._stdin):
            for command in started.commands:
                self._call(command)
        if may_take_scripts(bare, [word.plain for word in flat[1:]]):
            started.named = [subject for text in texts_in(flat[1:]) for subject in self._named_in(text)]
        unread = [
            script for script in started.scripts if not self._script(script, bare in {"eval", "trap", "alias", "source", "."})
        ]
        if unread:
            self._findings.report([text_of(words)])
        if unread or is_unreadable:
            started.readability = "unreadable"
        for file in started.files:
            self._findings.runs(file)
        self._findings.subjects.insert(position, build_subject(words, flat, started, self._redirections))
        if bare not in _DIRECTORY_COMMANDS:
            self._check_arguments(words, flat, bare, started)

    def _named_in(self, text: str) -> list[Subject]:
        """The commands of a text, which run if the program takes it for a script; none if the text is no script."""
        found = Findings()
        child = self._variables.in_child_process()
        is_script = ShellReader(self._boundary, child, self._paths.directories, found, self._depth + _DEPTH_OF_SCRIPT).read(text)
        self._findings.count(len(text) // 10)
        self._findings.report(filter(is_likely, found.outside) if is_script else ())
        return found.subjects if is_script else []

    def _script(self, script: str, in_place: bool) -> bool:
        """Returns whether all of the script is understood. The rules are applied to what can be read in any case."""
        if in_place:
            self._variables.forget_all()
        variables = self._variables if in_place else self._variables.in_child_process()
        depth = self._depth + _DEPTH_OF_SCRIPT
        reader = ShellReader(self._boundary, variables, self._paths.directories, self._findings, depth, in_place)
        is_understood = reader.read(script.replace(UNKNOWN, ""))
        self._paths.makes_links |= reader._paths.makes_links
        return UNKNOWN not in script and is_understood

    def _check_arguments(self, words: Sequence[Word], flat: Sequence[Word], bare: str, started: StartedProgram) -> None:
        inner = [word for command in started.commands for word in command]
        self._findings.report(self._paths.outside_of_arguments(bare, [word for word in flat[1:] if word not in inner]))
        takes_paths = any(basename(command[0].value) in PATH_COMMANDS for command in started.commands)
        if bare == "xargs" and takes_paths and not (self._stdin and self._stdin.lists_files):
            self._findings.report([text_of(words)])
        if started.readability == "foreign":
            for word in flat[1:]:
                self._findings.report(self._paths.outside_in_program(word.plain, word.text))
            text = self._stdin.text if self._stdin else ""
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
    """Whether the `cd` has one known folder, and is in a script or a subshell, neither in a block nor behind `||`."""
    if syntax.command_name(node) != "cd" or len(flat) != 2:
        return False
    target = flat[1]
    is_folder_name = target.is_known and not has_glob(target.fields[0]) and target.value[:1] not in {"", "-"}
    return is_folder_name and syntax.parent_type(syntax.statement_of(node, {"list", "redirected_statement"}, {"||"})) in {
        "program",
        *_APART,
    }
