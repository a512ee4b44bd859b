"""What a search in messages finds."""

from app.schema.base import Wire


class FoundPart(Wire):
    """`snippet`: some of the part's text, as it is stored. `ranges`: where the words are in it, [start, end) in UTF-16 code
    units, which JavaScript counts strings in. `time`: when the part began, in milliseconds; `title`: the session's."""

    session_id: str
    message_id: str
    part_id: str
    role: str
    title: str
    time: int
    snippet: str
    ranges: list[tuple[int, int]]


class FoundParts(Wire):
    """`next`: the cursor of the next page; absent on the last one."""

    results: list[FoundPart]
    next: str | None = None
