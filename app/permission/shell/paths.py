"""Which words of a command are paths, and which of them lead outside the project."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import iglob
from itertools import islice
from posixpath import basename, dirname, isabs, join, normpath

from app.permission.boundary import Boundary
from app.permission.shell.words import UNKNOWN, Lookup, Word, has_glob, is_known, unquoted

_PATH_COMMANDS = """
cd pushd chdir rm cp mv mkdir rmdir touch chmod chown chgrp cat tac nl head tail less more ls dir vdir tree ln link unlink
readlink tee dd install rsync scp tar zip unzip gzip gunzip zcat bzip2 xz sort uniq wc diff cmp comm stat du df file od xxd
hexdump strings source . truncate shred split csplit cut paste join md5sum sha1sum sha256sum sha512sum cksum base64 vi vim
nvim nano emacs ed ex fold view code open bat mapfile readarray pr expand patch grep egrep fgrep rg sed awk gawk jq yq find
fd mktemp mkfifo mknod chattr lsattr setfacl getfacl realpath bash sh zsh dash
"""
PATH_COMMANDS = frozenset(_PATH_COMMANDS.split())
_SCRIPT_FIRST = {"grep", "egrep", "fgrep", "rg", "sed", "awk", "gawk", "mawk", "jq", "yq"}
_PROGRAM_WRITES = {"sed", "awk", "gawk", "mawk"}
_SAFE_DEVICES = re.compile(r"/dev/(null|zero|full|u?random|stdin|stdout|stderr|tty|fd/\d+)")
_URL = re.compile(r"(?!file:)[a-zA-Z][a-zA-Z0-9+.-]*://", re.IGNORECASE)
_MOST_GLOB_HITS = 1000
_TWO_WILDCARDS = re.compile(r"((?:/[^/*?\[]*)*(?=/))/[^/]*(?:/[^/*?\[]*)*(?:/[^/]*)?")


@dataclass(frozen=True, slots=True)
class Places:
    """Where the shell may stand: several folders where a `cd` may have failed; `lost` once one went nobody knows where."""

    folders: tuple[str, ...]
    lost: bool = False

    def also(self, other: "Places") -> "Places":
        return Places(tuple(dict.fromkeys([*self.folders, *other.folders])), self.lost or other.lost)


@dataclass(frozen=True, slots=True)
class PathCheck:
    """`makes_links`: the script makes symbolic links, so a name that does not exist yet may lead anywhere."""

    boundary: Boundary
    lookup: Lookup
    makes_links: bool = False

    def outside_of_arguments(self, name: str, args: Sequence[Word], places: Places) -> Iterator[str]:
        """What of a command's arguments leads outside: a real path, or the text as typed where only the run will show."""
        takes_paths = name in PATH_COMMANDS
        script = _script_argument(args) if name in _SCRIPT_FIRST else None
        for word in args:
            if word is script:
                yield from self.outside_in_program(word, places) if name in _PROGRAM_WRITES else ()
                continue
            for field in word.fields:
                yield from self._outside_in_field(field, word, takes_paths, places)

    def outside_of_target(self, word: Word, places: Places) -> Iterator[str]:
        """A redirection's target, a folder to go to: a path, whatever it looks like."""
        for field in word.fields:
            yield from self._outside(field, word.text, places)

    def _outside_in_field(self, field: str, word: Word, takes_paths: bool, places: Places) -> Iterator[str]:
        for candidate in _candidates(field, takes_paths):
            unknown_counts = candidate.startswith(UNKNOWN + "/") or (takes_paths and not field.startswith("-"))
            yield from self._outside(candidate, word.text, places, unknown_counts)
        if not looks_like_path(field) and is_known(field):
            yield from self._outside_by_link(field, places)

    def _outside_by_link(self, field: str, places: Places) -> Iterator[str]:
        """A bare word that names a symbolic link, or a wildcard that finds some."""
        text = unquoted(field)
        if text and (has_glob(field) or any(_is_link(join(folder, text)) for folder in places.folders)):
            yield from self._outside(field, text, places)

    def outside_in_program(self, word: Word, places: Places) -> Iterator[str]:
        """Files that a program in another language names (`w /etc/x`, `open("../x")`): those whose folder exists."""
        for name in _names_in_program(unquoted(word.plain)):
            folder = dirname(self.meanings(name, places)[0])
            if folder != "/" and is_folder(folder):
                yield from self._outside(name, word.text, places)

    def _outside(self, field: str, typed: str, places: Places, unknown_counts: bool = True) -> Iterator[str]:
        if not is_known(field):
            yield from self._outside_unknown(field, typed, places, unknown_counts)
            return
        for path in self.meanings(unquoted(field), places):
            yield from self._outside_path(path)
            if has_glob(field):
                yield from self._outside_hits(path)
        if self._is_adrift(unquoted(field), places):
            yield typed

    def _outside_unknown(self, field: str, typed: str, places: Places, counts: bool) -> Iterator[str]:
        known_start = unquoted(field.partition(UNKNOWN)[0])
        folder = known_start[: known_start.rfind("/") + 1]
        before = [path for place in self.meanings(folder, places) for path in self._outside_path(place)] if folder else []
        yield from before
        if counts and not before:
            yield typed

    def _outside_path(self, path: str) -> Iterator[str]:
        """The path itself, or what it links to: to remove a link changes the folder that the link is in."""
        plain = normpath(path)
        if _SAFE_DEVICES.fullmatch(plain):
            return
        if re.match(r"//?(proc|dev)/", plain):
            yield plain
            return
        real = self.boundary.resolve(path)
        if not self.boundary.inside(real):
            yield real
        elif basename(path) not in {"", ".", ".."}:
            itself = join(self.boundary.resolve(dirname(path)), basename(path))
            if not self.boundary.inside(dirname(itself)) and not self.boundary.is_root(itself):
                yield itself

    def _outside_hits(self, pattern: str) -> Iterator[str]:
        """Links among the files that a wildcard finds now, two wildcards deep."""
        found = _TWO_WILDCARDS.match(re.sub(r"\[\^", "[!", pattern))
        if not found or not self.boundary.inside(found[1]):
            return
        for path in islice(iglob(found[0]), _MOST_GLOB_HITS):  # noqa: PTH207 (Path.glob takes no absolute pattern)
            if os.path.realpath(path) != path:
                yield from self._outside_path(path)

    def meanings(self, text: str, places: Places) -> list[str]:
        """The absolute paths that the text may mean."""
        text = re.sub(r"^file:(//(localhost)?)?(?=/)", "", text, flags=re.IGNORECASE)
        if text.startswith("~"):
            return self._home(text, places)
        return [text] if isabs(text) else [join(folder, text) for folder in places.folders]

    def _home(self, text: str, places: Places) -> list[str]:
        user, _, rest = text.partition("/")
        if user == "~+":
            return [join(folder, rest) for folder in places.folders]
        homes = (self.lookup("HOME") or ["/"]) if user == "~" else [_home_of(user)]
        return [join(home, rest) if isabs(home) else join("/", home, rest) for home in homes]

    def _is_adrift(self, text: str, places: Places) -> bool:
        if isabs(text) or ".." not in text.split("/"):
            return False
        return places.lost or (self.makes_links and any(_goes_up_from_nothing(join(folder, text)) for folder in places.folders))


def _names_in_program(program: str) -> Iterator[str]:
    for found in re.finditer(r"(?<=[\s\"'>;rRwW$\d])(?:/|~/|\.\./)[^\s\"';}]+", program):
        yield found[0]
    for found in re.finditer(r"""["'`][<>+|]{0,2}\s*([^"'`\n/]*/[^"'`\n]*)["'`]""", program):
        yield found[1]


def is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 (Path raises for names that are too long)


def _is_link(path: str) -> bool:
    return os.path.islink(path)  # noqa: PTH114 (the same)


def _home_of(user: str) -> str:
    return os.path.expanduser(user)  # noqa: PTH111 (Path raises for unknown users)


def _goes_up_from_nothing(path: str) -> bool:
    """`new/..`: a name that does not exist yet, which a link made meanwhile may lead elsewhere."""
    parts = path.split("/")
    return any(part == ".." and not is_folder("/".join(parts[:at])) for at, part in enumerate(parts))


def _script_argument(args: Sequence[Word]) -> Word | None:
    """The program of sed, awk, grep or jq: their first operand, unless an option gave it."""
    options = [word for word in args if word.text.startswith("-")]
    if any(re.match(r"-\w*[ef]|--(exp|file|reg|from)", unquoted(" ".join(word.fields))) for word in options):
        return None
    return next((word for word in args if not word.text.startswith("-")), None)


def looks_like_path(field: str) -> bool:
    return "/" in field or field.startswith("~") or unquoted(field) == ".."


def _candidates(field: str, takes_paths: bool) -> Iterator[str]:
    """The parts of an argument that may be paths: itself, an option's value (`--x=/y`, `-o/y`, `of=/y`), `@/y`."""
    if _URL.match(unquoted(field)) and not takes_paths:
        return
    if not field.startswith("-") and (takes_paths or looks_like_path(field)):
        yield field
    for part in _values_within(field):
        if looks_like_path(part) or (takes_paths and not is_known(part)):
            yield part


def _values_within(field: str) -> Iterable[str]:
    if "=" in field:
        after = field.partition("=")[2]
        yield after
        yield from (part for part in after.split(":") if part != after and isabs(part))
    if re.match(r"-\w", field):
        yield field[2:]
        yield from _after_letters(field)
    if field[:1] == "@" or "=@" in field:
        yield field.partition("@")[2]
    if re.match(r"file:", field, re.IGNORECASE):
        yield field


def _after_letters(field: str) -> Iterable[str]:
    """`-xf../a`, `-xzf/etc/a`; the latter only where the folder exists, for `-Isrc/a` holds a relative path."""
    found = re.match(r"-\w+?(/.*|~.*|\.\..*)", field, re.DOTALL)
    if found and (not isabs(found[1]) or (dirname(found[1]) != "/" and is_folder(unquoted(dirname(found[1]))))):
        yield found[1]


def always_outside(path: str) -> str | None:
    """What a reply of `always` allows from then on: the path's folder and all below it. None for what only the run will show."""
    if not isabs(path) or "*" in path or "?" in path:
        return None
    return path if path == "/" else (dirname(path) + "*" if dirname(path) != "/" else path + "*")
