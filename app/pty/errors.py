from typing import Any

from app.schema.errors import NotFound, ServiceError, TooMany


class PtyNotFound(NotFound):
    """Newer clients read `_tag`, `ptyID` and `message`, older ones `name` and `data`: all are here."""

    def __init__(self, pty_id: str, elsewhere: str = "") -> None:
        super().__init__(f"There is no terminal {pty_id}{elsewhere}")
        self.pty_id = pty_id

    def body(self) -> dict[str, Any]:
        return {**super().body(), "_tag": "PtyNotFoundError", "ptyID": self.pty_id, "message": self.message}


class PtyForbidden(ServiceError):
    status = 403
    name = "PtyForbiddenError"

    def body(self) -> dict[str, Any]:
        return {**super().body(), "_tag": self.name, "message": self.message}


class TerminalsOff(PtyForbidden):
    def __init__(self) -> None:
        super().__init__("This server has no terminals (OPENSESSION_TERMINALS=off).")


class NotTheirTerminal(PtyForbidden):
    def __init__(self, pty_id: str) -> None:
        super().__init__(f"Terminal {pty_id} is another user's: you may list and remove it, not type in it.")


class TooManyTerminals(TooMany):
    name = "TooManyTerminalsError"

    def __init__(self, most: int) -> None:
        super().__init__(f"You have {most} terminals already (OPENSESSION_MAX_TERMINALS). Close one first.")
