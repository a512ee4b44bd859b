"""Terminals, as clients make and see them."""

from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Wire

MOST_CELLS = 65535
"""The kernel keeps a terminal's rows and columns in 16 bits."""

Cells = Annotated[int, Field(gt=0, le=MOST_CELLS)]


class PtySize(Wire):
    rows: Cells
    cols: Cells


class Pty(Wire):
    """A terminal with its program. `exitCode` is there once the program has exited; a signal n is 128 + n, as in a shell."""

    id: Annotated[str, Field(pattern="^pty")]
    title: str
    command: str
    args: list[str]
    cwd: str
    status: Literal["running", "exited"]
    pid: Annotated[int, Field(ge=0)]
    exit_code: Annotated[int | None, Field(ge=0)] = None


class PtyInput(Wire):
    command: Annotated[str | None, Field(description="The program; the server's shell if absent")] = None
    args: Annotated[list[str], Field(description="Its arguments; `-l` for a shell without any")] = []
    cwd: Annotated[str | None, Field(description="Within the directory or its checkout; the directory if absent")] = None
    title: str | None = None
    env: Annotated[dict[str, str], Field(description="Variables beside those that commands see")] = {}


class PtyUpdate(Wire):
    """What is absent stays as it is."""

    title: str | None = None
    size: PtySize | None = None


class PtyShell(Wire):
    """`acceptable`: commands of the model may be run by it."""

    path: str
    name: str
    acceptable: bool


class PtyTicket(Wire):
    """A login for one connection to one terminal. `expires_in` in seconds."""

    ticket: str
    expires_in: Annotated[int, Field(alias="expires_in", gt=0)]
