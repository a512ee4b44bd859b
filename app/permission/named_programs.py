"""The programs that rules deny or ask about, wherever a command line names them. Pure."""

import re
from fnmatch import fnmatchcase
from itertools import takewhile
from posixpath import basename

from app.permission.wildcard import matches
from app.schema.permission import Ruleset


class NamedPrograms:
    """`rules` are those that deny or ask. One that begins with a wildcard names no program: it matches what was typed."""

    def __init__(self, rules: Ruleset) -> None:
        literal = [rule.pattern.split() for rule in rules if rule.pattern[:1] not in ("", "*", "?")]
        self._names = {words[0].lower() for words in literal}
        self._mentions = [_mention(words) for words in literal]

    def has(self, word: str) -> bool:
        return any(matches(name, spelled) for name in self._names for spelled in (word.lower(), basename(word).lower()))

    def may_be(self, word: str) -> bool:
        """Whether a wildcard in the word can become such a name. One that any name matches is about files."""
        glob = re.sub(r"\[\^", "[!", basename(word).lower())
        is_glob = re.search(r"[*?\[]", glob) is not None and glob.strip("*?") != ""
        return is_glob and any(fnmatchcase(name, glob) for name in self._names)

    def are_in(self, text: str) -> bool:
        """Whether the text holds such a name as a word, with the literal words that the rule has behind it (`git push*`)."""
        return any(all(word.search(text) for word in mention) for mention in self._mentions)


def _mention(words: list[str]) -> list[re.Pattern[str]]:
    name, *behind = words
    literal = takewhile(lambda word: re.fullmatch(r"\w[\w-]*\*?", word), behind)
    return [_as_word(word) for word in (name, *literal)]


def _as_word(word: str) -> re.Pattern[str]:
    """`rm*` is the beginning of one."""
    start = word.partition("*")[0].partition("?")[0]
    end = r"(?![\w-]|\.\w)" if start == word else ""
    return re.compile(rf"(?<![\w.-]){re.escape(start)}{end}", re.IGNORECASE)
