import asyncio

import pytest

from app.runs.housekeeping import repeat


async def test_a_chore_that_fails_each_time_is_tried_each_time_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    async def chore() -> None:
        nonlocal tries
        tries += 1
        if tries == 5:
            raise asyncio.CancelledError
        raise OSError("full")

    async def at_once(seconds: float) -> None:
        assert seconds == 60

    with pytest.raises(asyncio.CancelledError):
        await repeat("trimming", 60, chore, at_once)
    assert tries == 5 and [record.message.split(";")[0] for record in caplog.records] == ["trimming failed"]
