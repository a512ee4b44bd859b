"""Which further commands a shell and its builtins run: `env X=1 rm y`, `bash -c '…'`, `eval`, `trap`."""

import re
import shlex
from collections.abc import Sequence

from app.permission.shell.steps import (
    READS_INPUT,
    UNSEEN_INPUT,
    Prefix,
    RunsFile,
    RunsScript,
    Step,
    Unseen,
    script_of,
    split_options,
    value,
)
from app.permission.shell.words import Word, literal_word


def env_steps(args: Sequence[Word], stdin: Word) -> list[Step]:
    own, _ = split_options(args, _ENV)
    for at, word in enumerate(own):
        found = re.match(r"(?:-[a-zA-Z0]*S|--s[a-z-]*=?)(.*)", value(word), re.DOTALL)
        if found and word.is_known:
            return _ENV([*_split_string(found[1]), *args[at + 1 :]], stdin) if found[1] else _env_of_next(args[at + 1 :], stdin)
        if found:
            return [Unseen()]
    return _ENV(args, stdin)


def _env_of_next(args: Sequence[Word], stdin: Word) -> list[Step]:
    """`-S 'rm x' y` runs `rm x y`; the text may hold options of its own, which makes it one more `env`."""
    if not args or not args[0].is_known:
        return [Unseen()]
    return _ENV([*_split_string(value(args[0])), *args[1:]], stdin)


def _split_string(text: str) -> list[Word]:
    try:
        return [literal_word(part) for part in shlex.split(text)]
    except ValueError:
        return [UNSEEN_INPUT]


_ENV = Prefix(short="uC", long="unset chdir", assignments=True)


def shell_steps(args: Sequence[Word], stdin: Word) -> list[Step]:
    options, rest = _shell_options(args)
    if any(_is_cluster_with(option, "c") or option in {"--command", "--init-command"} for option in map(value, options)):
        return [RunsScript(rest[0])] if rest else []
    if rest and not any(_is_cluster_with(value(option), "s") for option in options):
        return _script_file(rest[0], stdin)
    return [RunsScript(stdin)] if stdin.fields else []


def _shell_options(args: Sequence[Word]) -> tuple[Sequence[Word], Sequence[Word]]:
    at = 0
    while at < len(args) and value(args[at])[:1] in {"-", "+"} and len(value(args[at])) > 1:
        text = value(args[at])
        at += 1
        if text == "--":
            break
        if (text[-1] in "oO" and not text.startswith("--")) or text in {"--rcfile", "--init-file"}:
            at += 1
    return args[:at], args[at:]


def _is_cluster_with(option: str, letter: str) -> bool:
    return option.startswith("-") and not option.startswith("--") and letter in option


def _script_file(file: Word, stdin: Word) -> list[Step]:
    if not file.is_known:
        return [Unseen()]
    if not READS_INPUT.fullmatch(value(file)):
        return [RunsFile(file)]
    return [RunsScript(stdin)] if stdin.fields and "stdin" in value(file) else [Unseen()]


def source_steps(args: Sequence[Word], stdin: Word) -> list[Step]:
    return _script_file(args[0], stdin) if args else []


def eval_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    words = args[1:] if args and value(args[0]) == "--" else args
    return [script_of(words, in_place=True)] if words else []


def trap_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    words = [word for word in args if not re.fullmatch(r"--|-[lpP]", value(word))]
    return [RunsScript(words[0])] if len(words) > 1 and value(words[0]) not in {"", "-"} else []


def alias_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    steps: list[Step] = []
    for word in args:
        _, equals, command = value(word).partition("=")
        if equals:
            steps.append(RunsScript(literal_word(command)) if word.is_known else Unseen())
    return steps


def command_steps(args: Sequence[Word], stdin: Word) -> list[Step]:
    """`command -v git` only says where git is."""
    own, _ = split_options(args, Prefix())
    return [] if any(re.fullmatch(r"-[pvV]*[vV][pvV]*", value(word)) for word in own) else Prefix()(args, stdin)


def keyword_steps(args: Sequence[Word], stdin: Word) -> list[Step]:
    """`time`, `coproc` and `!` before a group: the grammar takes the group's first command for arguments."""
    start = next((at for at, word in enumerate(args) if value(word) not in {"{", "(", "!", "time", "coproc"}), len(args))
    return Prefix(short="fo", long="format output", assignments=True)(args[start:], stdin)


def coproc_steps(args: Sequence[Word], stdin: Word) -> list[Step]:
    """`coproc NAME { rm x; }`; without the brace the first word is the command."""
    has_name = len(args) > 1 and value(args[1]) in {"{", "("}
    return [*keyword_steps(args, stdin), *(keyword_steps(args[1:], stdin) if has_name else [])]
