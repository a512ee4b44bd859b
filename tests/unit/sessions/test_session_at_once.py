"""Changes of one session at once lose nothing, though nothing is locked: what decides is read in the transaction that writes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from event_fold import EventFold, KnownSession
from session_parts import DIRECTORY, PLACE, Sessions, assistant, more_sessions, putting, text_part, user
from storage_parts import open_storage

from app.record.tables import EVENT, SESSION, SHARE
from app.schema.part import StepFinishPart, Tokens
from app.schema.permission import Rule
from app.schema.session import Session, UpdateInput, UpdateTime
from app.sessions.rows import message_row
from app.sessions.session_tx import SessionTx
from app.sessions.share import Shares

BASE = "https://here.example"
KINDS = ["rename", "restrict", "archive", "pin", "share", "unshare", "prompt", "switch", "part", "new part", "step", "remove"]
PARTS = 40
"""So many steps at once have each a part of their own to change and one to remove."""


def rule(number: int) -> Rule:
    return Rule(permission="bash", pattern=f"{number}", action="deny")


def step_part(number: int) -> StepFinishPart:
    ids = {"id": f"prt_step{number}", "session_id": "ses_1", "message_id": "msg_answer"}
    return StepFinishPart(**ids, reason="stop", cost=1.0, tokens=Tokens(input=1))


class Changes:
    """One kind of change each, of a number of its own: what it leaves behind is told from all others."""

    def __init__(self, sessions: Sessions) -> None:
        self._on = sessions
        self._shares = Shares(sessions.store)

    async def make(self, kind: str, number: int) -> None:
        change: Callable[[int], Awaitable[object]] = getattr(self, "_" + kind.replace(" ", "_"))
        await change(number)

    async def _rename(self, number: int) -> None:
        await self._update(title=f"T{number}")

    async def _restrict(self, number: int) -> None:
        await self._update(permission=[rule(number)])

    async def _archive(self, number: int) -> None:
        await self._update(time=UpdateTime(archived=1000 + number))

    async def _pin(self, _number: int) -> None:
        await self._update(pinned=True)

    async def _update(self, **fields: Any) -> None:
        await self._on.service.update(PLACE, "ses_1", UpdateInput(**fields))

    async def _share(self, _number: int) -> None:
        await self._shares.share(PLACE, "ses_1", BASE)

    async def _unshare(self, _number: int) -> None:
        await self._shares.unshare(PLACE, "ses_1")

    async def _prompt(self, number: int) -> None:
        """As a client's, which touches its session."""
        row = message_row(user(f"msg_{number}"), waits=True)
        parts = putting(text_part(f"prt_said{number}", "said", f"msg_{number}"))

        def prompt(tx: SessionTx) -> None:
            tx.put_message(row)
            parts(tx)
            tx.edit(lambda session: session)

        await self._on.store.write("ses_1", DIRECTORY, prompt)

    async def _switch(self, number: int) -> None:
        await self._on.service.switch_agent(PLACE, "ses_1", f"agent{number}")

    async def _part(self, number: int) -> None:
        await self._on.service.put_part(PLACE, text_part(f"prt_{number}", f"again {number}", "msg_answer"))

    async def _new_part(self, number: int) -> None:
        await self._on.service.put_part(PLACE, text_part(f"prt_new{number}", "new", "msg_answer"))

    async def _step(self, number: int) -> None:
        await self._on.service.put_part(PLACE, step_part(number))

    async def _remove(self, number: int) -> None:
        await self._on.service.remove_part(PLACE, "ses_1", "msg_answer", f"prt_{number}")


class Expected:
    """What stands, whatever the order in which these changes of different numbers are made."""

    def __init__(self, changes: list[tuple[str, int]]) -> None:
        self.numbers = {kind: [number for made, number in changes if made == kind] for kind in KINDS}

    def check_session(self, found: Session) -> None:
        assert found.title in {f"T{number}" for number in self.numbers["rename"]}
        assert found.agent in {f"agent{number}" for number in self.numbers["switch"]}
        assert found.time.archived in {1000 + number for number in self.numbers["archive"]}
        assert found.pinned
        assert sorted(each.pattern for each in found.permission or []) == sorted(str(n) for n in self.numbers["restrict"])
        assert found.cost == len(self.numbers["step"])

    def check_messages(self, found: list[dict[str, Any]]) -> None:
        texts = {part["id"]: part.get("text") for message in found for part in message["parts"]}
        expected = {f"prt_{number}": "as it was" for number in range(PARTS)}
        expected |= {f"prt_{number}": f"again {number}" for number in self.numbers["part"]}
        expected |= {f"prt_new{number}": "new" for number in self.numbers["new part"]}
        expected |= {f"prt_said{number}": "said" for number in self.numbers["prompt"]}
        for number in self.numbers["remove"]:
            del expected[f"prt_{number}"]
        assert texts == {**expected, **{f"prt_step{number}": None for number in self.numbers["step"]}}
        prompts = {message["info"]["id"] for message in found if message["info"]["role"] == "user"}
        assert prompts == {f"msg_{number}" for number in self.numbers["prompt"]}


async def heard(sessions: Sessions) -> KnownSession:
    """What a listener knows that has heard every event, of all servers."""
    fold = EventFold()
    fold.sessions["ses_1"] = KnownSession()
    for row in sorted(await sessions.storage.rows(EVENT), key=lambda row: row.seq):
        fold.apply(orjson.loads(row.payload))
    assert fold.wrong == []
    return fold.sessions["ses_1"]


async def check(sessions: Sessions, changes: list[tuple[str, int]]) -> None:
    expected, stored, read = Expected(changes), await sessions.store.session("ses_1"), await sessions.read()
    expected.check_session(stored)
    expected.check_messages(read)
    known = await heard(sessions)
    assert known.info == orjson.loads(await sessions.store.session_json("ses_1"))
    assert {message_id: message.as_read() for message_id, message in known.messages.items()} == {
        message["info"]["id"]: message for message in read
    }
    shares = [row.id for row in await sessions.storage.rows(SHARE)]
    assert [f"{BASE}/s/{share_id}" for share_id in shares] == ([stored.share.url] if stored.share else [])
    assert [row.updated for row in await sessions.storage.rows(SESSION)] == [stored.time.updated]


@pytest.mark.parametrize("count", [1, 2], ids=["one server", "two servers"])
async def test_changes_of_every_kind_at_once_lose_nothing(sessions: Sessions, tmp_path: Path, count: int) -> None:
    """By turns on each of the servers."""
    parts = [text_part(f"prt_{number}", "as it was", "msg_answer") for number in range(PARTS)]
    await sessions.put(assistant("msg_answer", "msg_0"), *parts)
    changes = [(kind, number) for number, kind in enumerate(KINDS * 3)]
    servers = [sessions, *(more_sessions(open_storage(tmp_path / "opensession.db")) for _ in range(count - 1))]
    try:
        makers = [Changes(server) for server in servers]
        await asyncio.gather(*(makers[place % count].make(*change) for place, change in enumerate(changes)))
        await check(sessions, changes)
    finally:
        for server in servers[1:]:
            await server.close()
