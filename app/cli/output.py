"""What is shown: texts with a style, each for one of the two streams. No terminal is known here."""

from dataclasses import dataclass
from typing import Literal

Style = Literal["plain", "faint", "done", "failed", "asking", "added", "removed", "place"]
Target = Literal["answer", "note"]


@dataclass(frozen=True, slots=True)
class Output:
    """`target`: the answer goes to standard output, all else to standard error."""

    text: str
    style: Style = "plain"
    target: Target = "note"
    end: str = "\n"


def answer(text: str, end: str = "\n") -> Output:
    return Output(text, target="answer", end=end)
