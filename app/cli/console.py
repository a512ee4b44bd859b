"""Standard output and standard error, with colours where they are terminals."""

import re

from rich.console import Console
from rich.text import Text

from app.cli.output import Output, Style, Target

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
