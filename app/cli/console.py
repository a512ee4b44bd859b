"""What is shown: texts with a style, each for one of the two streams, which have colours where they are terminals."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

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


_STYLES: dict[Style, str] = {
    "plain": "",
    "faint": "dim",
    "done": "cyan",
    "failed": "red",
    "asking": "bold yellow",
    "added": "green",
    "removed": "red",
    "place": "dim cyan",
}
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""A model, or a file that it reads, could otherwise move the cursor or rename the terminal."""


class Screen:
    def __init__(self) -> None:
        self._consoles: dict[Target, Console] = {"answer": _console(stderr=False), "note": _console(stderr=True)}

    @property
    def is_live(self) -> bool:
        """Whether the answer is read while it is written."""
        return self._consoles["answer"].is_terminal

    def show(self, *outputs: Output) -> None:
        for output in outputs:
            console = self._consoles[output.target]
            text = _CONTROLS.sub("", output.text) if console.is_terminal else output.text
            if console.is_terminal:
                console.print(Text(text, style=_STYLES[output.style]), end=output.end, soft_wrap=True)
            else:
                console.file.write(text + output.end)
            console.file.flush()


def _console(*, stderr: bool) -> Console:
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """What shows that of something so much is done, of so much: on a terminal a bar for each, nothing elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total)

        yield show
