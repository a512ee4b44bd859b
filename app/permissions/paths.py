"""Which paths lead outside the project, with symlinks resolved, and which words of a command are paths."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from glob import iglob
from itertools import chain, islice, pairwise
from pathlib import Path
from posixpath import basename, dirname, exists, expanduser, isabs, isdir, islink, join, normpath

from app.permissions.shell.words import UNKNOWN, Lookup, Word, has_glob, is_known, unescaped
from app.util.project_files import is_below, resolved

_PATH_COMMANDS = """
cd pushd chdir rm cp mv mkdir rmdir touch chmod chown chgrp cat tac nl head tail less more ls dir vdir tree ln link unlink
readlink tee dd install rsync scp tar zip unzip gzip gunzip zcat bzip2 xz sort uniq wc diff cmp comm stat du df file od xxd
hexdump strings source . truncate shred split csplit cut paste join md5sum sha1sum sha256sum sha512sum cksum base64 vi vim
nvim nano emacs ed ex fold view code open bat mapfile readarray pr expand patch grep egrep fgrep rg sed awk gawk jq yq find
fd mktemp mkfifo mknod chattr lsattr setfacl getfacl realpath bash sh zsh dash
"""
PATH_COMMANDS = frozenset(_PATH_COMMANDS.split())
_SCRIPT_FIRST = {"grep", "egrep", "fgrep", "rg", "sed", "awk", "gawk", "mawk", "jq", "yq"}
_SCRIPT_WRITES = {"sed", "awk", "gawk", "mawk"}
_SAFE_DEVICES = re.compile(r"/dev/(null|zero|full|u?random|stdin|stdout|stderr|tty|fd/\d+)")
_URL = re.compile(r"(?!file:)[a-zA-Z][a-zA-Z0-9+.-]*://", re.IGNORECASE)
_WITHIN_VALUE = re.compile(r"^[\w.-]+(?:=<|@)(/.*|~.*|\.\..*)|,(?:source|src)=([^,]+)")
"""`x=</y` and `x@/y` of curl, `type=bind,source=/y,…` of docker."""
_MAY_BE_PARENT = re.compile(r"\.(?:[.?*]|\[[^\]]*\])+")
_MAX_GLOB_MATCHES = 1000
_TWO_WILDCARDS = re.compile(r"((?:/[^/*?\[]*)*(?=/))/[^/]*(?:/[^/*?\[]*)*(?:/[^/]*)?")


class Boundary:
    """The session's directory and its worktree; a worktree of `/` (no git) adds nothing. `roots`: where both were when they were
    opened, resolved, so that a link that stands there by now leads out. None: where they are now."""

    def __init__(self, directory: Path, worktree: Path, roots: Iterable[Path] = ()) -> None:
        self.directory = directory
        self.worktree = worktree
        places = [directory] if worktree == Path("/") else [directory, worktree]
        self._roots = list(dict.fromkeys(map(str, roots))) or list(map(os.path.realpath, places))

    def contains(self, path: Path | str) -> bool:
        """Relative paths start at the directory. For a path that does not exist, its existing parents decide."""
        real = self.resolve(path)
        return any(is_below(real, root) for root in self._roots)

    def is_root(self, path: str) -> bool:
        return path in {*self._roots, str(self.directory), str(self.worktree)}

    def resolve(self, path: Path | str) -> str:
        return resolved(os.path.join(self.directory, path))  # noqa: PTH118 (Path would drop a trailing `..` of a link)


class PathCheck:
    """`directories`: where the shell may stand. `makes_links`: the script makes links, so that `new/..` may lead anywhere."""

    def __init__(self, boundary: Boundary, lookup: Lookup, directories: tuple[str, ...]) -> None:
        self.directories = directories
        self.makes_links = False
        self._boundary = boundary
        self._lookup = lookup

    def outside_of_arguments(self, name: str, args: Sequence[Word]) -> Iterator[str]:
        """Yields the arguments that lead outside: a real path, or the text as typed if it is known only at run time."""
        takes_paths = name in PATH_COMMANDS
        scripts = _script_arguments(name, args) if name in _SCRIPT_FIRST else []
        for word in args:
            if any(word is script for script in scripts):
                yield from self.outside_in_program(word.plain, word.text) if name in _SCRIPT_WRITES else ()
                continue
            for field in word.fields:
                yield from self._outside_in_field(field, word, takes_paths)

    def outside_of_target(self, word: Word) -> Iterator[str]:
        """The target of a redirection or of `cd` is a path, whatever it looks like."""
        for field in word.fields:
            yield from self._outside(field, word.text)

    def outside_in_program(self, program: str, typed: str) -> Iterator[str]:
        """Paths in existing folders that a program in another language names: `w /etc/x`, `open("../x")`."""
        for name in _names_in_program(program):
            folder = dirname(self.absolute_paths(name)[0])
            if folder != "/" and isdir(folder):
                yield from self._outside(name, typed)

    def _outside_in_field(self, field: str, word: Word, takes_paths: bool) -> Iterator[str]:
        for candidate in _candidates(field, takes_paths):
            if is_known(candidate) or candidate.startswith(UNKNOWN + "/") or (takes_paths and not field.startswith("-")):
                yield from self._outside(candidate, word.text)
            else:
                yield from self._outside_start(candidate)
        if is_known(field) and not _looks_like_path(field):
            yield from self._outside_by_link(field)

    def _outside_by_link(self, field: str) -> Iterator[str]:
        """A bare word that names a symbolic link, or a wildcard that may match some."""
        text = unescaped(field)
        if text and (has_glob(field) or any(islink(join(folder, text)) for folder in self.directories)):
            yield from self._outside(field, text)

    def _outside(self, field: str, typed: str) -> Iterator[str]:
        if not is_known(field):
            before = list(self._outside_start(field))
            yield from before or [typed]
            return
        for path in self.absolute_paths(unescaped(_with_parents(field))):
            yield from self._outside_path(path)
        for path in self.absolute_paths(unescaped(field)):
            yield from self._outside_path(path)
            if has_glob(field):
                yield from self._outside_matches(path)
        if self.makes_links and not isabs(field) and ".." in unescaped(field).split("/"):
            yield typed

    def _outside_start(self, field: str) -> Iterator[str]:
        """The folder of a path whose end is unknown."""
        start = unescaped(field.partition(UNKNOWN)[0])
        folder = start[: start.rfind("/") + 1]
        for path in self.absolute_paths(folder) if folder else ():
            yield from self._outside_path(path)

    def _outside_path(self, path: str) -> Iterator[str]:
        """The path itself, or where it links to. Removing a link changes the folder of the link."""
        plain = normpath(path)
        if _SAFE_DEVICES.fullmatch(plain):
            return
        if re.match(r"//?(proc|dev)/", plain):
            yield plain
            return
        real = self._boundary.resolve(path)
        if not real or not self._boundary.contains(real):
            yield real or plain
        elif basename(path) not in {"", ".", ".."}:
            itself = join(self._boundary.resolve(dirname(path)), basename(path))
            if not self._boundary.contains(dirname(itself)) and not self._boundary.is_root(itself):
                yield itself

    def _outside_matches(self, pattern: str) -> Iterator[str]:
        """Links among the files that a wildcard matches now, two wildcards deep."""
        found = _TWO_WILDCARDS.match(re.sub(r"\[\^", "[!", pattern))
        if not found or not self._boundary.contains(found[1]):
            return
        for path in islice(iglob(found[0]), _MAX_GLOB_MATCHES):  # noqa: PTH207 (Path.glob takes no absolute pattern)
            if resolved(path) != path:
                yield from self._outside_path(path)

    def absolute_paths(self, text: str) -> list[str]:
        """The absolute paths that the text may mean."""
        text = re.sub(r"^file:(//(localhost)?)?(?=/)", "", text, flags=re.IGNORECASE)
        user, _, rest = text.partition("/")
        if text.startswith("~") and user != "~+":
            home = (self._lookup("HOME") or ["/"])[0] if user == "~" else expanduser(user)
            return [join("/", home, rest)]
        return [join(folder, rest if user == "~+" else text) for folder in self.directories]


def _with_parents(field: str) -> str:
    """With `..` for the folders `.?` and `.*`, which match it in many shells."""
    *folders, name = field.split("/")
    may_be_parent = [has_glob(folder) and _MAY_BE_PARENT.fullmatch(folder) is not None for folder in folders]
    replaced = [".." if is_parent else folder for folder, is_parent in zip(folders, may_be_parent, strict=True)]
    return "/".join([*replaced, name])


def is_likely(path: str) -> bool:
    """Whether a text that looks like a path is one: `GET /users` names none. A text that is known only at run time may be one."""
    return not isabs(path) or exists(path) or (dirname(path) != "/" and isdir(dirname(path)))


def _names_in_program(program: str) -> Iterator[str]:
    yield from re.findall(r"(?<=[\s\"'>;rRwW$\d])(?:/|~/|\.\./)[^\s\"';}]+", program)
    yield from re.findall(r"""["'`][<>+|]{0,2}\s*(?!\s)([^"'`\n/]*/[^"'`\n]*)["'`]""", program)


def _script_arguments(name: str, args: Sequence[Word]) -> list[Word]:
    """The programs of sed, awk, grep or jq: what follows sed's `-e`, or the first operand if no option holds a program."""
    options = [word.value for word in args if word.text.startswith("-")]
    if not any(re.match(r"-\w*[ef]|--(exp|file|reg|from)", option) for option in options):
        return [word for word in args if not word.text.startswith("-")][:1]
    if name != "sed" or any(re.match(r"-\w*f|--file", option) for option in options):
        return []
    return [word for option, word in pairwise(args) if re.fullmatch(r"-\w*e|--expression", option.value)]


def _looks_like_path(field: str) -> bool:
    return "/" in field or field.startswith("~") or unescaped(field) == ".."


def _candidates(field: str, takes_paths: bool) -> Iterator[str]:
    """The parts of an argument that may be paths: itself, and values within it."""
    if _URL.match(unescaped(field)) and not takes_paths:
        return
    if not field.startswith("-") and (takes_paths or _looks_like_path(field)):
        yield field
    for part in _values_within(field):
        if _looks_like_path(part) or (takes_paths and not is_known(part)):
            yield part


def _values_within(field: str) -> Iterator[str]:
    """`--x=/y`, `--x=a:/y`, `of=/y`, `-o/y`, `@/y`, `-xf../a`, `-xzf/etc/a`; the last one only if the folder exists, because
    `-Isrc/a` holds a relative path."""
    _, _, after = field.partition("=")
    yield from (after, *filter(isabs, after.split(":")))
    if re.match(r"-\w", field):
        yield field[2:]
    found = re.match(r"-\w+?(/.*|~.*|\.\..*)", field, re.DOTALL)
    if found and (not isabs(found[1]) or (dirname(found[1]) != "/" and isdir(unescaped(dirname(found[1]))))):
        yield found[1]
    if field[:1] == "@" or "=@" in field:
        yield field.partition("@")[2]
    yield from filter(None, chain.from_iterable(found.groups() for found in _WITHIN_VALUE.finditer(field)))
    if re.match(r"file:", field, re.IGNORECASE):
        yield field
