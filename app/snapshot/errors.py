from app.schema.errors import ServiceError


class SnapshotFailed(ServiceError):
    """No snapshot could be taken or read. A step then stores none; a revert is refused with this message."""

    status = 500
    name = "SnapshotError"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The files' snapshot failed: {reason}")
        self.reason = reason
