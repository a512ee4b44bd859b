"""Commands and their names: other spellings of a command, so that a rule is not evaded by one; the programs that rules deny or
ask about, wherever a command line names them; the words that identify a command. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import permutations, takewhile
from posixpath import basename

from app.permissions.wildcard import matches
from app.util.project_files import MAX_PATH

_TWO_WORDS = """
bazel brew bun cargo cdk cf cmake composer consul crictl deno docker eksctl firebase flyctl git go gradle helm heroku hugo ip kind
kubectl kustomize make mc minikube mongosh mysql mvn ng npm nvm nx openssl pip pipenv pnpm poetry podman psql pulumi pyenv python
rake rbenv redis-cli rustup serverless skaffold sls sst swift systemctl terraform tmux turbo ufw vault vercel volta wp yarn
"""

_THREE_WORDS = "aws az doctl gcloud gh sfdx"

_THREE_WORDS_AFTER = {
    "bun": "run x",
    "cargo": "add run",
    "consul": "kv",
    "deno": "task",
    "docker": "builder compose container image network volume",
    "eksctl": "create",
    "git": "config remote stash",
    "ip": "addr link netns route",
    "kind": "create",
    "kubectl": "kustomize rollout",
    "mc": "admin",
    "npm": "exec init run view",
    "openssl": "req x509",
    "pnpm": "dlx exec run",
    "podman": "container image",
    "pulumi": "stack",
    "terraform": "workspace",
    "vault": "auth kv",
    "yarn": "dlx run",
}

_ARITY: dict[tuple[str, ...], int] = {
    **{(name,): 2 for name in _TWO_WORDS.split()},
    **{(name,): 3 for name in _THREE_WORDS.split()},
    **{(name, word): 3 for name, words in _THREE_WORDS_AFTER.items() for word in words.split()},
}

_SHORT_OF = {"--recursive": "r", "--force": "f"}
_LONG_OF = {letter: name for name, letter in _SHORT_OF.items()}
_MAX_PERMUTED = 3
_MAX_LETTERS = 6
_MAX_ARGUMENTS = 100
"""Arguments of a command that are put in other orders; the rest is left out."""
_MAX_MENTION = 255
"""Characters of a rule's word that are looked for, and of a command's that are put in other orders; the rest is ignored."""


def arity(tokens: Sequence[str]) -> int:
    """The longest known prefix decides. An unknown command is identified by its first word."""
    return _ARITY.get(tuple(tokens[:2])) or _ARITY.get(tuple(tokens[:1])) or 1


def always_pattern(tokens: Sequence[str]) -> str | None:
    """The pattern that a reply of `always` allows, such as `git status *`, which matches `git status` too. None if the words
    contain wildcards: as a pattern they would allow more than the user saw."""
    prefix = " ".join(tokens[: arity(tokens)])
    return None if "*" in prefix or "?" in prefix else prefix + " *"


def spellings(words: Sequence[str], reorder: bool = True) -> list[str]:
    """`words` have no quotes. `/bin/rm -fr x` gives `rm -fr x`, `rm -rf x`, `rm -r -f x`, `rm -f x`, …; `git -C x push` gives
    `git push`. `reorder`: also with the options in other orders."""
    name, args = words[0], list(words[1:])
    bare = basename(name) or name
    texts = [" ".join([one, *args]) for one in dict.fromkeys([name, bare, bare.lower()])]
    if reorder and any(arg.startswith("-") for arg in args):
        begun = [arg[:_MAX_MENTION] for arg in args[:_MAX_ARGUMENTS]]
        texts += [" ".join([bare.lower(), *variant]) for variant in _variants(bare.lower(), begun)]
    return list(dict.fromkeys(texts))


def _variants(name: str, args: list[str]) -> Iterator[list[str]]:
    for start in [0, *_after_leading_options(args)]:
        yield args[start:]
        options, operands = _split_options(args[start:])
        before = arity([name, *operands]) - 1
        for written in _option_orders(options):
            yield [*operands[:before], *written, *operands[before:]]


def _after_leading_options(args: list[str]) -> list[int]:
    """Indices at which a subcommand may start: each leading option may or may not take the next word as its value."""
    starts = []
    may_be_value = False
    for index, arg in enumerate(args):
        if arg.startswith("-"):
            may_be_value = True
            continue
        if index:
            starts.append(index)
        if not may_be_value:
            break
        may_be_value = False
    return starts


def _split_options(args: list[str]) -> tuple[list[str], list[str]]:
    end = args.index("--") if "--" in args else len(args)
    options = [arg for arg in args[:end] if arg.startswith("-") and len(arg) > 1]
    return options, [*(arg for arg in args[:end] if arg not in options), *args[end + 1 :]]


def _option_orders(options: list[str]) -> Iterator[list[str]]:
    long = [option for option in options if option.startswith("--")]
    letters = list(dict.fromkeys("".join(map(_letters, options))))
    yield [*long, *(f"-{letter}" for letter in letters)]
    yield from ([option] for option in long)
    yield from ([_LONG_OF[letter]] for letter in letters if letter in _LONG_OF)
    if len(letters) > _MAX_LETTERS:
        return
    for count in range(1, (len(letters) if len(letters) <= _MAX_PERMUTED else 2) + 1):
        for order in permutations(letters, count):
            yield ["-" + "".join(order)]
            yield [f"-{letter}" for letter in order]


def _letters(option: str) -> str:
    if option.startswith("--"):
        return _SHORT_OF.get(option, "")
    return option[1:] if option[1:].isalpha() else ""


class NamedPrograms:
    """The programs that the rules' patterns name. `patterns`: those of the rules that deny or ask. A pattern that begins with a
    wildcard names no program: it matches the text as typed."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [pattern for pattern in patterns if pattern.lstrip()[:1] not in ("", "*", "?")]
        self._names = {pattern.split()[0].lower() for pattern in self._patterns}

    def has(self, word: str) -> bool:
        return any(matches(name, spelled) for name in self._names for spelled in (word.lower(), basename(word).lower()))

    def may_expand_to_one(self, word: str) -> bool:
        """Whether the shell may expand the word's wildcards to the name of such a program. A word of `*` and `?` alone, which any
        name matches, is taken for files."""
        glob = re.sub(r"\[\^", "[!", basename(word).lower())
        is_glob = re.search(r"[*?\[]", glob) is not None and glob.strip("*?") != ""
        # After the last `[…]` each character but `*` stands for one character, so a shorter name cannot match.
        shortest = len(glob.rpartition("]")[2].replace("*", ""))
        return is_glob and any(shortest <= len(name) <= MAX_PATH and fnmatchcase(name, glob) for name in self._names)

    def mentioned_in(self, text: str) -> Iterator[str]:
        """The patterns whose program is in the text as a word, as are the literal words that follow it (`git push*`)."""
        return (pattern for pattern in self._patterns if all(word.search(text) for word in _mention(pattern)))


@lru_cache(maxsize=2048)
def _mention(pattern: str) -> list[re.Pattern[str]]:
    name, *following = pattern.split()
    literal = takewhile(lambda word: re.fullmatch(r"\w[\w-]*\*?", word), following)
    return [_as_word(word) for word in (name, *literal)]


def _as_word(word: str) -> re.Pattern[str]:
    """`rm*` matches the beginning of a word."""
    start = word.partition("*")[0].partition("?")[0][:_MAX_MENTION]
    end = r"(?![\w-]|\.\w)" if start == word else ""
    return re.compile(rf"(?<![\w.-]){re.escape(start)}{end}", re.IGNORECASE)
