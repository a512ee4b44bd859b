"""The programs that rules deny or ask about, wherever a command line names them. Pure."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import takewhile
from posixpath import basename

from app.permission.wildcard import matches


class NamedPrograms:
    """`patterns`: of the rules that deny or ask. One that begins with a wildcard names no program: it matches what was typed."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [pattern for pattern in patterns if pattern.lstrip()[:1] not in ("", "*", "?")]
        self._names = {pattern.split()[0].lower() for pattern in self._patterns}

    def has(self, word: str) -> bool:
        return any(matches(name, spelled) for name in self._names for spelled in (word.lower(), basename(word).lower()))

    def may_be(self, word: str) -> bool:
        """Whether a wildcard in the word can become such a name. One that any name matches is about files."""
        glob = re.sub(r"\[\^", "[!", basename(word).lower())
        is_glob = re.search(r"[*?\[]", glob) is not None and glob.strip("*?") != ""
        return is_glob and any(fnmatchcase(name, glob) for name in self._names)

    def mentioned_in(self, text: str) -> Iterator[str]:
        """The patterns whose program stands in the text as a word, with the literal words behind it (`git push*`)."""
        return (pattern for pattern in self._patterns if all(word.search(text) for word in _mention(pattern)))


@lru_cache(maxsize=2048)
def _mention(pattern: str) -> list[re.Pattern[str]]:
    name, *behind = pattern.split()
    literal = takewhile(lambda word: re.fullmatch(r"\w[\w-]*\*?", word), behind)
    return [_as_word(word) for word in (name, *literal)]


def _as_word(word: str) -> re.Pattern[str]:
    """`rm*` is the beginning of one."""
    start = word.partition("*")[0].partition("?")[0]
    end = r"(?![\w-]|\.\w)" if start == word else ""
    return re.compile(rf"(?<![\w.-]){re.escape(start)}{end}", re.IGNORECASE)
