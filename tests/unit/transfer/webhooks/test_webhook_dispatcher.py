"""Which server delivers a webhook: one at a time, another when it dies, none when it is switched off."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from webhook_desk import PATIENCE, RememberingSender, WebhookDesk

from app.events.bus.memory import MemoryBus
from app.record.repositories import webhook_rows
from app.transfer.webhooks.dispatcher import WebhookDispatcher


@dataclass
class Fleet:
    """Servers of one database; `living` is what each believes."""

    desk: WebhookDesk
    living: set[str] = field(default_factory=set)
    senders: dict[str, RememberingSender] = field(default_factory=dict)

    async def all(self) -> list[Any]:
        """As `Replicas` has it."""
        return [SimpleNamespace(id=name, alive=name in self.living) for name in self.senders]

    @asynccontextmanager
    async def server(self, name: str) -> AsyncIterator[WebhookDispatcher]:
        self.senders[name] = sender = RememberingSender()
        self.living.add(name)
        dispatcher = WebhookDispatcher(
            self.desk.database,
            MemoryBus(),
            self,  # type: ignore[arg-type]
            name,
            lambda row: self.desk.worker(row, sender),
            is_shared=True,
            look_seconds=0.02,
        )
        dispatcher.start()
        try:
            yield dispatcher
        finally:
            await dispatcher.stop()

    def counts(self) -> list[int]:
        return [len(sender.sent) for sender in self.senders.values()]

    async def until_claimed_by(self, name: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while (await self.desk.row()).server != name:
                await asyncio.sleep(0.01)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                await asyncio.sleep(0.01)


async def test_of_several_servers_one_delivers(desk: WebhookDesk) -> None:
    fleet = Fleet(desk)
    async with fleet.server("a"), fleet.server("b"), fleet.server("c"):
        await desk.add(server="")
        await desk.announce(*map(str, range(20)))
        await desk.until_stored(20)
        assert sorted(fleet.counts()) == [0, 0, 20]
    assert (await desk.row()).server == "", "who stops leaves it to the others"


async def test_of_a_dead_server_another_takes_it_over_and_the_first_can_store_no_more(desk: WebhookDesk) -> None:
    fleet = Fleet(desk)
    await desk.add(server="")
    async with fleet.server("a"):
        await desk.announce("one")
        await desk.until_stored(1)
        async with fleet.server("b"):
            fleet.living.discard("a")
            await fleet.until_claimed_by("b")  # before that, the first one would still deliver
            await desk.announce("two")
            await fleet.until(lambda: len(fleet.senders["b"].sent) == 1)
            await desk.until_stored(2)
            assert (await desk.row()).server == "b"
            fleet.living.add("a")
            await desk.announce("three")
            await desk.until_stored(3)
            assert [body["data"]["name"] for body in fleet.senders["b"].bodies()] == ["two", "three"]


async def test_a_change_begins_its_delivery_anew_and_switching_off_ends_it(desk: WebhookDesk) -> None:
    fleet = Fleet(desk)
    await desk.add(server="")
    async with fleet.server("a") as dispatcher:
        await desk.announce("one")
        await desk.until_stored(1)
        await desk.database.write(partial(webhook_rows.change, webhook_id="whk_1", values={"events": '["session.idle"]'}))
        [(before, _)] = dispatcher._workers.values()
        await fleet.until(lambda: [worker for worker, _ in dispatcher._workers.values()] not in ([before], []))
        await desk.announce("unwanted")
        await desk.database.write(partial(webhook_rows.change, webhook_id="whk_1", values={"enabled": False}))
        await fleet.until(lambda: not dispatcher._workers)
        assert fleet.counts() == [1]


async def test_one_that_was_removed_is_let_go_of(desk: WebhookDesk) -> None:
    fleet = Fleet(desk)
    await desk.add(server="")
    async with fleet.server("a") as dispatcher:
        await fleet.until(lambda: bool(dispatcher._workers))
        await desk.database.write(partial(webhook_rows.remove, webhook_id="whk_1"))
        await fleet.until(lambda: not dispatcher._workers)


@pytest.mark.parametrize("ticks", range(6))
async def test_it_stops_at_any_moment_of_its_waking(desk: WebhookDesk, ticks: int) -> None:
    async with asyncio.timeout(60), Fleet(desk).server("a") as dispatcher:
        await asyncio.sleep(0.1)
        dispatcher.changed()
        for _ in range(ticks):
            await asyncio.sleep(0)
