"""Which further commands a command runs, and what can't be known of them, by the command's name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from posixpath import basename

from app.permission.shell.programs import (
    awk_steps,
    builtin_hook,
    fd_steps,
    git_steps,
    interpreter,
    make_steps,
    parallel_steps,
    runner,
    scheduler_steps,
    sed_steps,
    ssh_steps,
    watch_steps,
    with_input,
    with_options,
    with_text,
)
from app.permission.shell.shells import (
    alias_steps,
    command_steps,
    coproc_steps,
    env_steps,
    eval_steps,
    keyword_steps,
    shell_steps,
    source_steps,
    trap_steps,
)
from app.permission.shell.steps import Foreign, Prefix, Reader, Runs, Step, Unseen, option_script, split_options, until, value
from app.permission.shell.words import UNKNOWN, Word

_FIND_RUNS = {"-exec", "-execdir", "-ok", "-okdir"}


def _find_steps(args: Sequence[Word], _stdin: Word) -> list[Step]:
    steps: list[Step] = []
    for at, word in enumerate(args):
        if value(word) in _FIND_RUNS:
            command = until(args[at + 1 :], {";", "+"})
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


def _xargs_steps(args: Sequence[Word], stdin: Word) -> list[Step]:
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
    **dict.fromkeys(("bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "yash", "fish", "csh", "tcsh"), shell_steps),
    **dict.fromkeys(("time", "!", "{"), keyword_steps),
    **dict.fromkeys(("source", "."), source_steps),
    "su": option_script("c", "command|session-command"),
    "runuser": option_script("c", "command|session-command", Prefix(short="ugGsw", long="user group supp-group shell")),
    "capsh": option_script("c", ""),
    **dict.fromkeys(("find", "gfind", "bfs"), _find_steps),
    **dict.fromkeys(("fd", "fdfind"), fd_steps),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), awk_steps),
    **dict.fromkeys(("sed", "gsed"), sed_steps),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "ed", "view"), with_input("-c", "+", "--cmd", "-es", "-S", "--headless")),
    **dict.fromkeys(("at", "batch"), scheduler_steps),
    **dict.fromkeys(("poetry", "pipenv", "pdm", "hatch", "rye", "conda", "rbenv", "pyenv"), runner("run", "exec", valued="np")),
    **dict.fromkeys(("bundle", "mise", "asdf", "volta"), runner("exec", "x", "run")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), runner("exec", "x", "dlx", valued="p", call="-c --call")),
    **dict.fromkeys(("npx", "bunx", "uvx", "pipx", "pnpx"), runner("", valued="p", call="-c --call")),
    "coproc": coproc_steps,
    "env": env_steps,
    "xargs": _xargs_steps,
    "eval": eval_steps,
    "trap": trap_steps,
    "alias": alias_steps,
    "command": command_steps,
    "parallel": parallel_steps,
    "watch": watch_steps,
    "ssh": ssh_steps,
    "uv": runner("run", valued="p"),
    "nix-shell": option_script("-run|-command", "run|command"),
    "script": option_script("c", "command"),
    "flock": option_script("c", "command", Prefix(short="wE", long="timeout wait conflict-exit-code", operands=1)),
    "crontab": with_input(),
    "git": git_steps,
    "tar": with_options("--to-c", "--checkpoint-action", "-I", "--use-compress", "-F", "--info-s", "--new-volume", "--rsh"),
    "rsync": with_options("-e", "--rsh", "--rsync-path"),
    "zip": with_options("-T", "--unzip-command"),
    "sort": with_options("--compress-program"),
    "split": with_options("--filter"),
    "wget": with_options("--use-askpass", "-e", "--execute"),
    "cmake": with_options("-E"),
    "go": with_options("-toolexec", "-exec", "-vettool", "--toolexec", "--exec", "--vettool"),
    "tcpdump": with_options("-z"),
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++"), with_options("-wrapper", "-fplugin", "-B")),
    **dict.fromkeys(("firejail", "bwrap", "proot", "socat", "flatpak", "systemd-nspawn"), with_text("exec|system|^[^-]")),
    **dict.fromkeys(("docker", "podman", "kubectl", "nerdctl"), with_text(r"^(run|exec|create|debug)$")),
    **dict.fromkeys(("sqlite3", "psql", "mysql", "mariadb"), with_text(r"\\!|^\s*[.\\]?(shell|system)|program|edit\(")),
    **dict.fromkeys(("dc", "m4", "gnuplot", "octave", "ip"), with_text("!|syscmd|system|exec")),
    "scp": with_options("-S", "-o"),
    "sftp": with_options("-S", "-o", "-b"),
    "man": with_options("-P", "-H", "--pager", "--html"),
    "gdb": with_options("-ex", "-x", "--eval", "--command", "--args", "-iex"),
    "emacs": with_options("--eval", "-eval", "--batch", "--load", "-l"),
    **dict.fromkeys(("make", "gmake"), make_steps),
    "tmux": with_options(""),
    "screen": with_options(""),
    "expect": with_input("-c"),
    "hash": builtin_hook("-p"),
    "enable": builtin_hook("-f"),
    "bind": builtin_hook("-x"),
    "complete": builtin_hook("-C", "-F"),
    "mapfile": option_script("C", "callback"),
    "readarray": option_script("C", "callback"),
}

_INTERPRETERS: list[tuple[re.Pattern[str], Reader]] = [
    (re.compile(r"(python|pypy|ipython)[\d.]*"), interpreter("c", modules="m")),
    (re.compile(r"(perl|ruby|lua|luajit|julia|rscript|osascript|groovy|scala|guile)[\d.]*"), interpreter("eE")),
    (re.compile(r"(node|nodejs|deno|tsx|ts-node)[\d.]*"), interpreter("ep")),
    (re.compile(r"php[\d.]*"), interpreter("rRBE")),
    (re.compile(r"(pwsh|powershell)"), interpreter("cCeE")),
    (re.compile(r"tclsh[\d.]*|wish[\d.]*|irb|ghci|bc"), interpreter("")),
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
    if isinstance(reader, Prefix) or reader in (env_steps, shell_steps, _xargs_steps, command_steps):
        return True
    return not args and _interpreter_of(name) is not None
