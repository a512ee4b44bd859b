"""What terminal clients are asked to do: announced as it is, by the events of the same types."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from app.schema.base import SessionID, Wire


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
