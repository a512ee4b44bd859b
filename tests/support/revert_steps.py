"""Short ways to script what an agent does to files."""

from pathlib import Path
from typing import Any

from running_app import RunningApp

DONE: list[dict[str, Any]] = [{"text": "Done."}]


def bash(command: str) -> dict[str, Any]:
    return {"tool": "bash", "args": {"command": command, "description": "does it"}}


def write(path: Path, content: str) -> dict[str, Any]:
    return {"tool": "write", "args": {"filePath": str(path), "content": content}}


def turn(*calls: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """A turn of two steps: the calls, then a closing word."""
    return [list(calls), DONE]


async def play(app: RunningApp, session_id: str, *calls: dict[str, Any], text: str = "Do it") -> str:
    """Prompt for a turn that makes these calls; the id of the prompt."""
    app.provider.add(*turn(*calls))
    answer = await app.prompt(session_id, text)
    assert answer["info"].get("error") is None, answer
    parent: str = answer["info"]["parentID"]
    return parent


async def revert(app: RunningApp, session_id: str, message_id: str, *, expect: int = 200, **fields: Any) -> dict[str, Any]:
    body = {"messageID": message_id, **fields}
    session: dict[str, Any] = await app.post(f"/session/{session_id}/revert", body, expect=expect)
    return session


async def unrevert(app: RunningApp, session_id: str) -> dict[str, Any]:
    session: dict[str, Any] = await app.post(f"/session/{session_id}/unrevert")
    return session
