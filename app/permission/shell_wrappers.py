"""Which further commands a command runs: `env X=1 rm y`, `bash -c '…'`, `find -exec`, and what can't be known of them."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from posixpath import basename

from app.permission.shell_words import UNKNOWN, Word, literal_word, unquoted

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


def _env(args: Sequence[Word], stdin: Word) -> list[Step]:
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


def _script_of(words: Sequence[Word], in_place: bool = False) -> RunsScript:
    """The words joined with blanks and read as a script, as `eval`, `ssh` and `watch` do."""
    if len(words) == 1:
        return RunsScript(words[0], in_place)
    text = " ".join(value(word) for word in words)
    shown = " ".join(word.text for word in words)
    return RunsScript(literal_word(text) if all(word.is_known for word in words) else Word(shown, (UNKNOWN,)), in_place)


_READS_INPUT = re.compile(r"-|/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")


def _shell(args: Sequence[Word], stdin: Word) -> list[Step]:
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
    if not _READS_INPUT.fullmatch(value(file)):
        return [RunsFile(file)]
    return [RunsScript(stdin)] if stdin.fields and "stdin" in value(file) else [Unseen()]


def _source(args: Sequence[Word], stdin: Word) -> list[Step]:
    return _script_file(args[0], stdin) if args else []


def _eval(args: Sequence[Word], _stdin: Word) -> list[Step]:
    words = args[1:] if args and value(args[0]) == "--" else args
    return [_script_of(words, in_place=True)] if words else []


def _trap(args: Sequence[Word], _stdin: Word) -> list[Step]:
    words = [word for word in args if not re.fullmatch(r"--|-[lpP]", value(word))]
    return [RunsScript(words[0])] if len(words) > 1 and value(words[0]) not in {"", "-"} else []


def _alias(args: Sequence[Word], _stdin: Word) -> list[Step]:
    steps: list[Step] = []
    for word in args:
        _, equals, command = value(word).partition("=")
        if equals:
            steps.append(RunsScript(literal_word(command)) if word.is_known else Unseen())
    return steps


def _command_builtin(args: Sequence[Word], stdin: Word) -> list[Step]:
    """`command -v git` only says where git is."""
    own, _ = split_options(args, Prefix())
    return [] if any(re.fullmatch(r"-[pvV]*[vV][pvV]*", value(word)) for word in own) else Prefix()(args, stdin)


def _keyword(args: Sequence[Word], stdin: Word) -> list[Step]:
    """`time`, `coproc` and `!` before a group: the grammar takes the group's first command for arguments."""
    start = next((at for at, word in enumerate(args) if value(word) not in {"{", "(", "!", "time", "coproc"}), len(args))
    return Prefix(short="fo", long="format output", assignments=True)(args[start:], stdin)


def _coproc(args: Sequence[Word], stdin: Word) -> list[Step]:
    """`coproc NAME { rm x; }`; without the brace the first word is the command."""
    has_name = len(args) > 1 and value(args[1]) in {"{", "("}
    return [*_keyword(args, stdin), *(_keyword(args[1:], stdin) if has_name else [])]


_FIND_RUNS = {"-exec", "-execdir", "-ok", "-okdir"}


def _find(args: Sequence[Word], _stdin: Word) -> list[Step]:
    steps: list[Step] = []
    for at, word in enumerate(args):
        if value(word) in _FIND_RUNS:
            command = _until(args[at + 1 :], {";", "+"})
            steps.append(Runs(_with_unknown(command, "{}")))
        elif not word.is_known and word.text.startswith(("$", "`", '"$')):
            steps.append(Unseen())
    return [step for step in steps if not isinstance(step, Runs) or step.words]


def _with_unknown(command: Sequence[Word], mark: str) -> Sequence[Word]:
    """The words of a command in which `mark` is replaced only when it runs, if that decides what is run."""
    if not any(mark in value(word) for word in command):
        return command
    if mark not in value(command[0]) and not runs_its_arguments(basename(value(command[0])), ()):
        return command
    return [Word(word.text, (UNKNOWN,)) if mark in value(word) else word for word in command]


def _until(args: Sequence[Word], ends: set[str]) -> Sequence[Word]:
    end = next((at for at, word in enumerate(args) if value(word) in ends), len(args))
    return args[:end]


def _fd(args: Sequence[Word], _stdin: Word) -> list[Step]:
    for at, word in enumerate(args):
        if re.fullmatch(r"-[a-zA-Z]*[xX]|--exec|--exec-batch", value(word)):
            return [Runs(_until(args[at + 1 :], {";"}))] if args[at + 1 :] else []
    return []


def _parallel(args: Sequence[Word], _stdin: Word) -> list[Step]:
    _, rest = split_options(args, Prefix(short="jNnLaPSI", long="jobs max-args colsep delay timeout joblog arg-file sshlogin"))
    command = _until(rest, {":::", "::::", ":::+", "::::+"})
    return [_script_of(command)] if command else [Unseen()]


def _watch(args: Sequence[Word], _stdin: Word) -> list[Step]:
    _, rest = split_options(args, Prefix(short="nqs", long="interval equexit shotsdir"))
    return [_script_of(rest)] if rest else []


def _option_script(letter: str, names: str, otherwise: Reader | None = None) -> Reader:
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


def _runner(*leads: str, valued: str = "", call: str = "") -> Reader:
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


def _ssh(args: Sequence[Word], _stdin: Word) -> list[Step]:
    own, rest = split_options(args, Prefix(short="BbcDEeFIiJLlmOopQRSWw"))
    if any(re.search("command", value(word), re.IGNORECASE) for word in own):
        return [Foreign()]
    return [Starts(_script_of(rest[1:]))] if len(rest) > 1 else []


_CODE_MODULES = {"timeit", "code", "pdb", "runpy"}
"""Of Python's: they run code that stands in their arguments or input."""


def _interpreter(inline: str, modules: str = "") -> Reader:
    """Python, perl and the like: a program in an option or on standard input. `modules`: letters of options that name a file."""

    def read(args: Sequence[Word], stdin: Word) -> list[Step]:
        for word in args:
            text = value(word)
            if text.startswith("--"):
                if re.match(r"--(eval|print|run|execute|command|require|import)\b", text):
                    return [Foreign()]
            elif not text.startswith("-") or text == "-":
                return [Foreign()] if _READS_INPUT.fullmatch(text) or UNKNOWN in text or text == "eval" else [RunsFile(word)]
            elif any(letter in text for letter in modules):
                return [Foreign()] if _CODE_MODULES & set(map(value, args)) else []
            elif any(letter in text for letter in inline):
                return [Foreign()]
        return [Foreign()] if stdin.fields else []

    return read


_AWK_RUNS = re.compile(r"system|getline|[^|]\|[^|]|@load|-\w*[eil]\b|--source")


def _awk(args: Sequence[Word], _stdin: Word) -> list[Step]:
    return [Foreign()] if any(not word.is_known or _AWK_RUNS.search(value(word)) for word in args) else []


_SED_RUNS = re.compile(r"(^|[;{}\n\d$/!,])\s*[eE](\s|$|;)|s(.)[^\n]*\3[^\n]*\3[gpimI0-9]*[ew]|(^|[;{}\n\d$!])\s*[wW]\s")


def _sed(args: Sequence[Word], _stdin: Word) -> list[Step]:
    return [Foreign()] if any(_SED_RUNS.search(value(word)) for word in args) else []


def _with_options(*options: str) -> Reader:
    """These options (by their beginning) name another program to run."""

    def read(args: Sequence[Word], _stdin: Word) -> list[Step]:
        return [Foreign()] if any(value(word).startswith(options) for word in args) else []

    return read


def _with_text(pattern: str) -> Reader:
    """A program whose own language, in arguments or input, can start others."""
    starts_others = re.compile(pattern, re.IGNORECASE)

    def read(args: Sequence[Word], stdin: Word) -> list[Step]:
        return [Foreign()] if any(not word.is_known or starts_others.search(value(word)) for word in (*args, stdin)) else []

    return read


def _with_input(*options: str) -> Reader:
    """An editor or a scheduler that takes commands from its input or these options."""

    def read(args: Sequence[Word], stdin: Word) -> list[Step]:
        return [Foreign()] if stdin.fields or any(value(word).startswith(options) for word in args if options) else []

    return read


def _scheduler(_args: Sequence[Word], stdin: Word) -> list[Step]:
    return [RunsScript(stdin)] if stdin.fields else []


def _builtin_hook(*options: str) -> Reader:
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


def _git(args: Sequence[Word], stdin: Word) -> list[Step]:
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
            return [_script_of([word for word in words[rest.index("foreach") + 2 :] if not value(word).startswith("-")])]
        case ["rebase", *_]:
            return _option_script("x", "exec")(words[1:], stdin)
        case ["difftool", *_]:
            return _option_script("x", "extcmd")(words[1:], stdin)
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


def _xargs(args: Sequence[Word], stdin: Word) -> list[Step]:
    own, command = split_options(args, _XARGS)
    steps = _XARGS(args, stdin)
    mark = _replaced_by_xargs([value(word) for word in own])
    if mark is None or not command:
        return steps
    return [*(step for step in steps if not isinstance(step, Runs)), Runs(_with_unknown(command, mark), more_arguments=True)]


def _replaced_by_xargs(options: list[str]) -> str | None:
    for option, following in pairwise([*options, ""]):
        found = re.match(r"-[a-zA-Z0]*?I(.*)|-i(.*)|--replace(?:=(.*))?", option, re.DOTALL)
        if found:
            named = next((one for one in found.groups() if one), "")
            return named or (following if found[1] is not None else "{}")
    return None


_XARGS = Prefix(
    short="aEIdLnPs",
    long="arg-file delimiter max-lines max-args max-procs max-chars process-slot-var",
    more_arguments=True,
)


def _make(args: Sequence[Word], stdin: Word) -> list[Step]:
    texts = [value(word) for word in args]
    if any(text.startswith(("--eval", "SHELL=", "-f-", "--file=-", "--makefile=-")) for text in texts) or "-" in texts:
        return [Foreign()]
    if stdin.fields and texts[-1:] == ["-f"]:  # the grammar loses the `-` of `make -f - <<EOF`
        return [Foreign()]
    named = [RunsFile(after) for option, after in pairwise(args) if value(option) in {"-f", "--file", "--makefile"}]
    named = named or [RunsFile(literal_word(name)) for name in ("Makefile", "makefile", "GNUmakefile")]
    return [Foreign()] if stdin.fields and any(_READS_INPUT.fullmatch(value(one.file)) for one in named) else [*named]


_WRAPPERS: dict[str, Prefix] = {
    "nice": Prefix(short="n", long="adjustment"),
    "nohup": Prefix(),
    "timeout": Prefix(short="ks", long="kill-after signal", operands=1),
    "stdbuf": Prefix(short="ioe", long="input output error"),
    "setsid": Prefix(),
    "ionice": Prefix(short="cnpPu", long="class classdata"),
    "sudo": Prefix(short="ugpCDhrtTUR", long="user group prompt chdir host chroot role type close-from", assignments=True),
    "doas": Prefix(short="uC"),
    "builtin": Prefix(),
    "exec": Prefix(short="a"),
    "busybox": Prefix(),
    "toybox": Prefix(),
    "chroot": Prefix(long="userspec groups", operands=1),
    "chrt": Prefix(short="TPD", operands=1),
    "taskset": Prefix(operands=1),
    "strace": Prefix(short="eopsPaEuIOSXb", long="trace output attach"),
    "ltrace": Prefix(short="eopsaunAlDF"),
    "valgrind": Prefix(),
    "gosu": Prefix(operands=1),
    "su-exec": Prefix(operands=1),
    "unbuffer": Prefix(),
    "rlwrap": Prefix(short="abCDfgHlmMNOpPqsStz"),
    "caffeinate": Prefix(short="tw"),
    "fakeroot": Prefix(short="lsbiu"),
    "setarch": Prefix(operands=1),
    "linux32": Prefix(),
    "linux64": Prefix(),
    "unshare": Prefix(short="RwSG", long="root wd setuid setgid"),
    "nsenter": Prefix(short="tSGrw", long="target"),
    "systemd-run": Prefix(short="pEHMuGt", long="unit property setenv uid gid slice working-directory"),
    "prlimit": Prefix(short="po"),
    "setpriv": Prefix(long="reuid regid groups"),
    "numactl": Prefix(short="NmCpi"),
    "cpulimit": Prefix(short="lpe"),
    "faketime": Prefix(short="p", operands=1),
    "pkexec": Prefix(long="user"),
    "torsocks": Prefix(),
    "proxychains": Prefix(short="f"),
    "proxychains4": Prefix(short="f"),
    "dbus-run-session": Prefix(),
    "xvfb-run": Prefix(short="efnpsw", long="error-file auth-file server-num listen-tcp xauth-protocol server-args wait"),
    "entr": Prefix(),
    "noglob": Prefix(),
    "nocorrect": Prefix(),
    "catchsegv": Prefix(),
    "chronic": Prefix(),
    "ts": Prefix(),
}

_READERS: dict[str, Reader] = {
    **_WRAPPERS,
    **dict.fromkeys(("bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "yash", "fish", "csh", "tcsh"), _shell),
    **dict.fromkeys(("time", "!", "{"), _keyword),
    **dict.fromkeys(("source", "."), _source),
    "su": _option_script("c", "command|session-command"),
    "runuser": _option_script("c", "command|session-command", Prefix(short="ugGsw", long="user group supp-group shell")),
    "capsh": _option_script("c", ""),
    **dict.fromkeys(("find", "gfind", "bfs"), _find),
    **dict.fromkeys(("fd", "fdfind"), _fd),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "ed", "view"), _with_input("-c", "+", "--cmd", "-es", "-S", "--headless")),
    **dict.fromkeys(("at", "batch"), _scheduler),
    **dict.fromkeys(("poetry", "pipenv", "pdm", "hatch", "rye", "conda", "rbenv", "pyenv"), _runner("run", "exec", valued="np")),
    **dict.fromkeys(("bundle", "mise", "asdf", "volta"), _runner("exec", "x", "run")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _runner("exec", "x", "dlx", valued="p", call="-c --call")),
    **dict.fromkeys(("npx", "bunx", "uvx", "pipx", "pnpx"), _runner("", valued="p", call="-c --call")),
    "coproc": _coproc,
    "env": _env,
    "xargs": _xargs,
    "eval": _eval,
    "trap": _trap,
    "alias": _alias,
    "command": _command_builtin,
    "parallel": _parallel,
    "watch": _watch,
    "ssh": _ssh,
    "uv": _runner("run", valued="p"),
    "nix-shell": _option_script("-run|-command", "run|command"),
    "script": _option_script("c", "command"),
    "flock": _option_script("c", "command", Prefix(short="wE", long="timeout wait conflict-exit-code", operands=1)),
    "crontab": _with_input(),
    "git": _git,
    "tar": _with_options("--to-c", "--checkpoint-action", "-I", "--use-compress", "-F", "--info-s", "--new-volume", "--rsh"),
    "rsync": _with_options("-e", "--rsh", "--rsync-path"),
    "zip": _with_options("-T", "--unzip-command"),
    "sort": _with_options("--compress-program"),
    "split": _with_options("--filter"),
    "wget": _with_options("--use-askpass", "-e", "--execute"),
    "cmake": _with_options("-E"),
    "go": _with_options("-toolexec", "-exec", "-vettool", "--toolexec", "--exec", "--vettool"),
    "tcpdump": _with_options("-z"),
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++"), _with_options("-wrapper", "-fplugin", "-B")),
    **dict.fromkeys(("firejail", "bwrap", "proot", "socat", "flatpak", "systemd-nspawn"), _with_text("exec|system|^[^-]")),
    **dict.fromkeys(("docker", "podman", "kubectl", "nerdctl"), _with_text(r"^(run|exec|create|debug)$")),
    **dict.fromkeys(("sqlite3", "psql", "mysql", "mariadb"), _with_text(r"\\!|^\s*[.\\]?(shell|system)|program|edit\(")),
    **dict.fromkeys(("dc", "m4", "gnuplot", "octave", "ip"), _with_text("!|syscmd|system|exec")),
    "scp": _with_options("-S", "-o"),
    "sftp": _with_options("-S", "-o", "-b"),
    "man": _with_options("-P", "-H", "--pager", "--html"),
    "gdb": _with_options("-ex", "-x", "--eval", "--command", "--args", "-iex"),
    "emacs": _with_options("--eval", "-eval", "--batch", "--load", "-l"),
    **dict.fromkeys(("make", "gmake"), _make),
    "tmux": _with_options(""),
    "screen": _with_options(""),
    "expect": _with_input("-c"),
    "hash": _builtin_hook("-p"),
    "enable": _builtin_hook("-f"),
    "bind": _builtin_hook("-x"),
    "complete": _builtin_hook("-C", "-F"),
    "mapfile": _option_script("C", "callback"),
    "readarray": _option_script("C", "callback"),
}

_INTERPRETERS: list[tuple[re.Pattern[str], Reader]] = [
    (re.compile(r"(python|pypy|ipython)[\d.]*"), _interpreter("c", modules="m")),
    (re.compile(r"(perl|ruby|lua|luajit|julia|rscript|osascript|groovy|scala|guile)[\d.]*"), _interpreter("eE")),
    (re.compile(r"(node|nodejs|deno|tsx|ts-node)[\d.]*"), _interpreter("ep")),
    (re.compile(r"php[\d.]*"), _interpreter("rRBE")),
    (re.compile(r"(pwsh|powershell)"), _interpreter("cCeE")),
    (re.compile(r"tclsh[\d.]*|wish[\d.]*|irb|ghci|bc"), _interpreter("")),
    (re.compile(r"ld(-linux|\.so|-musl|64).*"), Prefix(long="library-path preload argv0 audit inhibit-rpath")),
]


@dataclass(frozen=True, slots=True)
class Unwrapped:
    steps: list[Step] = field(default_factory=list)

    @property
    def is_unseen(self) -> bool:
        return any(isinstance(step, Unseen) for step in self.steps)

    @property
    def is_foreign(self) -> bool:
        return any(isinstance(step, Foreign) for step in self.steps)


def unwrap(name: str, args: Sequence[Word], stdin: Word) -> Unwrapped:
    """`name`: the command's bare name, without folder and in lower case. Every argument has one field."""
    reader = _READERS.get(name) or _interpreter_of(name)
    return Unwrapped(reader(args, stdin) if reader else [])


def _interpreter_of(name: str) -> Reader | None:
    return next((reader for pattern, reader in _INTERPRETERS if pattern.fullmatch(name)), None)


def runs_its_arguments(name: str, args: Sequence[Word]) -> bool:
    """Arguments added to these (`xargs env`, `xargs python`) are a command to run."""
    reader = _READERS.get(name)
    if isinstance(reader, Prefix) or reader in (_env, _shell, _xargs, _command_builtin):
        return True
    return not args and _interpreter_of(name) is not None
