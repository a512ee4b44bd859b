"""How often the room of a project is looked at; what is answered when there is none, tests/flows/test_limits.py says."""

import asyncio

import pytest
from session_parts import Sessions

from app.session.usage import ProjectQuota


@pytest.mark.parametrize(("most", "looks"), [(2**40, 1), (2**19, 5)])
async def test_prompts_that_come_at_once_look_once_at_a_roomy_database(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, most: int, looks: int
) -> None:
    database, asked = sessions.storage.database, 0
    quota, read = ProjectQuota(database, most), database.read

    async def counted(query: object) -> object:
        nonlocal asked
        asked += 1
        return await read(query)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "read", counted)
    await asyncio.gather(*(quota.require_room("p") for _ in range(5)))
    assert asked == looks
