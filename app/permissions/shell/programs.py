"""What a command runs that no rule can know by its name: commands behind a wrapper, scripts, files, code.

Few programs are listed here, because any other program is taken to run what its words name (app.permissions.spellings).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from app.permissions.rules import Readability, Subject
from app.permissions.shell.words import UNKNOWN, Word

_INERT_PROGRAMS = """
: [ base64 basename bat cat cd chmod chown cksum clear cmp column comm cp curl cut date df diff dirname du echo egrep expand
export false fgrep file fmt fold grep gunzip gzip head hexdump jq kill less ln local ls md5sum mkdir mktemp more mv nl od
paste patch pbcopy printf ps pwd read readlink realpath rev rg rmdir seq set sha1sum sha256sum sha512sum sleep sort stat
strings tac tail tee test touch tr tree true type uniq unset wait wc which xclip xxd xz yes zcat
"""
_INERT = frozenset(_INERT_PROGRAMS.split())
_RUNS_BY_OPTION = {"rg": ("--p", "--ho"), "bat": ("--pager",), "sort": ("--co",), "less": ("+",), "more": ("+",)}

WRAPPERS = {
    **dict.fromkeys(["nohup", "setsid", "builtin", "busybox", "noglob", "!", "{", "command", "coproc"], ""),
    **dict.fromkeys(("env", "doas"), "uC"),
    "nice": "n",
    "time": "fo",
    "timeout": "ks",
    "stdbuf": "ioe",
    "ionice": "cnpPu",
    "sudo": "ugpCDhrtTUR",
    "exec": "a",
    "xargs": "aEIdLnPs",
}
"""A rule that allows a wrapper does not allow the command that it runs. By name, the letters of options that take a value."""
SHELLS = frozenset(["bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "yash", "fish", "csh", "tcsh", "source", "."])
INTERPRETERS = {
    **dict.fromkeys(("python", "pypy", "ipython"), "c"),
    **dict.fromkeys(["perl", "ruby", "lua", "luajit", "julia", "rscript", "osascript", "groovy", "scala", "guile"], "eE"),
    **dict.fromkeys(("node", "nodejs", "deno", "bun", "tsx", "ts-node"), "ep"),
    "php": "rRBE",
    **dict.fromkeys(("pwsh", "powershell"), "cCeE"),
    **dict.fromkeys(["tclsh", "wish", "irb", "ghci", "bc", "dc", "m4", "gnuplot", "octave", "ed", "ex"], ""),
}
"""By name, the letters of options that take code. Without a file they read code from standard input."""
_SED = ("sed", "gsed")
_MAX_DELIMITERS = 100
_RUNNING_SUBSTITUTION = r"(?s)s@(?:\\.|[^\\\n@])*@(?:\\.|[^\\\n@])*@[gpimIM0-9]*[ew]"
_RUNNING_BEHIND_ADDRESS = r"@[IM]*\s*e(?:[\s;]|$)"
OWN_LANGUAGE = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), rf"system|getline|[^|]\|[^|]|@load|{UNKNOWN}"),
    **dict.fromkeys(("sqlite", "psql", "mysql", "mariadb"), r"(?i)\\!|^\s*[.\\]?(?:shell|system)|program|edit\("),
    **dict.fromkeys(
        _SED,
        r"(?:(?:^|[;{}\d$/!,])[IM]*\s*|\n[^\S\n]*)[eE](?:[\s;]|$)|(?:(?:^|[;{}\d$!])\s*|\n[^\S\n]*)[wW]\s",
    ),
}
"""Programs whose arguments are full of signs that mean code elsewhere, with patterns of what runs or writes something in them."""
ASSIGNMENT = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_CHANGES_PROGRAMS = re.compile(
    r"PATH|LD_\w+|DYLD_\w+|BASH_\w+|ENV|SHELLOPTS|BASHOPTS|PS[0-4]|PROMPT_COMMAND|IFS|CDPATH|GLOBIGNORE|(\w+_)?PAGER|VISUAL|BROWSER|"
    r"(\w+_)?EDITOR|GIT_(SSH|EXTERNAL|PROXY|ASKPASS|CONFIG|EXEC|TEMPLATE|DIR)\w*|(SSH|SUDO)_ASKPASS|NODE_OPTIONS|PERL5\w+|RUBYOPT|"
    r"RUBYLIB|PYTHONSTARTUP|PYTHONHOME|JAVA_TOOL_OPTIONS|MAKEFLAGS|GCONV_PATH|\w+_WRAPPER|LESSOPEN|LESSCLOSE|TAR_OPTIONS|"
    r"RIPGREP_CONFIG_PATH|BAT_(OPTS|CONFIG_\w+)"
)
_HARMLESS_PROGRAMS = {"", "cat", "true", ":", "less", "more"}
_CODE_OPTION = re.compile(r"-\w*[ceEx]|--?(?:eval|exec|command|run|execute|call)|eval")
_CODE = re.compile(r"[();|&`$<>{}!\\]|\bimport\b")
_HARMLESS_SETTING = re.compile(
    r"(?i)(?:user|color|advice|column|push|pull|rebase|http|fetch|log|status|branch|commit|safe)\.[\w.-]+(?:=(?!!)|$)"
    r"|init\.defaultbranch\b|remote\.[\w-]+\.url(?:=(?!ext::)|$)"
    r"|core\.(?:quotepath|autocrlf|ignorecase|filemode|longpaths|eol|abbrev)\b|diff\.(?:renames|algorithm|noprefix|mnemonicprefix)\b"
)
_SETTING = re.compile(r"[a-zA-Z][\w-]*\..+", re.DOTALL)
"""Git's settings: one that is not known as harmless may name a program."""
_PROSE_OPTION = re.compile(r"-\w*m|--(?:message|title|body|notes|description|subject|comment)")
_FIND_RUNS = re.compile(r"-exec|-execdir|-ok|-okdir")
_MODULES_THAT_RUN_CODE = {"timeit", "code", "pdb", "runpy"}
_TAKES_CODE = re.compile(r"--(eval|print|run|execute|command|require|import|init-command)\b")
_MAY_TAKE_VALUE = re.compile(r"[-+]\w*[oOWXd]\w*|-r|--rcfile|--init-file")
_NO_FILE = re.compile(r"-|eval|/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")


def runs_nothing(program: str, args: Sequence[str]) -> bool:
    """Programs that are known to run no others, so that their arguments are text and files. The list may be short: other
    programs, and those that the project brings under such a name (`./grep`), are taken to run whatever they name."""
    name = re.sub(r"^/(usr/)?bin/", "", program)
    if name == "command":
        return bool(args) and re.fullmatch(r"-[pvV]*[vV]", args[0]) is not None
    option = _RUNS_BY_OPTION.get(name, ())
    return name in _INERT and not any(arg.startswith(option) for arg in args)


def may_take_scripts(name: str, args: Sequence[str]) -> bool:
    """Whether the program may take its arguments as scripts, for all that is known."""
    return not (runs_nothing(name, args) or may_hold_commands(name) or entry_name(name) in OWN_LANGUAGE)


def may_hold_commands(name: str) -> bool:
    return is_find(name) or any(entry_name(name) in table for table in (WRAPPERS, SHELLS, INTERPRETERS))


def is_find(name: str) -> bool:
    return name in {"find", "gfind", "bfs"}


def entry_name(name: str) -> str:
    """The name in the tables: `python3.11` is `python`."""
    return name if name == "m4" else name.rstrip("0123456789.") or name


def changes_programs(assignment: str) -> bool:
    """Whether the assignment can make another program run than the named one (`PATH=.:$PATH`, `GIT_SSH_COMMAND=…`)."""
    found = ASSIGNMENT.fullmatch(assignment)
    return bool(found and _CHANGES_PROGRAMS.fullmatch(found[1]) and found[2] not in _HARMLESS_PROGRAMS)


def _sed_runs(program: str) -> bool:
    """Whether a substitution in sed's language has a flag that runs or writes its result (`s/a/b/e`), or `e` stands behind an
    address that has other delimiters than `/`: `\\%a%e`. Any character may be one: with too many of them the answer is yes."""
    within = {_RUNNING_SUBSTITUTION: r"s(?=([^\\\n]))", _RUNNING_BEHIND_ADDRESS: r"\\([^\w\s])"}
    signs = {sign.replace("@", re.escape(mark)) for sign, delimiter in within.items() for mark in re.findall(delimiter, program)}
    return len(signs) > _MAX_DELIMITERS or any(re.search(sign, program) for sign in signs)


def readability_of(name: str, args: Sequence[str], has_input: bool) -> Readability:
    if name == "git" and _names_program(args):
        return "unreadable"
    if own := OWN_LANGUAGE.get(name):
        runs = any(re.search(own, arg) for arg in args)
        runs |= name in _SED and any(map(_sed_runs, args))
        return "foreign" if runs else "readable"
    if not may_take_scripts(name, args):
        return "readable"
    takes_code = any(_CODE_OPTION.fullmatch(option) and _CODE.search(value) for option, value in pairwise(args))
    runs_its_input = has_input and all(arg.startswith("-") for arg in args)
    return "foreign" if takes_code or runs_its_input else "readable"


def _names_program(args: Sequence[str]) -> bool:
    """`args`: git's arguments."""
    given = [value for option, value in pairwise(args) if option == "-c" or "config" in args]
    settings = filter(_SETTING.fullmatch, given)
    is_named = any(arg.startswith(("ext::", "--config-env", "--exec-path=")) for arg in args)
    return is_named or not all(map(_HARMLESS_SETTING.match, settings))


def texts_in(args: Sequence[Word]) -> Iterator[str]:
    """Texts among the arguments that may be scripts, without the options that they belong to."""
    for at, word in enumerate(args):
        text = re.sub(r"^--[\w-]+=|^-\w", "", word.value)
        if word.is_known and re.search(r"\s", text) and not (at and _PROSE_OPTION.fullmatch(args[at - 1].value)):
            yield text


def text_or_unknown(word: Word) -> str:
    return word.value if word.is_known else UNKNOWN + word.text.strip("\"'")


@dataclass(frozen=True, slots=True)
class Stdin:
    """The input of a command. `text`: a heredoc or here-string; empty if known only at run time. `lists_files`: names of
    files."""

    text: str = ""
    lists_files: bool = False


@dataclass(slots=True)
class StartedProgram:
    """What a command runs besides itself.

    `scripts` are shell text, `files` contain code. UNKNOWN in a script stands for text that is known only at run time. `named`:
    commands in its arguments, which it may run.
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
        for at in starts:
            if command := list(takewhile(lambda word: word.value not in {";", "+"}, args[at:])):
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


def _inner_commands(args: Sequence[Word], valued: str, operands: int) -> Iterator[Sequence[Word]]:
    """The commands that may begin in `args`, the earliest first. If an option may or may not take the next word as its value,
    both ways are followed. `valued`: letters of options with a value. `operands`: how many stand before the command."""
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
