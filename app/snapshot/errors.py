from app.schema.errors import ServiceError


class SnapshotFailed(ServiceError):
    """A snapshot could not be taken or read. A step then has no snapshot; a revert fails with this message."""

    status = 500
    name = "SnapshotError"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The files' snapshot failed: {reason}")
        self.reason = reason
