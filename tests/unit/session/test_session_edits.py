"""What is written beside a session's turns meets what people remove."""

import asyncio

from session_parts import PLACE, TITLE_USAGE, Sessions, user

from app.session.summary import Summaries


async def test_a_late_title_does_not_bring_a_removed_message_back(sessions: Sessions) -> None:
    for number in range(30):
        await sessions.put(user(f"msg_{number}"))
        await asyncio.gather(
            Summaries(sessions.store).set_title(PLACE, "ses_1", f"msg_{number}", "Late", TITLE_USAGE),
            sessions.service.remove_message(PLACE, "ses_1", f"msg_{number}"),
            return_exceptions=True,
        )
        assert await sessions.read() == []
