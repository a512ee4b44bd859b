"""What goes wrong with version control."""

from typing import Literal

from app.schema.errors import ServiceError


class GitFailed(ServiceError):
    """Of a command that works on every repository that is in order."""

    status = 500
    name = "GitError"

    def __init__(self, command: str, told: str) -> None:
        super().__init__(f"{command} failed: {told or 'without a message'}. See whether `git status` works in this directory.")


class PatchRefused(ServiceError):
    """Nothing was changed."""

    status = 400
    name = "VcsApplyError"

    def __init__(self, message: str, reason: Literal["non-git", "not-clean"] = "not-clean") -> None:
        super().__init__(message, reason=reason)


class WorktreeNotGit(ServiceError):
    status = 400
    name = "WorktreeNotGitError"


class WorktreeNameTaken(ServiceError):
    status = 400
    name = "WorktreeNameGenerationFailedError"


class WorktreeNotCreated(ServiceError):
    status = 400
    name = "WorktreeCreateFailedError"


class WorktreeNotRemoved(ServiceError):
    status = 400
    name = "WorktreeRemoveFailedError"


class WorktreeNotReset(ServiceError):
    status = 400
    name = "WorktreeResetFailedError"
