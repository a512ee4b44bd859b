"""What the second API reads of a session that streams."""

from collections.abc import Callable
from typing import Any

import pytest
from session_parts import Sessions, assistant, text_part, user

from app.record.repositories.session_rows import PageBeside
from app.schema.message import AssistantTime
from app.sessions.timeline.service import Timeline


@pytest.mark.parametrize("read_of", ["page", "message", "context"])
async def test_a_text_that_ends_while_it_is_read_is_shown_with_its_end(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, read_of: str
) -> None:
    await sessions.put(user("msg_1"), assistant("msg_2", "msg_1", time=AssistantTime(created=1)))
    sessions.stream("prt_1", "Half", "msg_2")
    await sessions.store.barrier()
    read, ends = sessions.database.read, iter([True])

    async def slow(query: Callable[[Any], Any]) -> Any:
        if next(ends, False):
            await sessions.put(text_part("prt_1", "Half and the rest", "msg_2"))
        return await read(query)

    monkeypatch.setattr(sessions.database, "read", slow)
    timeline = Timeline(sessions.database, sessions.store)
    found = {
        "page": lambda: timeline.page("ses_1", PageBeside(limit=10, newest_first=True)),
        "message": lambda: timeline.message("ses_1", "msg_2"),
        "context": lambda: timeline.context("ses_1"),
    }[read_of]
    assert "Half and the rest" in str(await found())
