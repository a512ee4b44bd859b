"""Changes of one session at once lose nothing, though nothing is locked: what decides is read in the transaction that writes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from event_fold import EventFold, KnownSession
from session_parts import DIRECTORY, PLACE, Sessions, assistant, more_sessions, putting, session, text_part, user
from storage_parts import open_storage, put_lease

from app.record.tables import EVENT, SESSION, SHARE
from app.schema.errors import SessionBusy
from app.schema.part import StepFinishPart, Tokens
from app.schema.permission import Rule
from app.schema.session import CreateInput, UpdateInput, UpdateTime
from app.sessions.rows import message_row
from app.sessions.session_tx import SessionTx
from app.sessions.share import Shares

BASE = "https://here.example"
KINDS = ["rename", "restrict", "archive", "pin", "share", "unshare", "prompt", "switch", "part", "new part", "step", "remove"]
CHANGES = [(kind, number) for number, kind in enumerate(KINDS * 3)]
"""Each leaves something behind that is told from what all others do."""
PARTS = len(CHANGES)


def step_part(number: int) -> StepFinishPart:
    ids = {"id": f"prt_step{number}", "session_id": "ses_1", "message_id": "msg_answer"}
    return StepFinishPart(**ids, reason="stop", cost=1.0, tokens=Tokens(input=1))


def making(on: Sessions) -> dict[str, Callable[[int], Awaitable[object]]]:
    def update(**fields: Any) -> Awaitable[object]:
        return on.service.update(PLACE, "ses_1", UpdateInput(**fields))

    def prompt(number: int) -> Awaitable[object]:
        """As a client's, which touches its session."""
        row = message_row(user(f"msg_{number}"), waits=True)
        parts = putting(text_part(f"prt_said{number}", "said", f"msg_{number}"))

        def put(tx: SessionTx) -> None:
            tx.put_message(row)
            parts(tx)
            tx.edit(lambda session: session)

        return on.store.write("ses_1", DIRECTORY, put)

    def text(part_id: str, said: str) -> Awaitable[object]:
        return on.service.put_part(PLACE, text_part(part_id, said, "msg_answer"))

    return {
        "rename": lambda number: update(title=f"T{number}"),
        "restrict": lambda number: update(permission=[Rule(permission="bash", pattern=f"{number}", action="deny")]),
        "archive": lambda number: update(time=UpdateTime(archived=1000 + number)),
        "pin": lambda number: update(pinned=True),
        "share": lambda number: Shares(on.store).share(PLACE, "ses_1", BASE),
        "unshare": lambda number: Shares(on.store).unshare(PLACE, "ses_1"),
        "prompt": prompt,
        "switch": lambda number: on.service.switch_agent(PLACE, "ses_1", f"agent{number}"),
        "part": lambda number: text(f"prt_{number}", f"again {number}"),
        "new part": lambda number: text(f"prt_new{number}", "new"),
        "step": lambda number: on.service.put_part(PLACE, step_part(number)),
        "remove": lambda number: on.service.remove_part(PLACE, "ses_1", "msg_answer", f"prt_{number}"),
    }


async def check(sessions: Sessions) -> None:
    """That what stands is what these changes leave in whatever order, and that a listener knows it who has heard every event."""
    numbers = {kind: [number for made, number in CHANGES if made == kind] for kind in KINDS}
    stored, read = await sessions.store.session("ses_1"), await sessions.read()
    assert stored.title in {f"T{number}" for number in numbers["rename"]} and stored.pinned
    assert stored.agent in {f"agent{number}" for number in numbers["switch"]}
    assert stored.time.archived in {1000 + number for number in numbers["archive"]}
    assert sorted(each.pattern for each in stored.permission or []) == sorted(str(n) for n in numbers["restrict"])
    assert stored.cost == len(numbers["step"])
    texts = {part["id"]: part.get("text") for message in read for part in message["parts"]}
    assert texts == {
        **{f"prt_{number}": "as it was" for number in range(PARTS) if number not in numbers["remove"]},
        **{f"prt_{number}": f"again {number}" for number in numbers["part"]},
        **{f"prt_new{number}": "new" for number in numbers["new part"]},
        **{f"prt_said{number}": "said" for number in numbers["prompt"]},
        **{f"prt_step{number}": None for number in numbers["step"]},
    }
    shares = [f"{BASE}/s/{row.id}" for row in await sessions.storage.rows(SHARE)]
    assert shares == ([stored.share.url] if stored.share else [])
    assert [row.updated for row in await sessions.storage.rows(SESSION)] == [stored.time.updated]
    fold = EventFold()
    known = fold.sessions["ses_1"] = KnownSession()
    for row in sorted(await sessions.storage.rows(EVENT), key=lambda row: row.seq):
        fold.apply(orjson.loads(row.payload))
    assert fold.wrong == [] and known.info == orjson.loads(await sessions.store.session_json("ses_1"))
    assert {each: known.messages[each].as_read() for each in known.messages} == {each["info"]["id"]: each for each in read}


@pytest.mark.parametrize("count", [1, 2], ids=["one server", "two servers"])
async def test_changes_of_every_kind_at_once_lose_nothing(sessions: Sessions, tmp_path: Path, count: int) -> None:
    """By turns on each of the servers."""
    parts = [text_part(f"prt_{number}", "as it was", "msg_answer") for number in range(PARTS)]
    await sessions.put(assistant("msg_answer", "msg_0"), *parts)
    servers = [sessions, *(more_sessions(open_storage(tmp_path / "opensession.db")) for _ in range(count - 1))]
    try:
        makers = [making(server) for server in servers]
        await asyncio.gather(*(makers[place % count][kind](number) for place, (kind, number) in enumerate(CHANGES)))
        await check(sessions)
    finally:
        for server in servers[1:]:
            await server.close()


DENY = Rule(permission="bash", pattern="*", action="deny")


@pytest.mark.parametrize("busy", ["ses_parent", "ses_child", None])
async def test_a_family_is_given_away_as_one_unless_another_server_runs_one_of_it(sessions: Sessions, busy: str | None) -> None:
    await sessions.put(session("ses_parent", owner="anna"))
    await sessions.put(session("ses_child", parent_id="ses_parent", owner="anna"))
    sessions.storage.bus.published.clear()
    if busy is not None:
        await sessions.database.write(lambda connection: put_lease(connection, busy, "another server", 1))
    family, writes = ("ses_parent", "ses_child"), sessions.database.writes
    giving = sessions.service.transfer(PLACE, "ses_parent", "bert")
    if busy is not None:
        with pytest.raises(SessionBusy):
            await giving
        kinds: tuple[str, ...] = ()
    else:
        await giving
        kinds = ("session.deleted", "session.created", "session.updated")
        assert sessions.database.writes == writes + 1
    assert [(await sessions.store.session(each)).owner for each in family] == ["anna" if busy else "bert"] * 2
    assert [sessions.storage.publisher.owner(each) for each in family] == ["anna" if busy else "bert"] * 2
    told = [(event["type"], event["properties"]["info"]["id"]) for event in sessions.announced]
    assert told == [(kind, each) for each in family for kind in kinds]


async def test_a_family_that_grows_is_given_away_twice_at_once(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one sees a session that the first does not hold yet."""
    await sessions.put(session("ses_parent"), session("ses_child", parent_id="ses_parent"))
    read, giving, reads = sessions.store.session_tree, list[asyncio.Task[None]](), 0

    async def growing(session_id: str) -> Any:
        nonlocal reads
        reads += 1
        if reads == 2:  # of the first one, that looks again
            await sessions.put(session("ses_grandchild", parent_id="ses_child"))
            giving.append(asyncio.create_task(sessions.service.transfer(PLACE, session_id, "bert")))
            await asyncio.sleep(0.1)
        return await read(session_id)

    monkeypatch.setattr(sessions.store, "session_tree", growing)
    async with asyncio.timeout(10):
        await sessions.service.transfer(PLACE, "ses_parent", "anna")
        await giving[0]
    assert {(await sessions.store.session(each)).owner for each in ("ses_parent", "ses_child", "ses_grandchild")} == {"bert"}


@pytest.mark.parametrize("is_made_first", [True, False])
async def test_a_child_that_is_made_while_its_parent_is_restricted_loses_neither(sessions: Sessions, is_made_first: bool) -> None:
    """Nor what it is renamed to meanwhile."""
    sessions.database.gate.clear()
    making = sessions.service.create(PLACE, CreateInput(parent_id="ses_1"))
    restricting = sessions.service.update(PLACE, "ses_1", UpdateInput(permission=[DENY]))
    tasks = [asyncio.create_task(each) for each in ((making, restricting) if is_made_first else (restricting, making))]
    await asyncio.sleep(0)
    sessions.database.gate.set()
    child = (await tasks[0 if is_made_first else 1]).id
    await asyncio.gather(*tasks, sessions.service.update(PLACE, child, UpdateInput(title="Renamed")))
    found = await sessions.store.session(child)
    assert (found.title, found.permission) == ("Renamed", [DENY])
