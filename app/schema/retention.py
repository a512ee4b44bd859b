"""Deleting old sessions."""

from typing import Annotated

from pydantic import Field, StrictBool

from app.schema.base import Wire


class PruneInput(Wire):
    older_than_days: Annotated[
        float, Field(ge=0, le=36_500, description="Of a session and all below it, none has changed for so long")
    ]
    archived_only: StrictBool = False
    dry_run: StrictBool = False


class PruneReport(Wire):
    """`trees`: root sessions that were deleted (of a dry run: that would be) with all below them, `sessions` altogether. The
    others count trees that are as old, and stay."""

    trees: int = 0
    sessions: int = 0
    running: int = 0
    shared: int = 0
    pinned: int = 0
