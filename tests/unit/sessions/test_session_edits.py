"""What is written beside a session's turns meets what people remove."""

import asyncio
from functools import partial

import pytest
from session_parts import PLACE, Sessions, session
from storage_parts import put_lease

from app.schema.errors import SessionBusy
from app.schema.permission import Rule
from app.schema.session import CreateInput, UpdateInput

DENY = Rule(permission="bash", pattern="*", action="deny")


async def put_family(sessions: Sessions) -> None:
    """`ses_parent` and its child `ses_child`, anna's."""
    await sessions.put(session("ses_parent", owner="anna"))
    await sessions.put(session("ses_child", parent_id="ses_parent", owner="anna"))
    sessions.storage.bus.published.clear()


async def owners(sessions: Sessions) -> list[str | None]:
    return [(await sessions.store.session(each)).owner for each in ("ses_parent", "ses_child")]


@pytest.mark.parametrize("busy", ["ses_parent", "ses_child"])
async def test_a_family_of_which_another_server_runs_one_stays_with_its_owner(sessions: Sessions, busy: str) -> None:
    await put_family(sessions)
    await sessions.database.write(lambda connection: put_lease(connection, busy, "another server", 1))
    with pytest.raises(SessionBusy):
        await sessions.service.transfer(PLACE, "ses_parent", "bert")
    assert await owners(sessions) == ["anna", "anna"] and sessions.announced == []


async def test_a_family_is_given_away_as_one(sessions: Sessions) -> None:
    await put_family(sessions)
    writes = sessions.database.writes
    await sessions.service.transfer(PLACE, "ses_parent", "bert")
    assert await owners(sessions) == ["bert", "bert"] and sessions.database.writes == writes + 1
    told = [(event["type"], event["properties"]["info"]["id"]) for event in sessions.announced]
    kinds = ("session.deleted", "session.created", "session.updated")
    assert told == [(kind, each) for each in ("ses_parent", "ses_child") for kind in kinds]
    assert [sessions.storage.publisher.owner(each) for each in ("ses_parent", "ses_child")] == ["bert", "bert"]


@pytest.mark.parametrize("is_made_first", [True, False])
async def test_a_child_that_is_made_while_its_parent_is_restricted_loses_neither(sessions: Sessions, is_made_first: bool) -> None:
    """Nor what it is renamed to meanwhile."""
    sessions.database.gate.clear()
    restrict = partial(sessions.service.update, PLACE, "ses_1", UpdateInput(permission=[DENY]))
    if is_made_first:
        making = asyncio.create_task(sessions.service.create(PLACE, CreateInput(parent_id="ses_1")))
        restricting = asyncio.create_task(restrict())
    else:
        restricting = asyncio.create_task(restrict())
        making = asyncio.create_task(sessions.service.create(PLACE, CreateInput(parent_id="ses_1")))
    await asyncio.sleep(0)
    sessions.database.gate.set()
    child = (await making).id
    await asyncio.gather(restricting, sessions.service.update(PLACE, child, UpdateInput(title="Renamed")))
    found = await sessions.store.session(child)
    assert (found.title, found.permission) == ("Renamed", [DENY])
