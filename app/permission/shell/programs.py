"""Which further commands other programs run: interpreters, runners of projects, git, make, those with a command in an option."""

import re
from collections.abc import Sequence
from itertools import pairwise

from app.permission.shell.steps import (
    READS_INPUT,
    Foreign,
    Prefix,
    Reader,
    Runs,
    RunsFile,
    RunsScript,
    Starts,
    Step,
    Unseen,
    option_script,
    script_of,
    split_options,
    until,
    value,
)
from app.permission.shell.words import UNKNOWN, Word, literal_word


def fd_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    for at, word in enumerate(args):
        if re.fullmatch(r"-[a-zA-Z]*[xX]|--exec|--exec-batch", value(word)):
            return [Runs(until(args[at + 1 :], {";"}))] if args[at + 1 :] else []
    return []


def parallel_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    _, rest = split_options(args, Prefix(short="jNnLaPSI", long="jobs max-args colsep delay timeout joblog arg-file sshlogin"))
    command = until(rest, {":::", "::::", ":::+", "::::+"})
    return [script_of(command)] if command else [Unseen()]


def watch_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    _, rest = split_options(args, Prefix(short="nqs", long="interval equexit shotsdir"))
    return [script_of(rest)] if rest else []


def runner(*leads: str, valued: str = "", call: str = "") -> Reader:
    """`uv run [options] command`: after one of the leading words, or none where `leads` holds an empty one. `call`: the names of
    an option whose value is a script."""
    spec = Prefix(short=valued)

    def read(args: Sequence[Word], _stdin: Word) -> list[Step]:
        _, rest = split_options(args, spec)
        if call and (script := _option_value(args, call)):
            return [Starts(RunsScript(script))]
        if "" not in leads:
            if not rest or value(rest[0]) not in leads:
                return []
            _, rest = split_options(rest[1:], spec)
        return [Starts(Runs(rest))] if rest else []

    return read


def _option_value(args: Sequence[Word], names: str) -> Word | None:
    for at, word in enumerate(args):
        name, equals, rest = value(word).partition("=")
        if name in names.split():
            return literal_word(rest) if equals else next(iter(args[at + 1 :]), None)
    return None


def ssh_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    own, rest = split_options(args, Prefix(short="BbcDEeFIiJLlmOopQRSWw"))
    if any(re.search("command", value(word), re.IGNORECASE) for word in own):
        return [Foreign()]
    return [Starts(script_of(rest[1:]))] if len(rest) > 1 else []


_CODE_MODULES = {"timeit", "code", "pdb", "runpy"}
"""Of Python's: they run code that stands in their arguments or input."""


def interpreter(inline: str, modules: str = "") -> Reader:
    """Python, perl and the like: a program in an option or on standard input. `modules`: letters of options that name a file."""

    def read(args: Sequence[Word], stdin: Word) -> list[Step]:
        for word in args:
            text = value(word)
            if text.startswith("--"):
                if re.match(r"--(eval|print|run|execute|command|require|import)\b", text):
                    return [Foreign()]
            elif not text.startswith("-") or text == "-":
                return [Foreign()] if READS_INPUT.fullmatch(text) or UNKNOWN in text or text == "eval" else [RunsFile(word)]
            elif any(letter in text for letter in modules):
                return [Foreign()] if _CODE_MODULES & set(map(value, args)) else []
            elif any(letter in text for letter in inline):
                return [Foreign()]
        return [Foreign()] if stdin.fields else []

    return read


_AWK_RUNS = re.compile(r"system|getline|[^|]\|[^|]|@load|-\w*[eil]\b|--source")


def awk_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    return [Foreign()] if any(not word.is_known or _AWK_RUNS.search(value(word)) for word in args) else []


_SED_RUNS = re.compile(r"(^|[;{}\n\d$/!,])\s*[eE](\s|$|;)|s(.)[^\n]*\3[^\n]*\3[gpimI0-9]*[ew]|(^|[;{}\n\d$!])\s*[wW]\s")


def sed_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    return [Foreign()] if any(_SED_RUNS.search(value(word)) for word in args) else []


def with_options(*options: str) -> Reader:
    """These options (by their beginning) name another program to run."""

    def read(args: Sequence[Word], _stdin: Word) -> list[Step]:
        return [Foreign()] if any(value(word).startswith(options) for word in args) else []

    return read


def with_text(pattern: str) -> Reader:
    """A program whose own language, in arguments or input, can start others."""
    starts_others = re.compile(pattern, re.IGNORECASE)

    def read(args: Sequence[Word], stdin: Word) -> list[Step]:
        return [Foreign()] if any(not word.is_known or starts_others.search(value(word)) for word in (*args, stdin)) else []

    return read


def with_input(*options: str) -> Reader:
    """An editor or a scheduler that takes commands from its input or these options."""

    def read(args: Sequence[Word], stdin: Word) -> list[Step]:
        return [Foreign()] if stdin.fields or any(value(word).startswith(options) for word in args if options) else []

    return read


def scheduler_steps(_args: Sequence[Word], stdin: Word) -> list[Step]:
    return [RunsScript(stdin)] if stdin.fields else []


def builtin_hook(*options: str) -> Reader:
    def read(args: Sequence[Word], _stdin: Word) -> list[Step]:
        return [Unseen()] if any(value(word).startswith(options) for word in args) else []

    return read


_GIT_GLOBAL = Prefix(short="Cc", long="git-dir work-tree namespace super-prefix config-env exec-path")

_GIT_HARMLESS_SETTING = re.compile(
    r"(user|color|advice|column|init|push|pull|merge|rebase|http|fetch|log|status|branch|commit|safe)\.[\w.-]+=(?!!)"
    r"|core\.(quotepath|autocrlf|ignorecase|filemode|longpaths|eol|abbrev)=|diff\.(renames|algorithm|noprefix|mnemonicprefix)=",
    re.IGNORECASE,
)

_GIT_COMMAND_SETTING = re.compile(
    r"alias\.|.*(command|program|pager|editor|textconv|external|cmd|helper|driver|hookspath|fsmonitor|filter\.|clean|smudge|process)$",
    re.I,
)


def git_steps(args: Sequence[Word], stdin: Word) -> list[Step]:
    own, rest = split_options(args, _GIT_GLOBAL)
    settings = [value(after) for word, after in pairwise(own) if value(word) == "-c"]
    settings += [text[2:] for text in map(value, own) if re.match(r"-c.", text)]
    unsafe = any(not _GIT_HARMLESS_SETTING.match(setting) for setting in settings)
    unsafe = unsafe or any(
        re.match(r"--(exec-path=|config-env|upload-pack|receive-pack|exec=|template=)|ext::", value(word)) for word in args
    )
    steps: list[Step] = [Unseen()] if unsafe else []
    return [*steps, *_git_subcommand(rest, stdin)]


def _git_subcommand(words: Sequence[Word], stdin: Word) -> list[Step]:
    match [value(word) for word in words]:
        case ["grep", *rest] if any(re.match(r"-\w*O.|--open", option) for option in rest):
            return [Unseen()]
        case ["clone", *rest] if any(re.match(r"-\w*u", option) for option in rest):
            return [Unseen()]
        case ["bisect", "run", _, *_]:
            return [Runs(words[2:])]
        case ["submodule", *rest] if "foreach" in rest:
            return [script_of([word for word in words[rest.index("foreach") + 2 :] if not value(word).startswith("-")])]
        case ["rebase", *_]:
            return option_script("x", "exec")(words[1:], stdin)
        case ["difftool", *_]:
            return option_script("x", "extcmd")(words[1:], stdin)
        case ["filter-branch", *rest]:
            following = zip(rest, words[2:], strict=False)
            return [RunsScript(word) for option, word in following if option.endswith("-filter") or option == "--setup"]
        case ["config", *rest]:
            return _git_config(rest, words[1:])
        case _:
            return []


def _git_config(texts: list[str], words: Sequence[Word]) -> list[Step]:
    at = next((at for at, text in enumerate(texts) if _GIT_COMMAND_SETTING.match(text)), None)
    if at is None or at + 1 >= len(words):
        return []
    script = words[at + 1]
    return [RunsScript(literal_word(value(script).removeprefix("!"))) if script.is_known else Unseen()]


def make_steps(args: Sequence[Word], stdin: Word) -> list[Step]:
    texts = [value(word) for word in args]
    if any(text.startswith(("--eval", "SHELL=", "-f-", "--file=-", "--makefile=-")) for text in texts) or "-" in texts:
        return [Foreign()]
    if stdin.fields and texts[-1:] == ["-f"]:  # the grammar loses the `-` of `make -f - <<EOF`
        return [Foreign()]
    named = [RunsFile(after) for option, after in pairwise(args) if value(option) in {"-f", "--file", "--makefile"}]
    named = named or [RunsFile(literal_word(name)) for name in ("Makefile", "makefile", "GNUmakefile")]
    return [Foreign()] if stdin.fields and any(READS_INPUT.fullmatch(value(one.file)) for one in named) else [*named]
