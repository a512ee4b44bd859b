"""Resources: of each session its transcript and what it changed in files."""

import re
from typing import Any

from mcp_types import ListResourcesResult, Resource, ResourceTemplate, TextResourceContents

from app.api_client.client import ApiClient, ApiRefused
from app.mcp_server.documents import diff_text, window

MOST_CHARACTERS = 1_000_000
"""Of a transcript: its end. read_session reads any part of it."""
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
    """Of the sessions that the caller may see, those worked on last first. Raises ApiRefused, also for a cursor that is none."""
    page = {} if cursor is None else {"cursor": cursor}
    sessions = await api.get("/experimental/session", roots="true", limit=_PAGE, **page)
    found = [resource for session in sessions for resource in _of_session(session)]
    return ListResourcesResult(resources=found, next_cursor=_next(sessions))


def _of_session(session: dict[str, Any]) -> list[Resource]:
    base, title = f"opensession://session/{session['id']}", session["title"]
    return [
        Resource(name=f"{title}: transcript", uri=f"{base}/transcript", description=session["directory"], mime_type=_MARKDOWN),
        Resource(name=f"{title}: diff", uri=f"{base}/diff", description=session["directory"], mime_type=_DIFF),
    ]


def _next(sessions: list[dict[str, Any]]) -> str | None:
    return str(sessions[-1]["time"]["updated"]) if len(sessions) >= _PAGE else None


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
    end = await window(api.download(f"/session/{session_id}/export", format="markdown"), MOST_CHARACTERS)
    return TextResourceContents(uri=uri, mime_type=_MARKDOWN, text=end.text)
