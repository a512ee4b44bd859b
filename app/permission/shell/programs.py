"""Programs that run other programs: tables that say which of their arguments are a command, a script or code.

Options are interpreted only as far as needed to find these. Where two readings are possible, both are reported.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from app.permission.rules import Readability
from app.permission.shell.words import UNKNOWN, Word
from app.util.dataclass import dataclass

_ASSIGNMENT = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_CHANGES_PROGRAMS = re.compile(
    r"PATH|LD_\w+|DYLD_\w+|BASH_\w+|ENV|SHELLOPTS|BASHOPTS|PS[0-4]|PROMPT_COMMAND|IFS|CDPATH|GLOBIGNORE|(\w+_)?PAGER|VISUAL|BROWSER|"
    r"(\w+_)?EDITOR|GIT_(SSH|EXTERNAL|PROXY|ASKPASS|CONFIG|EXEC|TEMPLATE|DIR)\w*|(SSH|SUDO)_ASKPASS|NODE_OPTIONS|PERL5\w+|RUBYOPT|"
    r"RUBYLIB|PYTHONSTARTUP|PYTHONHOME|JAVA_TOOL_OPTIONS|MAKEFLAGS|GCONV_PATH|\w+_WRAPPER|LESSOPEN|LESSCLOSE|TAR_OPTIONS"
)
_HARMLESS_PROGRAMS = {"", "cat", "true", ":", "less", "more"}


def changes_programs(assignment: str) -> bool:
    """Whether the assignment can make another program run than the named one (`PATH=.:$PATH`, `GIT_SSH_COMMAND=…`)."""
    found = _ASSIGNMENT.fullmatch(assignment)
    return bool(found and _CHANGES_PROGRAMS.fullmatch(found[1]) and found[2] not in _HARMLESS_PROGRAMS)


@dataclass(frozen=True, slots=True)
class Stdin:
    """What feeds a command. `text`: a heredoc or here-string; empty if known only at run time. `lists_files`: names of files."""

    text: str = ""
    lists_files: bool = False


@dataclass(slots=True)
class StartedProgram:
    """What a command runs besides itself.

    `scripts` are shell text, `files` contain code. UNKNOWN in a script stands for text that is known only at run time.
    `is_covered`: a rule that allows the command also allows what it starts. A rule that denies still holds.
    """

    commands: list[Sequence[Word]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    readability: Readability = "readable"
    is_covered: bool = False


def _by_name(table: Mapping[str, str]) -> dict[str, str]:
    return {name: entry for names, entry in table.items() for name in names.split()}


_ANY = "any"
_WRAPPERS = _by_name(
    {
        "nohup setsid builtin busybox toybox linux32 linux64 noglob nocorrect chronic ! { command": "",
        "env doas": "uC",
        "nice": "n",
        "time": "fo",
        "timeout": "ks",
        "stdbuf": "ioe",
        "ionice": "cnpPu",
        "sudo": "ugpCDhrtTUR",
        "exec": "a",
        "xargs": "aEIdLnPs",
        "valgrind unbuffer torsocks dbus-run-session entr catchsegv ts coproc chroot gosu su-exec setarch chrt taskset": _ANY,
        "ltrace flock runuser rlwrap caffeinate fakeroot unshare nsenter systemd-run prlimit setpriv pkexec numactl": _ANY,
        "strace cpulimit faketime proxychains xvfb-run parallel watch ssh npx bunx uvx pipx pnpx ld": _ANY,
    }
)
"""Programs that run their arguments, with the letters of options that take a value; _ANY: any option may take one."""
_OPERANDS = {"timeout", "chroot", "gosu", "su-exec", "setarch", "chrt", "taskset", "flock", "faketime", "ssh"}
"""A word of their own precedes the command."""
_JOIN_THEIR_WORDS = {"parallel", "watch", "ssh"}
"""They join their words into a script."""
_FLAGS = {"--null", "--no-run-if-empty", "--preserve-env", "--foreground", "--verbose", "--ignore-environment", "--yes"}
"""Long options of wrappers that take no value."""
_FIND_RUNS = {name: {"-exec", "-execdir", "-ok", "-okdir"} for name in ("find", "gfind", "bfs")}
_FIND_RUNS |= {name: {"-x", "-X", "--exec", "--exec-batch"} for name in ("fd", "fdfind")}

_RUNNERS = _by_name(
    {
        "uv": "run",
        "poetry pipenv pdm hatch rye conda rbenv pyenv": "run exec",
        "bundle mise asdf volta": "exec x run",
        "npm pnpm yarn bun": "exec x dlx",
    }
)
"""Project runners, with the subcommands after which a command follows."""
_COVERING = {*_RUNNERS, "npx", "bunx", "uvx", "pipx", "pnpx", "ssh"}

_SHELLS = {"bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "yash", "fish", "csh", "tcsh", "source", "."}
_INTERPRETERS = _by_name(
    {
        "python pypy ipython": "c",
        "perl ruby lua luajit julia rscript osascript groovy scala guile": "eE",
        "node nodejs deno tsx ts-node": "ep",
        "php": "rRBE",
        "pwsh powershell": "cCeE",
        "tclsh wish irb ghci bc": "",
    }
)
"""Interpreters, with the letters of options that take code."""
_MODULES_THAT_RUN_CODE = {"timeit", "code", "pdb", "runpy"}
_TAKES_CODE = re.compile(r"--(eval|print|run|execute|command|require|import|init-command)\b")
_MAY_TAKE_VALUE = re.compile(r"[-+]\w*[oOWXd]\w*|-r|--rcfile|--init-file")
_NO_FILE = re.compile(r"-|eval|/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")

_HARMLESS_GIT_SETTING = (
    r"(?:user|color|advice|column|init|push|pull|merge|rebase|http|fetch|log|status|branch|commit|safe)\.[\w.-]+=(?!!)"
    r"|core\.(?:quotepath|autocrlf|ignorecase|filemode|longpaths|eol|abbrev)=|diff\.(?:renames|algorithm|noprefix|mnemonicprefix)="
)
_UNREADABLE = _by_name(
    {
        "git": r"^(?:\0-[Cc]\0[^\0]*|\0--(?:git-dir|work-tree|namespace|super-prefix)\0[^\0]*|\0-(?![Cc]\0)[^\0]*)*?"
        rf"\0-c(?:\0(?!{_HARMLESS_GIT_SETTING})|(?!\0|{_HARMLESS_GIT_SETTING}))"
        r"|\0--(?:exec-path=|config-env|upload-pack|receive-pack|exec=|template=)|\0ext::|\0filter-branch\b"
        r"|\0grep\0(?:.*\0)?(?:-\w*O.|--open)|\0clone\0(?:.*\0)?-\w*u|\0bisect\0run\0|\0submodule\0(?:.*\0)?foreach\0"
        r"|\0rebase\0(?:.*\0)?(?:-\w*x|--exec)|\0difftool\0(?:.*\0)?(?:-\w*x|--extcmd)|\0config\0(?:.*\0)?(?i:alias\.|[^\0]*(?:command|"
        r"program|pager|editor|textconv|external|cmd|helper|driver|hookspath|fsmonitor|filter\.|clean|smudge|process))",
        "su runuser capsh script flock npm pnpm yarn bun npx bunx": r"\0(?:-[a-zA-Z]*c|--(?:session-)?command|--call)",
        "env": r"\0(?:-[a-zA-Z0]*S|--s)",
        "nix-shell": r"\0--(?:run|command)",
        "mapfile readarray": r"\0(?:-C|--callback)",
        "hash": r"\0-p",
        "enable": r"\0-f",
        "bind": r"\0-x",
        "complete": r"\0-[CF]",
        "coproc": r"\0[{(]",
        "find gfind bfs fd fdfind": rf"\0{UNKNOWN}[\"$`]",
        "strace": r"\0-o\0?[|!]",
        "parallel at batch": "",
    }
)
"""Regular expressions for arguments that make a command run something that cannot be read. Each argument is preceded by NUL,
the text on standard input by \\x01."""
_FOREIGN = _by_name(
    {
        "awk gawk mawk nawk": rf"system|getline|[^|]\|[^|]|@load|\0-\w*[eil]\b|--source|{UNKNOWN}",
        "sed gsed": r"[\0;{}\n\d$/!,]\s*[eE](?:[\s\0\x01;]|$)|[\0;{}\n\d$!]\s*[wW]\s"
        r"|s([^\0])(?:\\[^\0]|(?!\1)[^\n\0\\])*\1(?:\\[^\0]|(?!\1)[^\n\0\\])*\1[gpimIM0-9]*[ew]",
        "crontab": r"\x01",
        "tar": r"\0(?:--to-c|--checkpoint-action|-I|--use-compress|-F|--info-s|--new-volume|--rsh)",
        "rsync": r"\0(?:-e|--rsh|--rsync-path)",
        "zip": r"\0(?:-T|--unzip-command)",
        "sort": r"\0--compress-program",
        "split": r"\0--filter",
        "wget": r"\0(?:--use-askpass|-e|--execute)",
        "cmake": r"\0-E",
        "go": r"\0--?(?:toolexec|exec|vettool)",
        "gcc g++ cc c++ clang clang++": r"\0(?:-wrapper|-fplugin|-B)",
        "docker podman kubectl nerdctl": rf"\0(?:run|exec|create|debug)(?:\0|$)|\0{UNKNOWN}",
        "sqlite psql mysql mariadb": rf"(?i)\\!|[\0\x01]\s*[.\\]?(?:shell|system)|program|edit\(|{UNKNOWN}",
        "ip": r"(?i)exec",
        "scp sftp": r"\0-[Sob]",
        "ssh": r"(?i)\0-[^\0]*\0?[^\0]*command",
        "man": r"\0(?:-P|-H|--pager|--html)",
        "make gmake": r"\0(?:--eval|SHELL=|-f-|--(?:make)?file=-|-(?:[\0\x01]|$)|/dev/(?:stdin|fd))|\0-f\x01",
        "vi vim nvim ex ed view emacs gdb expect tcpdump socat flatpak firejail bwrap proot systemd-nspawn": "",
        "dc m4 gnuplot octave tmux screen run-parts": "",
    }
)
"""Regular expressions for arguments that contain code in another language, which may run other programs."""
_MAKEFILES = re.compile(r"\0(?:-f|--file=?|--makefile=?)\0?([^\0\x01]+)")


def started_by(name: str, args: Sequence[Word], stdin: Stdin | None) -> StartedProgram:
    """`name` is without folder and in lower case. Every argument has one field."""
    name = _entry_name(name)
    text = "".join(f"\0{_text_or_unknown(word)}" for word in args) + (f"\1{stdin.text}" if stdin else "")
    started = StartedProgram(is_covered=name in _COVERING)
    _find_commands(started, name, args)
    if name in _SHELLS or name in _INTERPRETERS:
        _interpret(started, name, args, stdin)
    if name in {"eval", "trap", "alias"}:
        started.scripts += _scripts_of_builtin(name, args)
    if name in {"make", "gmake"}:
        started.files += _MAKEFILES.findall(text) or ["Makefile", "makefile", "GNUmakefile"]
    if name in _UNREADABLE and re.search(_UNREADABLE[name], text, re.DOTALL):
        started.readability = "unreadable"
        started.scripts += [
            re.sub(r"^-\w|^--[\w-]+=", "", _text_or_unknown(word)) for word in args if re.search(r"\s", word.value)
        ]
    elif started.readability == "readable" and name in _FOREIGN and re.search(_FOREIGN[name], text):
        started.readability = "foreign"
    return started


_INERT_PROGRAMS = """
: [ basename cat cd chmod chown cmp comm cp curl cut date df diff dirname du echo egrep export false fgrep file grep head hexdump
jq kill ln local ls md5sum mkdir mktemp mv nl od paste printf ps pwd read readlink realpath rev rg rmdir seq set sha1sum
sha256sum sleep sort stat tail tee test touch tr tree true type uniq unset wait wc which xxd
"""
_INERT = frozenset(_INERT_PROGRAMS.split())
_RUNS_BY_OPTION = {"rg": "--p", "sort": "--co", "curl": "-K"}


def runs_nothing(name: str, args: Sequence[str]) -> bool:
    """Programs that are known to run none, so that their arguments are text and files. The list may be short: others are taken to
    run whatever they name."""
    if name == "command":
        return bool(args) and re.fullmatch(r"-[pvV]*[vV]", args[0]) is not None
    option = _RUNS_BY_OPTION.get(name)
    return name in _INERT and not (option and any(arg.startswith(option) for arg in args))


def may_hold_commands(name: str) -> bool:
    entry = _entry_name(name)
    return name in _FIND_RUNS or any(entry in table for table in (_WRAPPERS, _SHELLS, _INTERPRETERS, _RUNNERS))


def _entry_name(name: str) -> str:
    """`python3.11` is listed as python, `ld-linux-x86-64.so.2` as ld."""
    if re.match(r"ld[-.](linux|so|musl|64)", name):
        return "ld"
    return name if name in {"linux32", "linux64", "m4"} else name.rstrip("0123456789.") or name


def _text_or_unknown(word: Word) -> str:
    return word.value if word.is_known else UNKNOWN + word.text.strip("\"'")


def _scripts_of_builtin(name: str, args: Sequence[Word]) -> list[str]:
    shown = [_text_or_unknown(word) for word in args if word.value != "--"]
    if name == "eval":
        return [" ".join(shown)]
    return shown[:1] if name == "trap" else [text.partition("=")[2] for text in shown]


def _find_commands(started: StartedProgram, name: str, args: Sequence[Word]) -> None:
    if name in _FIND_RUNS:
        starts = (at + 1 for at, word in enumerate(args) if word.value in _FIND_RUNS[name])
        for command in filter(None, (_until(args[at:], {";", "+"}) for at in starts)):
            _add_fed_command(started, command)
    if name in _RUNNERS:
        inner = [rest[1:] for rest in _inner_commands(args) if rest[0].value in _RUNNERS[name].split()]
        started.commands += [command for rest in inner for command in _inner_commands(rest)]
    if name in _WRAPPERS and not (name == "command" and args and re.match(r"-[pvV]*[vV]", args[0].value)):
        _find_wrapped(started, name, args)


def _find_wrapped(started: StartedProgram, name: str, args: Sequence[Word]) -> None:
    found = list(_inner_commands(args, _WRAPPERS[name], int(name in _OPERANDS)))
    own = args[: len(args) - max(map(len, found), default=0)]
    if any(changes_programs(word.value) or not word.is_known for word in own):
        started.readability = "unreadable"
    for command in found:
        if name in _JOIN_THEIR_WORDS or re.search(r"[\s;&|<>()$`]", command[0].value):
            started.scripts.append(" ".join(map(_text_or_unknown, _until(command, {":::"}))))
        elif name == "xargs":
            _add_fed_command(started, command)
        else:
            started.commands.append(command)
    options = "".join(f"\0{word.value}" for word in own)
    placeholders = re.findall(r"\0-[a-zA-Z0]*?[IiJ]\0?([^\0]*)|\0--rep[^\0]*", options) if name == "xargs" else []
    if placeholders not in ([], ["{}"], [""]):
        started.readability = "unreadable"


def _add_fed_command(started: StartedProgram, command: Sequence[Word]) -> None:
    """Files or standard input add words to the command: these decide what runs if the command runs its arguments."""
    started.commands.append(command)
    if may_hold_commands(command[0].value.rpartition("/")[2].lower()) or "{" in command[0].value:
        started.readability = "unreadable"


def _until(args: Sequence[Word], ends: set[str]) -> Sequence[Word]:
    return args[: next((at for at, word in enumerate(args) if word.value in ends), len(args))]


def _inner_commands(args: Sequence[Word], valued: str = _ANY, operands: int = 0) -> Iterator[Sequence[Word]]:
    """The earliest first. Where an option may take the next word as its value or not, both are followed."""
    seen: set[tuple[int, int]] = set()
    starts: set[int] = set()
    waiting = [(0, operands)]
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
        elif _ASSIGNMENT.fullmatch(text) or text in {"{", "(", "!", "-"}:
            waiting.append((at + 1, left))
        elif left:
            waiting.append((at + 1, left - 1))
        else:
            starts.add(at)
    return (args[at:] for at in sorted(starts) if at < len(args))


def _after_option(at: int, option: str, valued: str) -> list[int]:
    if "=" in option or option in _FLAGS:
        return [at + 1]
    if option.startswith("--") or valued == _ANY:
        return [at + 1, at + 2]
    letter = next((position for position, letter in enumerate(option) if position and letter in valued), None)
    return [at + 2] if letter == len(option) - 1 else [at + 1]


def _interpret(started: StartedProgram, name: str, args: Sequence[Word], stdin: Stdin | None) -> None:
    is_shell, code_letters = name in _SHELLS, _INTERPRETERS.get(name, "c")
    options, operands = _options_and_operands(args)
    letters = "".join(option for option in options if not option.startswith("--"))
    if any(letter in letters for letter in code_letters) or any(map(_TAKES_CODE.match, options)):
        started.scripts += map(_text_or_unknown, operands) if is_shell else []
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
