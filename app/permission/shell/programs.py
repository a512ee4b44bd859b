"""Programs that run more than themselves: tables from a name to what of the arguments is a command, a script or code.

Options are not interpreted further than it takes to find these: where two readings are possible, both are reported.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from app.permission.rules import Sight
from app.permission.shell.words import UNKNOWN, Word, value

_ASSIGNMENT = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_CHANGES_PROGRAMS = re.compile(
    r"PATH|LD_\w+|DYLD_\w+|BASH_\w+|ENV|SHELLOPTS|BASHOPTS|PS[0-4]|PROMPT_COMMAND|IFS|CDPATH|GLOBIGNORE|(\w+_)?PAGER|VISUAL|BROWSER|"
    r"(\w+_)?EDITOR|GIT_(SSH|EXTERNAL|PROXY|ASKPASS|CONFIG|EXEC|TEMPLATE|DIR)\w*|(SSH|SUDO)_ASKPASS|NODE_OPTIONS|PERL5\w+|RUBYOPT|"
    r"RUBYLIB|PYTHONSTARTUP|PYTHONHOME|JAVA_TOOL_OPTIONS|MAKEFLAGS|GCONV_PATH|\w+_WRAPPER|LESSOPEN|LESSCLOSE|TAR_OPTIONS"
)
_HARMLESS_PROGRAMS = {"", "cat", "true", ":", "less", "more"}
_STANDARD_INPUT = re.compile(r"-|/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")


def changes_programs(assignment: str) -> bool:
    """The assignment makes another program run than the one that is named (`PATH=.:$PATH`, `GIT_SSH_COMMAND=…`)."""
    found = _ASSIGNMENT.fullmatch(assignment)
    return bool(found and _CHANGES_PROGRAMS.fullmatch(found[1]) and found[2] not in _HARMLESS_PROGRAMS)


@dataclass(slots=True)
class StartedProgram:
    """What a command runs besides itself.

    `scripts` are shell text; UNKNOWN in one stands for what only its run will show. `files` hold code. `in_place`: scripts run
    in the same shell. `placeholder`: what is replaced in `commands` by a word that only the run shows. `adds_input`: so are words
    added from standard input. `is_covered`: a rule that allows the command covers what it starts; a rule that denies still holds.
    """

    commands: list[Sequence[Word]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    sight: Sight = "clear"
    in_place: bool = False
    is_covered: bool = False
    placeholder: str = ""
    adds_input: bool = False


class Wrapper(NamedTuple):
    """Letters of options that take a value, or that may; how many words of its own precede the command."""

    valued: str = ""
    operands: int = 0
    maybe_valued: str = ""


class Interpreter(NamedTuple):
    """Letters of options: `inline` take code, `module` a module's name, `valued` another value."""

    inline: str = ""
    module: str = ""
    valued: str = ""


_Entry = TypeVar("_Entry")


def _by_name(table: Mapping[str, _Entry]) -> dict[str, _Entry]:
    return {name: entry for names, entry in table.items() for name in names.split()}


_WRAPPERS = _by_name(
    {
        "nohup setsid builtin busybox toybox valgrind unbuffer linux32 linux64 torsocks dbus-run-session entr": Wrapper(),
        "noglob nocorrect catchsegv chronic ts ! { command coproc": Wrapper(),
        "chroot gosu su-exec setarch": Wrapper(operands=1),
        "env": Wrapper("uC"),
        "nice": Wrapper("n"),
        "time": Wrapper("fo"),
        "timeout": Wrapper("ks", 1),
        "stdbuf": Wrapper("ioe"),
        "ionice": Wrapper("cnpPu"),
        "sudo": Wrapper("ugpCDhrtTUR"),
        "doas": Wrapper("uC"),
        "exec": Wrapper("a"),
        "xargs": Wrapper("aEIdLnPs"),
        "chrt": Wrapper("TPD", 1),
        "taskset": Wrapper("", 1),
        "strace": Wrapper("eopsPaEuIOSXb"),
        "ltrace": Wrapper("eopsaunAlDF"),
        "flock": Wrapper("wE", 1),
        "runuser": Wrapper("ugGsw"),
        "rlwrap": Wrapper("abCDfgHlmMNOpPqsStz"),
        "caffeinate": Wrapper("tw"),
        "fakeroot": Wrapper("lsbiu"),
        "unshare": Wrapper("RwSG"),
        "nsenter": Wrapper("tSGrw"),
        "systemd-run": Wrapper("pEHMuGt"),
        "prlimit": Wrapper("po"),
        "setpriv pkexec": Wrapper(),
        "numactl": Wrapper("NmCpi"),
        "cpulimit": Wrapper("lpe"),
        "faketime": Wrapper("p", 1),
        "proxychains": Wrapper("f"),
        "xvfb-run": Wrapper("efnpsw"),
        "parallel": Wrapper("jNnLaPSI"),
        "watch": Wrapper("nqs"),
        "ssh": Wrapper("BbcDEeFIiJLlmOopQRSWw", 1),
        "npx bunx uvx pipx pnpx": Wrapper(maybe_valued="pc"),
        "ld": Wrapper(),
    }
)
_JOINED = {"parallel", "watch", "ssh"}
"""They join their words to a script."""
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
"""A project's runners, by the subcommand that a command follows."""
_RUNNER = Wrapper(maybe_valued="Cnpc")
_COVERING = {*_RUNNERS, "npx", "bunx", "uvx", "pipx", "pnpx", "ssh"}

_SHELLS = _by_name({"bash sh dash zsh ksh mksh ash rbash yash fish csh tcsh source .": Interpreter("c", valued="oO")})
_INTERPRETERS = _by_name(
    {
        "python pypy ipython": Interpreter("c", "m", "WX"),
        "perl ruby lua luajit julia rscript osascript groovy scala guile": Interpreter("eE"),
        "node nodejs deno tsx ts-node": Interpreter("ep", valued="r"),
        "php": Interpreter("rRBE", valued="d"),
        "pwsh powershell": Interpreter("cCeE"),
        "tclsh wish irb ghci bc": Interpreter(),
    }
)
_MODULES_THAT_RUN_CODE = {"timeit", "code", "pdb", "runpy"}

_SCRIPTS = _by_name(
    {
        "su runuser capsh script": r"\0(?:-[a-zA-Z]*c|--(?:session-)?command=?)\0?([^\0\x01]+)",
        "npm pnpm yarn bun npx bunx": r"\0(?:-c|--call=?)\0?([^\0\x01]+)",
        "nix-shell": r"\0--(?:run|command)\0([^\0\x01]+)",
        "mapfile readarray": r"\0(?:-C|--callback=?)\0?([^\0\x01]+)",
        "env": r"\0(?:-[a-zA-Z0]*S|--s[a-z-]*=?)\0?([^\x01]+)",
        "eval": r"^(?:\0--)?\0([^\x01]+)",
        "trap": r"^(?:\0--)?\0([^-\0\x01][^\0\x01]*)\0",
        "alias": r"\0[^\0=]+=([^\0\x01]+)",
        "at batch": r"\x01(.*)",
        "git-rebase": r"\0(?:-x|--exec=?)\0?([^\0\x01]+)",
        "git-difftool": r"\0(?:-x|--extcmd=?)\0?([^\0\x01]+)",
        "git-bisect": r"\0bisect\0run\0([^\x01]+)",
        "git-submodule": r"\0foreach\0(?:-[^\0]*\0)*([^\x01]+)",
        "git-config": r"\0(?i:alias\.[^\0]*|[^\0]*(?:command|program|pager|editor|textconv|external|cmd|helper|driver|"
        r"hookspath|fsmonitor|filter\.|clean|smudge|process))\0!?([^\0\x01]+)",
    }
)
"""Patterns of arguments that are scripts. Each argument follows a NUL, what stands on standard input the byte 1."""

_HARMLESS_GIT_SETTING = (
    r"(?:user|color|advice|column|init|push|pull|merge|rebase|http|fetch|log|status|branch|commit|safe)\.[\w.-]+=(?!!)"
    r"|core\.(?:quotepath|autocrlf|ignorecase|filemode|longpaths|eol|abbrev)=|diff\.(?:renames|algorithm|noprefix|mnemonicprefix)="
)
_UNSEEN = _by_name(
    {
        "git": r"^(?:\0-[Cc]\0[^\0]*|\0--(?:git-dir|work-tree|namespace|super-prefix)\0[^\0]*|\0-(?![Cc]\0)[^\0]*)*?"
        rf"\0-c(?:\0(?!{_HARMLESS_GIT_SETTING})|(?!\0|{_HARMLESS_GIT_SETTING}))"
        r"|\0--(?:exec-path=|config-env|upload-pack|receive-pack|exec=|template=)|\0ext::|\0filter-branch\b"
        r"|\0grep\0(?:.*\0)?(?:-\w*O.|--open)|\0clone\0(?:.*\0)?-\w*u",
        "hash": r"\0-p",
        "enable": r"\0-f",
        "bind": r"\0-x",
        "complete": r"\0-[CF]",
        "coproc": r"\0[{(]",
        "find gfind bfs": rf"\0{UNKNOWN}[\"$`]",
        "strace": r"\0-o\0?[|!]",
        "parallel": r"^(?:\0-[^\0]*)*(?:\x01|$)",
    }
)
"""Patterns of arguments that make a command run what cannot be shown."""

_FOREIGN = _by_name(
    {
        "awk gawk mawk nawk": rf"system|getline|[^|]\|[^|]|@load|\0-\w*[eil]\b|--source|{UNKNOWN}",
        "sed gsed": r"[\0;{}\n\d$/!,]\s*[eE](?:[\s\0\x01;]|$)|[\0;{}\n\d$!]\s*[wW]\s"
        r"|s([^\0])(?:\\[^\0]|(?!\1)[^\n\0\\])*\1(?:\\[^\0]|(?!\1)[^\n\0\\])*\1[gpimIM0-9]*[ew]",
        "vi vim nvim ex ed view": r"\0(?:-c|\+|--cmd|-es|-S|--headless)|\x01",
        "crontab": r"\x01",
        "expect": r"\0-c|\x01",
        "tar": r"\0(?:--to-c|--checkpoint-action|-I|--use-compress|-F|--info-s|--new-volume|--rsh)",
        "rsync": r"\0(?:-e|--rsh|--rsync-path)",
        "zip": r"\0(?:-T|--unzip-command)",
        "sort": r"\0--compress-program",
        "split": r"\0--filter",
        "wget": r"\0(?:--use-askpass|-e|--execute)",
        "cmake": r"\0-E",
        "go": r"\0--?(?:toolexec|exec|vettool)",
        "tcpdump": r"\0-z",
        "gcc g++ cc c++ clang clang++": r"\0(?:-wrapper|-fplugin|-B)",
        "firejail bwrap proot socat flatpak systemd-nspawn": r"(?i)exec|system|\0[^-]",
        "docker podman kubectl nerdctl": rf"\0(?:run|exec|create|debug)(?:\0|$)|\0{UNKNOWN}",
        "sqlite psql mysql mariadb": rf"(?i)\\!|[\0\x01]\s*[.\\]?(?:shell|system)|program|edit\(|{UNKNOWN}",
        "dc m4 gnuplot octave ip": rf"(?i)!|syscmd|system|exec|{UNKNOWN}",
        "scp sftp": r"\0-[Sob]",
        "ssh": r"(?i)\0-[^\0]*\0?[^\0]*command",
        "man": r"\0(?:-P|-H|--pager|--html)",
        "gdb": r"\0(?:-ex|-x|--eval|--command|--args|-iex)",
        "emacs": r"\0(?:--?eval|--batch|--load|-l)",
        "make gmake": r"\0(?:--eval|SHELL=|-f-|--(?:make)?file=-|-(?:[\0\x01]|$)|/dev/(?:stdin|fd))|\0-f\x01",
        "tmux screen run-parts": "",
    }
)
"""Patterns of arguments that hold a program in a language of its own, which may run others."""
_MAKEFILES = re.compile(r"\0(?:-f|--file=?|--makefile=?)\0?([^\0\x01]+)")


def started_by(name: str, args: Sequence[Word], stdin: Word) -> StartedProgram:
    """`name`: without folder and in lower case. Every argument has one field. `stdin` has no field where nothing feeds it."""
    name = _entry_name(name)
    text = "".join(f"\0{_shown(word)}" for word in args) + (f"\1{_shown(stdin)}" if stdin.fields else "")
    started = StartedProgram(in_place=name == "eval", is_covered=name in _COVERING)
    _find_commands(started, name, args)
    _find_scripts(started, name, args, text)
    if spec := _SHELLS.get(name) or _INTERPRETERS.get(name):
        _interpret(started, spec, args, stdin, is_shell=name in _SHELLS)
    if name in {"make", "gmake"}:
        started.files += _MAKEFILES.findall(text) or ["Makefile", "makefile", "GNUmakefile"]
    if name in _UNSEEN and re.search(_UNSEEN[name], text, re.DOTALL):
        started.sight = "unseen"
    elif started.sight == "clear" and name in _FOREIGN and re.search(_FOREIGN[name], text):
        started.sight = "foreign"
    return started


def may_hold_commands(name: str) -> bool:
    return runs_its_arguments(name) or name in _RUNNERS or name in _FIND_RUNS


def runs_its_arguments(name: str) -> bool:
    """Arguments added to its own (`xargs env`, `xargs python`) are a command or a script."""
    name = _entry_name(name)
    return name in _WRAPPERS or name in _SHELLS or name in _INTERPRETERS


def _entry_name(name: str) -> str:
    """`python3.11` is listed as python, `ld-linux-x86-64.so.2` as ld."""
    if re.match(r"ld[-.](linux|so|musl|64)", name):
        return "ld"
    return name if name in {"linux32", "linux64", "m4"} else name.rstrip("0123456789.") or name


def _shown(word: Word) -> str:
    return value(word) if word.is_known else UNKNOWN + word.text.strip("\"'")


def _find_commands(started: StartedProgram, name: str, args: Sequence[Word]) -> None:
    if name in _FIND_RUNS:
        started.placeholder = "{}"
        starts = (at + 1 for at, word in enumerate(args) if value(word) in _FIND_RUNS[name])
        started.commands += [command for at in starts if (command := _until(args[at:], {";", "+"}))]
    if name in _RUNNERS:
        leads = _inner_commands(args, _RUNNER)
        inner = [rest[1:] for rest in leads if value(rest[0]) in _RUNNERS[name].split()]
        started.commands += [command for rest in inner for command in _inner_commands(rest, _RUNNER)]
    if name in _WRAPPERS and not (name == "command" and re.match(r"-[pvV]*[vV]", value(args[0]) if args else "")):
        _find_wrapped(started, name, args)


def _find_wrapped(started: StartedProgram, name: str, args: Sequence[Word]) -> None:
    found = list(_inner_commands(args, _WRAPPERS[name]))
    own = args[: len(args) - max(map(len, found), default=0)]
    if any(changes_programs(value(word)) or not word.is_known for word in own):
        started.sight = "unseen"
    for command in found:
        words = _until(command, {":::", "::::", ":::+", "::::+"}) if name == "parallel" else command
        if words and (name in _JOINED or re.search(r"[\s;&|<>()$`]", value(words[0]))):
            started.scripts.append(" ".join(map(_shown, words)))
        elif words:
            started.commands.append(words)
    if name == "xargs":
        started.adds_input = True
        started.placeholder = _xargs_placeholder(own)


def _xargs_placeholder(own: Sequence[Word]) -> str:
    text = "".join(f"\0{value(word)}" for word in own)
    found = re.search(r"\0-[a-zA-Z0]*?I\0?([^\0]+)|\0-i([^\0]*)|\0--replace(?:=([^\0]*))?", text)
    return next(filter(None, found.groups()), "{}") if found else ""


def _until(args: Sequence[Word], ends: set[str]) -> Sequence[Word]:
    return args[: next((at for at, word in enumerate(args) if value(word) in ends), len(args))]


def _inner_commands(args: Sequence[Word], wrapper: Wrapper) -> Iterator[Sequence[Word]]:
    """The earliest first. Where an option may take the next word as its value or not, both are followed."""
    seen: set[tuple[int, int]] = set()
    starts: set[int] = set()
    waiting = [(0, wrapper.operands)]
    while waiting:
        at, operands = waiting.pop()
        if at >= len(args) or (at, operands) in seen:
            continue
        seen.add((at, operands))
        text = value(args[at])
        if text == "--":
            starts.add(at + 1 + operands)
        elif text.startswith("-") and len(text) > 1:
            waiting += [(after, operands) for after in _after_option(at, text, wrapper)]
        elif _ASSIGNMENT.fullmatch(text) or text in {"{", "(", "!", "-"}:
            waiting.append((at + 1, operands))
        elif operands:
            waiting.append((at + 1, operands - 1))
        else:
            starts.add(at)
    return (args[at:] for at in sorted(starts) if at < len(args))


def _after_option(at: int, option: str, wrapper: Wrapper) -> list[int]:
    if option.startswith("--"):
        return [at + 1] if "=" in option or option in _FLAGS else [at + 1, at + 2]
    letter = next((position for position, letter in enumerate(option) if position and letter in wrapper.valued), None)
    if letter == len(option) - 1:
        return [at + 2]
    return [at + 1, at + 2] if option[-1] in wrapper.maybe_valued else [at + 1]


def _find_scripts(started: StartedProgram, name: str, args: Sequence[Word], text: str) -> None:
    for key in dict.fromkeys([name, *(f"{name}-{value(word)}" for word in args if name == "git")]):
        if key in _SCRIPTS:
            started.scripts += [found[1].replace("\0", " ") for found in re.finditer(_SCRIPTS[key], text, re.DOTALL)]


def _interpret(started: StartedProgram, spec: Interpreter, args: Sequence[Word], stdin: Word, is_shell: bool) -> None:
    options, rest = _options(args, spec.valued)
    letters = "".join(option for option in options if not option.startswith("--"))
    if any(letter in letters for letter in spec.inline) or any(map(_TAKES_CODE.match, options)):
        started.scripts += [_shown(word) for word in rest[:1]] if is_shell else []
        started.sight = "clear" if is_shell else "foreign"
    elif any(letter in letters for letter in spec.module):
        started.sight = "foreign" if _MODULES_THAT_RUN_CODE & set(map(value, args)) else "clear"
    elif rest and not (is_shell and "s" in letters):
        _run_file(started, rest[0], stdin, is_shell)
    elif stdin.fields:
        _run_input(started, stdin, is_shell)


_TAKES_CODE = re.compile(r"--(eval|print|run|execute|command|require|import|init-command)\b")


def _options(args: Sequence[Word], valued: str) -> tuple[list[str], Sequence[Word]]:
    at, options = 0, []
    while at < len(args) and value(args[at])[:1] in {"-", "+"} and len(value(args[at])) > 1:
        option = value(args[at])
        options.append(option)
        takes_next = (not option.startswith("--") and option[-1] in valued) or option in {"--rcfile", "--init-file"}
        at += 2 if takes_next else 1
        if option == "--":
            break
    return options, args[at:]


def _run_file(started: StartedProgram, file: Word, stdin: Word, is_shell: bool) -> None:
    name = value(file)
    if file.is_known and not _STANDARD_INPUT.fullmatch(name) and (is_shell or name != "eval"):
        started.files.append(name)
    elif is_shell and stdin.fields and "stdin" in name:
        _run_input(started, stdin, is_shell)
    else:
        started.sight = "unseen" if is_shell else "foreign"


def _run_input(started: StartedProgram, stdin: Word, is_shell: bool) -> None:
    if is_shell:
        started.scripts.append(_shown(stdin))
    else:
        started.sight = "foreign"
