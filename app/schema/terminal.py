"""Terminals, as clients make and see them; and requests to terminal clients."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from app.schema.base import SessionID, Wire

MAX_CELLS = 65535
"""The kernel keeps a terminal's rows and columns in 16 bits."""

Cells = Annotated[int, Field(gt=0, le=MAX_CELLS)]


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
    """Absent fields stay as they are."""

    title: str | None = None
    size: PtySize | None = None


class PtyShell(Wire):
    """`acceptable`: it can run the model's commands."""

    path: str
    name: str
    acceptable: bool


class PtyTicket(Wire):
    """A login for one connection to one terminal. `expires_in` in seconds."""

    ticket: str
    expires_in: Annotated[int, Field(alias="expires_in", gt=0)]


class PromptText(Wire):
    text: str


class TerminalCommandName(Wire):
    """Any command of the terminal client; these are the ones that are described."""

    command: (
        Literal[
            "session.list",
            "session.new",
            "session.share",
            "session.interrupt",
            "session.compact",
            "session.page.up",
            "session.page.down",
            "session.line.up",
            "session.line.down",
            "session.half.page.up",
            "session.half.page.down",
            "session.first",
            "session.last",
            "prompt.clear",
            "prompt.submit",
            "agent.cycle",
        ]
        | str
    )


class Toast(Wire):
    title: str | None = None
    message: str
    variant: Literal["info", "success", "warning", "error"]
    duration: int | float | None = Field(default=None, gt=0, description="In milliseconds; 5000 if absent", validate_default=True)

    @field_validator("duration", mode="before")
    @classmethod
    def _or_five_seconds(cls, duration: Any) -> Any:
        return 5000 if duration is None else duration


class SelectedSession(Wire):
    session_id: SessionID


class PromptAppend(Wire):
    type: Literal["tui.prompt.append"] = "tui.prompt.append"
    properties: PromptText


class CommandExecute(Wire):
    type: Literal["tui.command.execute"] = "tui.command.execute"
    properties: TerminalCommandName


class ToastShow(Wire):
    type: Literal["tui.toast.show"] = "tui.toast.show"
    properties: Toast


class SessionSelect(Wire):
    type: Literal["tui.session.select"] = "tui.session.select"
    properties: SelectedSession


SteeringRequest = Annotated[PromptAppend | CommandExecute | ToastShow | SessionSelect, Field(discriminator="type")]
