"""Resources: each session's transcript and changes to files, as texts within bounds, because they go into a model's context."""

import re
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from mcp_types import ListResourcesResult, Resource, ResourceTemplate, TextResourceContents

from app.api.client import ApiClient, ApiRefused

MAX_CHARACTERS = 1_000_000
"""A longer transcript is cut to its end. read_session reads any part of it."""
_PAGE = 50
_MARKDOWN, _DIFF = "text/markdown", "text/x-diff"
_URI = re.compile(r"opensession://session/(ses[A-Za-z0-9_.-]*)/(transcript|diff)")

TEMPLATES = [
    ResourceTemplate(
        name="transcript",
        uri_template="opensession://session/{sessionID}/transcript",
        description="A session as Markdown: prompts, answers, tool calls, changed files",
        mime_type=_MARKDOWN,
    ),
    ResourceTemplate(
        name="diff",
        uri_template="opensession://session/{sessionID}/diff",
        description="What a session has changed in files, as a unified diff",
        mime_type=_DIFF,
    ),
]


async def listed(api: ApiClient, cursor: str | None) -> ListResourcesResult:
    """Resources of the sessions that the caller may see, those worked on last first. Raises ApiRefused, also for a bad cursor."""
    page = {} if cursor is None else {"cursor": cursor}
    sessions = await api.get("/experimental/session", roots="true", limit=_PAGE, **page)
    found = [resource for session in sessions for resource in _of_session(session)]
    following = str(sessions[-1]["time"]["updated"]) if len(sessions) >= _PAGE else None
    return ListResourcesResult(resources=found, next_cursor=following)


def _of_session(session: dict[str, Any]) -> list[Resource]:
    base, title = f"opensession://session/{session['id']}", session["title"]
    return [
        Resource(name=f"{title}: transcript", uri=f"{base}/transcript", description=session["directory"], mime_type=_MARKDOWN),
        Resource(name=f"{title}: diff", uri=f"{base}/diff", description=session["directory"], mime_type=_DIFF),
    ]


async def read(api: ApiClient, uri: str) -> TextResourceContents:
    """Raises ApiRefused."""
    found = _URI.fullmatch(uri)
    if found is None:
        forms = ", ".join(template.uri_template for template in TEMPLATES)
        raise ApiRefused(f"uri: there is no resource {uri[:200]}. There are: {forms}")
    session_id, kind = found.groups()
    if kind == "diff":
        text = diff_text(await api.get(f"/session/{session_id}/diff"))
        return TextResourceContents(uri=uri, mime_type=_DIFF, text=text)
    end = await window(api.download(f"/session/{session_id}/export", format="markdown"), MAX_CHARACTERS)
    return TextResourceContents(uri=uri, mime_type=_MARKDOWN, text=end.text)


@dataclass(frozen=True)
class Window:
    """A piece of a text: where it begins in the whole, which has `size` characters."""

    text: str
    begin: int
    size: int


async def window(pieces: AsyncGenerator[bytes, None], limit: int, offset: int | None = None) -> Window:
    """At most `limit` characters of a text in pieces of UTF-8: from `offset` on, or the last ones. No more are held."""
    decode, held, begin, size = getincrementaldecoder("utf-8")("replace").decode, deque[str](), offset or 0, 0
    async with aclosing(pieces):
        async for piece in pieces:
            text = decode(piece)
            held.append(text if offset is None else text[max(offset - size, 0) : max(offset + limit - size, 0)])
            size += len(text)
            while offset is None and size - begin - len(held[0]) >= limit:
                begin += len(held.popleft())
    text = "".join(held)
    return Window(text, begin, size) if offset is not None else Window(text[-limit:], size - len(text[-limit:]), size)


def diff_text(diffs: list[dict[str, Any]]) -> str:
    """The session's changes. A file without a patch is binary, or of an imported session."""
    if not diffs:
        return "No files were changed."
    return "\n".join(diff.get("patch") or f"{diff['file']}: changed, without a diff" for diff in diffs)
