"""What git says of a directory: its branch, what differs from a commit, its worktrees."""

from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Wire


class VcsInfo(Wire):
    """`branch` is empty if HEAD is detached, and outside git."""

    branch: str
    default_branch: Annotated[str | None, Field(alias="default_branch")] = None


class VcsFileStatus(Wire):
    """`file` is from the top of the checkout. Counts are lines, 0 for a binary file."""

    file: str
    additions: int
    deletions: int
    status: Literal["added", "deleted", "modified"]


class VcsFileDiff(VcsFileStatus):
    """`patch` is a header alone where there is too much to show."""

    patch: str


class VcsPatch(Wire):
    patch: str


class VcsApplied(Wire):
    applied: Literal[True] = True


class VcsApplyData(Wire):
    message: str
    reason: Literal["non-git", "not-clean"]


class VcsApplyError(Wire):
    name: Literal["VcsApplyError"]
    data: VcsApplyData
