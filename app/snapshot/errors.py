from app.schema.errors import ServiceError


class SnapshotFailed(ServiceError):
    """A snapshot could not be taken or read. A step then has no snapshot; a revert fails with this message."""

    status = 500
    name = "SnapshotError"

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        """`is_final`: at once another try would fail, too."""
        super().__init__(f"The files' snapshot failed: {reason}")
        self.reason = reason
        self.is_final = is_final
