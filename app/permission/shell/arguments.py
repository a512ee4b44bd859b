"""What a program's arguments may be beside plain words: code, scripts, prose, settings that name a program."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from app.permission.rules import Readability
from app.permission.shell.programs import OWN_LANGUAGE, may_take_scripts
from app.permission.shell.words import UNKNOWN, Word

ASSIGNMENT = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_CHANGES_PROGRAMS = re.compile(
    r"PATH|LD_\w+|DYLD_\w+|BASH_\w+|ENV|SHELLOPTS|BASHOPTS|PS[0-4]|PROMPT_COMMAND|IFS|CDPATH|GLOBIGNORE|(\w+_)?PAGER|VISUAL|BROWSER|"
    r"(\w+_)?EDITOR|GIT_(SSH|EXTERNAL|PROXY|ASKPASS|CONFIG|EXEC|TEMPLATE|DIR)\w*|(SSH|SUDO)_ASKPASS|NODE_OPTIONS|PERL5\w+|RUBYOPT|"
    r"RUBYLIB|PYTHONSTARTUP|PYTHONHOME|JAVA_TOOL_OPTIONS|MAKEFLAGS|GCONV_PATH|\w+_WRAPPER|LESSOPEN|LESSCLOSE|TAR_OPTIONS"
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
"""Of git: those that are not harmless may name a program."""
_PROSE_OPTION = re.compile(r"-\w*m|--(?:message|title|body|notes|description|subject|comment)")


def changes_programs(assignment: str) -> bool:
    """Whether the assignment can make another program run than the named one (`PATH=.:$PATH`, `GIT_SSH_COMMAND=…`)."""
    found = ASSIGNMENT.fullmatch(assignment)
    return bool(found and _CHANGES_PROGRAMS.fullmatch(found[1]) and found[2] not in _HARMLESS_PROGRAMS)


def readability_of(name: str, args: Sequence[str], is_fed: bool) -> Readability:
    if name == "git" and _names_program(args):
        return "unreadable"
    if own := OWN_LANGUAGE.get(name):
        return "foreign" if any(re.search(own, arg) for arg in args) else "readable"
    if not may_take_scripts(name, args):
        return "readable"
    takes_code = any(_CODE_OPTION.fullmatch(one) and _CODE.search(other) for one, other in pairwise(args))
    does_as_told = is_fed and all(arg.startswith("-") for arg in args)
    return "foreign" if takes_code or does_as_told else "readable"


def _names_program(args: Sequence[str]) -> bool:
    """Of git's arguments."""
    given = [other for one, other in pairwise(args) if one == "-c" or "config" in args]
    settings = filter(_SETTING.fullmatch, given)
    is_named = any(arg.startswith(("ext::", "--config-env", "--exec-path=")) for arg in args)
    return is_named or not all(map(_HARMLESS_SETTING.match, settings))


def texts_in(args: Sequence[Word]) -> Iterator[str]:
    """What may be scripts among the arguments, without the options that they belong to."""
    for at, word in enumerate(args):
        text = re.sub(r"^--[\w-]+=|^-\w", "", word.value)
        if word.is_known and re.search(r"\s", text) and not (at and _PROSE_OPTION.fullmatch(args[at - 1].value)):
            yield text


def text_or_unknown(word: Word) -> str:
    return word.value if word.is_known else UNKNOWN + word.text.strip("\"'")
