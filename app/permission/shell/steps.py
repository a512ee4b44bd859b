"""What a command runs further, step by step, and how the options before it are read."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.permission.shell.words import UNKNOWN, Word, literal_word, unquoted

UNSEEN_INPUT = Word("", (UNKNOWN,))
NO_INPUT = Word("", ())


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs this command. `more_arguments`: with arguments that come from its input."""

    words: Sequence[Word]
    more_arguments: bool = False


@dataclass(frozen=True, slots=True)
class RunsScript:
    """Runs this text as a shell script; `in_place` in the same shell, so that its `cd` lasts."""

    script: Word
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class RunsFile:
    """Runs what stands in this file. It is no command of this script, unless the script writes the file first."""

    file: Word


@dataclass(frozen=True, slots=True)
class Starts:
    """A project's runner starts this command or script (`uv run pytest`, `ssh host ls`). Leave for the runner is leave for it,
    but a rule that forbids it still does."""

    step: Runs | RunsScript


@dataclass(frozen=True, slots=True)
class Unseen:
    """What it runs shows only when it runs."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """It runs a program in another language that stands in its arguments or input."""


Step = Runs | RunsScript | RunsFile | Starts | Unseen | Foreign

Reader = Callable[[Sequence[Word], Word], list[Step]]
"""From the words after the command's name, and its standard input."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A command that runs the command after it. `short`, `long`: its options that take a value; `operands`: its own arguments."""

    short: str = ""
    long: str = ""
    operands: int = 0
    assignments: bool = False
    more_arguments: bool = False

    def __call__(self, args: Sequence[Word], _stdin: Word) -> list[Step]:
        own, rest = split_options(args, self)
        steps: list[Step] = []
        if any(_names_a_program(value(word)) or not word.is_known for word in own):
            steps.append(Unseen())
        if len(rest) > self.operands:
            steps.append(Runs(rest[self.operands :], self.more_arguments))
        return steps


_ASSIGNMENT = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)

_DANGEROUS_VARIABLE = re.compile(
    r"PATH|LD_\w+|DYLD_\w+|BASH_\w+|ENV|SHELLOPTS|BASHOPTS|PS[0-4]|PROMPT_COMMAND|IFS|CDPATH|GLOBIGNORE|(\w+_)?PAGER|VISUAL|BROWSER|"
    r"(\w+_)?EDITOR|GIT_(SSH|EXTERNAL|PROXY|ASKPASS|CONFIG|EXEC|TEMPLATE|DIR)\w*|(SSH|SUDO)_ASKPASS|NODE_OPTIONS|PERL5\w+|RUBYOPT|"
    r"RUBYLIB|PYTHONSTARTUP|PYTHONHOME|JAVA_TOOL_OPTIONS|MAKEFLAGS|GCONV_PATH|\w+_WRAPPER|LESSOPEN|LESSCLOSE|TAR_OPTIONS"
)

_HARMLESS_PROGRAMS = {"", "cat", "true", ":", "less", "more"}


def sets_dangerous_variable(text: str) -> bool:
    """An assignment by which another program than the named one runs (`PATH=.:$PATH`, `GIT_SSH_COMMAND=…`)."""
    found = _ASSIGNMENT.fullmatch(text)
    return bool(found and _DANGEROUS_VARIABLE.fullmatch(found[1]) and found[2] not in _HARMLESS_PROGRAMS)


def _names_a_program(option: str) -> bool:
    """`env PATH=. ls`, `strace -o '|touch x' ls`."""
    return sets_dangerous_variable(option) or option.removeprefix("-o")[:1] in {"|", "!"}


def value(word: Word) -> str:
    return unquoted(" ".join(word.fields))


def split_options(args: Sequence[Word], spec: Prefix) -> tuple[Sequence[Word], Sequence[Word]]:
    """The options (and assignments) with their values, and what follows them."""
    at = 0
    while at < len(args):
        text = value(args[at])
        if text == "--":
            at += 1
            break
        if text.startswith("-"):
            at += 2 if _takes_next(text, spec) else 1
        elif spec.assignments and _ASSIGNMENT.fullmatch(text):
            at += 1
        else:
            break
    return args[:at], args[at:]


def _takes_next(option: str, spec: Prefix) -> bool:
    if option.startswith("--"):
        return "=" not in option and any(name.startswith(option[2:]) for name in spec.long.split())
    valued = next((at for at, letter in enumerate(option) if at > 0 and letter in spec.short), None)
    return valued == len(option) - 1


def script_of(words: Sequence[Word], in_place: bool = False) -> RunsScript:
    """The words joined with blanks and read as a script, as `eval`, `ssh` and `watch` do."""
    if len(words) == 1:
        return RunsScript(words[0], in_place)
    text = " ".join(value(word) for word in words)
    shown = " ".join(word.text for word in words)
    return RunsScript(literal_word(text) if all(word.is_known for word in words) else Word(shown, (UNKNOWN,)), in_place)


READS_INPUT = re.compile(r"-|/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")


def until(args: Sequence[Word], ends: set[str]) -> Sequence[Word]:
    end = next((at for at, word in enumerate(args) if value(word) in ends), len(args))
    return args[:end]


def option_script(letter: str, names: str, otherwise: Reader | None = None) -> Reader:
    """The value of an option is a script: `su -c '…'`, `script -c '…'`, `flock file -c '…'`."""
    pattern = re.compile(rf"(?:-[a-zA-Z]*(?:{letter})|--(?:{names})(?:=|$))(.*)", re.DOTALL)

    def read(args: Sequence[Word], stdin: Word) -> list[Step]:
        for at, word in enumerate(args):
            found = pattern.fullmatch(value(word))
            if found and found[1]:
                return [RunsScript(literal_word(found[1])) if word.is_known else Unseen()]
            if found and args[at + 1 :]:
                return [RunsScript(args[at + 1])]
        return otherwise(args, stdin) if otherwise else []

    return read
