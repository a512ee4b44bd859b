"""What is known of programs by their names: few things, because a program that is not listed is taken to run what it names
(app.permission.named_programs)."""

import re
from collections.abc import Sequence

from app.permission.shell.words import UNKNOWN

_INERT_PROGRAMS = """
: [ base64 basename bat cat cd chmod chown cksum clear cmp column comm cp curl cut date df diff dirname du echo egrep expand
export false fgrep file fmt fold grep gunzip gzip head hexdump jq kill less ln local ls md5sum mkdir mktemp more mv nl od
paste patch pbcopy printf ps pwd read readlink realpath rev rg rmdir seq set sha1sum sha256sum sha512sum sleep sort stat
strings tac tail tee test touch tr tree true type uniq unset wait wc which xclip xxd xz yes zcat
"""
_INERT = frozenset(_INERT_PROGRAMS.split())
_RUNS_BY_OPTION: dict[str, str | tuple[str, ...]] = {"rg": ("--p", "--ho"), "sort": "--co", "less": "+", "more": "+"}


def runs_nothing(program: str, args: Sequence[str]) -> bool:
    """Programs that are known to run none, so that their arguments are text and files. The list may be short: others are taken to
    run whatever they name, and what the project brings along under such a name (`./grep`), too."""
    name = re.sub(r"^/(usr/)?bin/", "", program)
    if name == "command":
        return bool(args) and re.fullmatch(r"-[pvV]*[vV]", args[0]) is not None
    option = _RUNS_BY_OPTION.get(name, ())
    return name in _INERT and not any(arg.startswith(option) for arg in args)


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
"""A rule that allows one of these allows not yet what it runs. With the letters of options that take a value."""

SHELLS = frozenset(["bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "yash", "fish", "csh", "tcsh", "source", "."])
INTERPRETERS = {
    **dict.fromkeys(("python", "pypy", "ipython"), "c"),
    **dict.fromkeys(["perl", "ruby", "lua", "luajit", "julia", "rscript", "osascript", "groovy", "scala", "guile"], "eE"),
    **dict.fromkeys(("node", "nodejs", "deno", "bun", "tsx", "ts-node"), "ep"),
    "php": "rRBE",
    **dict.fromkeys(("pwsh", "powershell"), "cCeE"),
    **dict.fromkeys(["tclsh", "wish", "irb", "ghci", "bc", "dc", "m4", "gnuplot", "octave", "ed", "ex"], ""),
}
"""With the letters of options that take code. Without a file they read code from standard input."""
OWN_LANGUAGE = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), rf"system|getline|[^|]\|[^|]|@load|{UNKNOWN}"),
    **dict.fromkeys(("sqlite", "psql", "mysql", "mariadb"), r"(?i)\\!|^\s*[.\\]?(?:shell|system)|program|edit\("),
    **dict.fromkeys(
        ("sed", "gsed"),
        r"(?:^|[;{}\n\d$/!,])\s*[eE](?:[\s;]|$)|(?:^|[;{}\n\d$!])\s*[wW]\s"
        r"|s([^\0])(?:\\[^\0]|(?!\1)[^\n\0\\])*\1(?:\\[^\0]|(?!\1)[^\n\0\\])*\1[gpimIM0-9]*[ew]",
    ),
}
"""Programs whose arguments are full of signs that mean code elsewhere, with what runs or writes something in theirs."""


def may_take_scripts(name: str, args: Sequence[str]) -> bool:
    """Whether it is not known what the program does with its arguments."""
    return not (runs_nothing(name, args) or may_hold_commands(name) or entry_name(name) in OWN_LANGUAGE)


def may_hold_commands(name: str) -> bool:
    return is_find(name) or any(entry_name(name) in table for table in (WRAPPERS, SHELLS, INTERPRETERS))


def is_find(name: str) -> bool:
    return name in {"find", "gfind", "bfs"}


def entry_name(name: str) -> str:
    """`python3.11` is listed as python."""
    return name if name == "m4" else name.rstrip("0123456789.") or name
