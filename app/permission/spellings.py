"""Other spellings of a command, so that a rule about one spelling is not evaded by another."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from posixpath import basename

from app.permission.arity import arity

_SHORT_OF = {"--recursive": "r", "--force": "f"}
_LONG_OF = {letter: name for name, letter in _SHORT_OF.items()}
_MAX_PERMUTED = 3
_MAX_LETTERS = 6
_MAX_ARGUMENTS = 100


def spellings(words: Sequence[str], reorder: bool = True) -> list[str]:
    """`words` have no quotes. `/bin/rm -fr x` gives `rm -fr x`, `rm -rf x`, `rm -r -f x`, `rm -f x`, …; `git -C x push` gives
    `git push`. `reorder`: also with the options in other orders."""
    name, args = words[0], list(words[1:])
    bare = basename(name) or name
    texts = [" ".join([one, *args]) for one in dict.fromkeys([name, bare, bare.lower()])]
    if reorder and len(args) <= _MAX_ARGUMENTS and any(arg.startswith("-") for arg in args):
        texts += [" ".join([bare.lower(), *variant]) for variant in _variants(bare.lower(), args)]
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
    starts, waiting = [], [0]
    seen: set[int] = set()
    while waiting:
        at = waiting.pop()
        if at in seen or at >= len(args):
            continue
        seen.add(at)
        if args[at].startswith("-"):
            waiting += [at + 1, at + 2]
        elif at:
            starts.append(at)
    return starts


def _split_options(args: Iterable[str]) -> tuple[list[str], list[str]]:
    options: list[str] = []
    operands: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            operands.extend(rest)
        elif arg.startswith("-") and len(arg) > 1:
            options.append(arg)
        else:
            operands.append(arg)
    return options, operands


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
