"""What a command runs that no rule can know by its name: commands behind a wrapper, scripts, files, code."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.permission.rules import Readability, Subject
from app.permission.shell.arguments import ASSIGNMENT, changes_programs, readability_of, text_or_unknown, texts_in
from app.permission.shell.programs import (
    INTERPRETERS,
    SHELLS,
    WRAPPERS,
    entry_name,
    is_find,
    may_hold_commands,
    may_take_scripts,
    runs_nothing,
)
from app.permission.shell.words import Word

_FIND_RUNS = re.compile(r"-exec|-execdir|-ok|-okdir")
_MODULES_THAT_RUN_CODE = {"timeit", "code", "pdb", "runpy"}
_TAKES_CODE = re.compile(r"--(eval|print|run|execute|command|require|import|init-command)\b")
_MAY_TAKE_VALUE = re.compile(r"[-+]\w*[oOWXd]\w*|-r|--rcfile|--init-file")
_NO_FILE = re.compile(r"-|eval|/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")


@dataclass(frozen=True, slots=True)
class Stdin:
    """What feeds a command. `text`: a heredoc or here-string; empty if known only at run time. `lists_files`: names of files."""

    text: str = ""
    lists_files: bool = False


@dataclass(slots=True)
class StartedProgram:
    """What a command runs besides itself.

    `scripts` are shell text, `files` contain code. UNKNOWN in a script stands for text that is known only at run time. `named`:
    commands that stand in its arguments, which it may run.
    """

    commands: list[Sequence[Word]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    named: list[Subject] = field(default_factory=list)
    readability: Readability = "readable"


def started_by(name: str, args: Sequence[Word], stdin: Stdin | None) -> StartedProgram:
    """`name` is without folder and in lower case. Every argument has one field."""
    name = entry_name(name)
    started = StartedProgram()
    _find_commands(started, name, args, stdin)
    if name in SHELLS or name in INTERPRETERS:
        _interpret(started, name, args, stdin)
    elif name in {"eval", "trap", "alias"}:
        started.scripts += _scripts_of_builtin(name, args)
    elif name in {"make", "gmake"}:
        started.files += [*(word.value for word in args), "Makefile", "makefile", "GNUmakefile"]
    elif started.readability == "readable":
        started.readability = readability_of(name, [text_or_unknown(word) for word in args], stdin is not None)
    return started


def _scripts_of_builtin(name: str, args: Sequence[Word]) -> list[str]:
    shown = [text_or_unknown(word) for word in args if word.value != "--"]
    if name == "eval":
        return [" ".join(shown)]
    return shown[:1] if name == "trap" else [text.partition("=")[2] for text in shown]


def _find_commands(started: StartedProgram, name: str, args: Sequence[Word], stdin: Stdin | None) -> None:
    if is_find(name):
        starts = (at + 1 for at, word in enumerate(args) if _FIND_RUNS.fullmatch(word.value))
        for command in filter(None, (_until(args[at:], {";", "+"}) for at in starts)):
            _add_fed_command(started, command)
    if name in WRAPPERS and not runs_nothing(name, [word.value for word in args]):
        _find_wrapped(started, name, args)
    if name == "xargs" and not (stdin and stdin.lists_files):
        fed = (command[0].value.rpartition("/")[2].lower() for command in started.commands)
        started.readability = "foreign" if any(may_take_scripts(one, ()) for one in fed) else started.readability


def _find_wrapped(started: StartedProgram, name: str, args: Sequence[Word]) -> None:
    found = list(_inner_commands(args, WRAPPERS[name], int(name == "timeout")))
    own = args[: len(args) - max(map(len, found), default=0)]
    if any(changes_programs(word.value) or not word.is_known for word in own):
        started.readability = "unreadable"
    for command in found:
        if name == "xargs":
            _add_fed_command(started, command)
        else:
            started.commands.append(command)
    options = "".join(f"\0{word.value}" for word in own)
    placeholders = re.findall(r"\0-[a-zA-Z0]*?[IiJ]\0?([^\0]*)|\0--rep[^\0]*", options) if name == "xargs" else []
    splits = name == "env" and re.search(r"\0(?:-[a-zA-Z0]*S|--s)", options)
    started.scripts += texts_in(own) if splits else ()
    if splits or placeholders not in ([], ["{}"], [""]):
        started.readability = "unreadable"


def _add_fed_command(started: StartedProgram, command: Sequence[Word]) -> None:
    """Files or standard input add words to the command: these decide what runs if the command runs its arguments."""
    started.commands.append(command)
    if may_hold_commands(command[0].value.rpartition("/")[2].lower()) or "{" in command[0].value:
        started.readability = "unreadable"


def _until(args: Sequence[Word], ends: set[str]) -> Sequence[Word]:
    return args[: next((at for at, word in enumerate(args) if word.value in ends), len(args))]


def _inner_commands(args: Sequence[Word], valued: str, operands: int) -> Iterator[Sequence[Word]]:
    """The earliest first. Where an option may take the next word as its value or not, both are followed."""
    starts: set[int] = set()
    waiting, seen = [(0, operands)], set[tuple[int, int]]()
    while waiting:
        at, left = waiting.pop()
        if at >= len(args) or (at, left) in seen:
            continue
        seen.add((at, left))
        text = args[at].value
        if text == "--":
            starts.add(at + 1 + left)
        elif text.startswith("-") and len(text) > 1:
            waiting += [(after, left) for after in _after_option(at, text, valued)]
        elif ASSIGNMENT.fullmatch(text) or text in {"{", "(", "!", "-"}:
            waiting.append((at + 1, left))
        elif left:
            waiting.append((at + 1, left - 1))
        else:
            starts.add(at)
    return (args[at:] for at in sorted(starts) if at < len(args))


def _after_option(at: int, option: str, valued: str) -> list[int]:
    if "=" in option:
        return [at + 1]
    if option.startswith("--"):
        return [at + 1, at + 2]
    letter = next((position for position, letter in enumerate(option) if position and letter in valued), None)
    return [at + 2] if letter == len(option) - 1 else [at + 1]


def _interpret(started: StartedProgram, name: str, args: Sequence[Word], stdin: Stdin | None) -> None:
    is_shell, code_letters = name in SHELLS, INTERPRETERS.get(name, "c")
    options, operands = _options_and_operands(args)
    letters = "".join(option for option in options if not option.startswith("--"))
    if any(letter in letters for letter in code_letters) or any(map(_TAKES_CODE.match, options)):
        started.scripts += map(text_or_unknown, operands) if is_shell else []
        started.readability = "readable" if is_shell else "foreign"
    elif "m" in letters and code_letters == "c" and not is_shell:
        started.readability = "foreign" if _MODULES_THAT_RUN_CODE & {word.value for word in args} else "readable"
    elif (
        operands
        and not (is_shell and "s" in letters)
        and all(word.is_known and not _NO_FILE.fullmatch(word.value) for word in operands)
    ):
        started.files += [word.value for word in operands]
    elif operands or stdin:
        started.readability = "unreadable" if is_shell else "foreign"
        started.scripts += [stdin.text] if stdin and is_shell else []


def _options_and_operands(args: Sequence[Word]) -> tuple[list[str], list[Word]]:
    """The leading options; the words that may be their values, and the first operand."""
    options: list[str] = []
    operands: list[Word] = []
    for at, word in enumerate(args):
        if word.value == "--":
            return options, [*operands, *args[at + 1 : at + 2]]
        if word.value[:1] in {"-", "+"} and len(word.value) > 1:
            options.append(word.value)
            continue
        operands.append(word)
        if at == 0 or not _MAY_TAKE_VALUE.fullmatch(args[at - 1].value):
            break
    return options, operands
