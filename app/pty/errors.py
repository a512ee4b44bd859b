from app.schema.errors import NotFound, ServiceError, TooMany


class PtyNotFound(NotFound):
    tag = "PtyNotFoundError"

    def __init__(self, pty_id: str, elsewhere: str = "") -> None:
        super().__init__(f"There is no terminal {pty_id}{elsewhere}", ptyID=pty_id)
        self.pty_id = pty_id


class PtyForbidden(ServiceError):
    status = 403
    name = "PtyForbiddenError"
    tag = "PtyForbiddenError"


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
