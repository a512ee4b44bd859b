"""One webhook's deliveries: their order, their repetition, what ends them, and which server makes them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from refused_commits import refused_commits
from storage_parts import writing
from webhook_desk import PATIENCE, START, JumpingClock, RememberingSender, WebhookDesk

from app.events.bus.base import NEVER_GIVEN, Event, read_cursor
from app.events.bus.memory import MemoryBus
from app.record.maintenance import check
from app.record.repositories import journal_rows, webhook_rows
from app.schema.event import EventTuiPromptAppend
from app.schema.terminal import PromptText
from app.sessions.replay import KEEP_EVENTS, Replay
from app.transfer.webhooks.dispatcher import WebhookDispatcher
from app.transfer.webhooks.message import MAX_BODY_BYTES
from app.transfer.webhooks.worker import STORE_SKIPPED
from app.users.principal import Role
from app.users.users import User

DAY = 24 * 3600.0


def names(sender: RememberingSender) -> list[str]:
    return [body["data"]["name"] for body in sender.bodies()]


async def test_what_is_not_accepted_is_sent_again_ever_later_and_holds_up_the_rest(desk: WebhookDesk, time: JumpingClock) -> None:
    row, sender = await desk.add(), RememberingSender(lambda attempt, _: 500 if attempt < 12 else 204, time.at)
    await desk.announce("first", "second")
    async with desk.working(row, sender):
        await desk.until_stored(2)
    assert names(sender) == ["first"] * 13 + ["second"]
    assert len(set(sender.ids()[:13])) == 1 != sender.ids()[13]
    waits = [later - earlier for (earlier, _), (later, _) in zip(sender.sent, sender.sent[1:13], strict=False)]
    assert waits == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]
    row = await desk.row()
    assert (row.enabled, row.attempts, row.failed_since, row.retry_at) == (True, 0, None, None)
    logged = await desk.deliveries()
    assert [(each.attempt, each.status) for each in logged] == [*((n, 500) for n in range(1, 13)), (13, 204), (1, 204)]


async def test_a_delivery_is_logged_once_though_the_worker_is_cancelled_while_it_is_stored(desk: WebhookDesk) -> None:
    row, sender = await desk.add(), RememberingSender()
    worker, write, is_stored = desk.worker(row, sender), desk.database.write, asyncio.Event()

    async def slow_write(work: Any) -> Any:
        stored = await write(work)
        is_stored.set()
        await asyncio.sleep(0.05)
        return stored

    await desk.announce("one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.database, "write", slow_write)
        task = asyncio.create_task(worker.run())
        await asyncio.wait_for(is_stored.wait(), PATIENCE)
        task.cancel()
        await asyncio.wait({task})
        await worker.store_progress()
    assert [(each.attempt, each.status) for each in await desk.deliveries()] == [(1, 204)]


async def test_after_a_day_of_failures_it_is_switched_off_with_an_event(desk: WebhookDesk, time: JumpingClock) -> None:
    row, sender = await desk.add(), RememberingSender(lambda *_: 503, time.at)
    await desk.announce("lost", "never sent")
    async with desk.working(row, sender) as task:
        await task
    assert set(names(sender)) == {"lost"}
    assert sender.sent[-1][0] == DAY, "the last attempt is made when the day ends"
    row = await desk.row()
    assert not row.enabled and "for a day" in row.disabled_reason and row.cursor == 0 and row.server == ""
    [(owner, said)] = await desk.announced("webhook.disabled")
    assert owner == "" and said["webhookID"] == "whk_1" and not said["removed"] and "503" in said["reason"]


async def test_410_removes_it_with_an_event(desk: WebhookDesk) -> None:
    row, sender = await desk.add(owner="anna", role="member"), RememberingSender(lambda *_: 410)
    await desk.users.add(User("anna", Role.MEMBER))
    await desk.announce("one", "two", owner="anna")
    async with desk.working(row, sender) as task:
        await task
    assert names(sender) == ["one"] and await desk.row() is None
    [(owner, said)] = await desk.announced("webhook.disabled")
    assert owner == "anna" and said["removed"]


async def test_who_goes_on_later_keeps_to_the_time_of_the_next_attempt(desk: WebhookDesk, time: JumpingClock) -> None:
    began, sender = int(START * 1000), RememberingSender(times=time.at)
    row = await desk.add(attempts=3, failed_since=began, retry_at=began + 35_000)
    await desk.announce("one")
    async with desk.working(row, sender):
        await desk.until_stored(1)
    assert sender.sent[0][0] == 35.0 and (await desk.deliveries())[-1].attempt == 4


async def test_a_time_of_the_next_attempt_that_a_wrong_clock_set_is_not_waited_for(desk: WebhookDesk, time: JumpingClock) -> None:
    wrong, sender = int((START + 1000 * DAY) * 1000), RememberingSender(times=time.at)
    row = await desk.add(attempts=1, failed_since=wrong, retry_at=wrong + 5_000)
    await desk.announce("one")
    async with desk.working(row, sender):
        await desk.until_stored(1)
    assert sender.sent[0][0] <= 3600.0


async def test_what_another_server_delivers_is_left_to_it(desk: WebhookDesk) -> None:
    row, sender = await desk.add(), RememberingSender()
    await desk.announce("one")
    assert await desk.database.write(partial(webhook_rows.claim, webhook_id=row.id, before=row.server, server="server-b"))
    async with desk.working(row, sender) as task:
        await task
    stored = await desk.row()
    assert (stored.server, stored.cursor, stored.enabled) == ("server-b", 0, True) and await desk.deliveries() == []


async def test_events_that_are_gone_from_the_journal_are_told_of(desk: WebhookDesk) -> None:
    row, sender = await desk.add(events='["command.executed"]'), RememberingSender()
    await desk.announce("a", "b", "c", "d")
    await desk.database.write(lambda connection: journal_rows.trim_journal(connection, 2))
    async with desk.working(row, sender):
        await sender.until(3)
    assert [body["type"] for body in sender.bodies()] == ["server.resync", "command.executed", "command.executed"]
    assert [body["data"].get("name") for body in sender.bodies()] == [None, "c", "d"]


async def test_the_journal_keeps_what_a_webhook_is_still_to_be_sent(desk: WebhookDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.sessions.replay.KEEP_EVENTS", 3)
    replay = Replay(desk.database, None, MemoryBus(), 10**9)
    await desk.announce(*map(str, range(10)))
    await desk.add(cursor=4)
    await replay.trim()
    assert (await desk.database.read(journal_rows.journal_span))[0] == 5
    await desk.database.write(partial(webhook_rows.change, webhook_id="whk_1", values={"enabled": False}))
    await replay.trim()
    assert (await desk.database.read(journal_rows.journal_span))[0] == 8
    assert KEEP_EVENTS > 3


async def test_only_wanted_events_are_sent(desk: WebhookDesk) -> None:
    await desk.announce("other", session="ses_2")
    await desk.announce("mine")
    for fields, expected in (
        ({"events": '["session.*"]'}, []),
        ({"events": '["command.executed"]'}, ["other", "mine"]),
        ({"events": '["session.*","command.*"]', "session_id": "ses_1"}, ["mine"]),
        ({"directory": "/elsewhere"}, []),
        ({"directory": "/d"}, ["other", "mine"]),
    ):
        row, sender = await desk.add(**fields), RememberingSender()
        await desk.worker(row, sender)._deliver_new()
        assert names(sender) == expected, fields
        await desk.database.write(lambda connection: webhook_rows.remove(connection, "whk_1"))


async def test_a_member_is_sent_what_is_theirs(desk: WebhookDesk) -> None:
    """And of events of no session what happens in their directories; /d is one that the member may work in."""
    desk.writer.has_owners = True
    await desk.users.add(User("anna", Role.MEMBER))
    row, sender = await desk.add(owner="anna", role="member"), RememberingSender()
    for name, owner in (("hers", "anna"), ("his", "bert"), ("nobody's", ""), ("hers too", "anna")):
        await desk.announce(name, session=f"ses_{owner}", owner=owner)
    await desk.worker(row, sender)._deliver_new()
    assert names(sender) == ["hers", "hers too"]
    cursors = desk.owners._secret.cursors("anna")
    assert [cursors.open(body["id"]).seq for body in sender.bodies()] == [1, 4]
    assert [read_cursor(body["id"]).seq for body in sender.bodies()] == [NEVER_GIVEN] * 2, "the numbers would tell of others"
    assert (await desk.row()).cursor == 4
    for directory in ("/d", "/elsewhere", None):
        payload = b'{"type":"vcs.branch.updated","properties":{"branch":"main"}}'
        await desk.writer.commit(writing(events=[Event("vcs.branch.updated", payload, directory=directory)]))
    await desk.worker(await desk.row(), sender)._deliver_new()
    assert [body.get("directory") for body in sender.bodies()[2:]] == ["/d"]


async def test_an_admin_is_sent_their_own_steering_alone(desk: WebhookDesk) -> None:
    """What others write into their prompts is theirs, whoever sees their sessions."""
    await desk.users.add(User("root", Role.ADMIN))
    row, sender = await desk.add(owner="root"), RememberingSender()
    for owner in ("ann", "", "root"):
        event = Event.of(EventTuiPromptAppend(properties=PromptText(text=f"of {owner}")), "/d").stored(owner, None)
        await desk.writer.commit(writing(events=[event]))
    async with desk.working(row, sender):
        await desk.until_stored(3)
    assert [body["data"] for body in sender.bodies()] == [{"text": "of root"}]


@pytest.mark.parametrize("change", ["removed", "role"])
async def test_it_ends_with_its_owner_or_their_role(desk: WebhookDesk, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while a message is tried again. A new user of the same name begins without."""
    monkeypatch.setattr("app.users.users.FRESH_SECONDS", 0.0)
    await desk.users.add(User("anna", Role.MEMBER))
    row = await desk.add(owner="anna", role="member")
    await desk.announce("one", owner="anna")
    sender = RememberingSender(lambda *_: 500)
    async with desk.working(row, sender) as task:
        await sender.until(2)
        if change == "removed":
            await desk.users.remove("anna")
        else:
            await desk.users.change(User("anna", Role.VIEWER))
        await task
    row, told = await desk.row(), await desk.announced("webhook.disabled")
    if change == "removed":
        assert row is None and told == []
    else:
        assert not row.enabled and row.disabled_reason.startswith("The role") and [owner for owner, _ in told] == ["anna"]


async def test_while_nothing_can_be_stored_nothing_is_sent_twice(desk: WebhookDesk, time: JumpingClock) -> None:
    row, sender = await desk.add(), RememberingSender()
    await desk.announce("one", "two")
    with refused_commits() as commits:
        commits.refuses = True
        async with desk.working(row, sender):
            await sender.until(2)
            began = time.seconds
            while time.seconds < began + 10:  # it waits between its attempts to store
                await asyncio.sleep(0.001)
            commits.refuses = False
            await desk.until_stored(2)
    assert names(sender) == ["one", "two"] and len(await desk.deliveries()) == 2


async def test_the_doctor_names_those_that_fail(desk: WebhookDesk) -> None:
    await desk.add(id="whk_2")
    await desk.add(failed_since=1, attempts=2, retry_at=2)
    [found] = [each for each in check(desk.database.engine) if each.subject == "webhooks"]
    assert found.level == "note" and "whk_1" in found.text and "receiver.example" not in found.text


async def test_a_large_event_is_sent_as_its_ids(desk: WebhookDesk) -> None:
    row, sender = await desk.add(), RememberingSender()
    await desk.announce("large", padding=MAX_BODY_BYTES)
    await desk.worker(row, sender)._deliver_new()
    [body] = sender.bodies()
    assert body["truncated"] is True and body["data"] == {"sessionID": "ses_1"}
    assert len(json.dumps(body)) < 1000


async def test_the_log_of_deliveries_is_bounded_and_the_cursor_stored_also_of_skipped_events(desk: WebhookDesk) -> None:
    row, sender = await desk.add(), RememberingSender()
    await desk.announce(*map(str, range(max(webhook_rows.KEEP_DELIVERIES + 30, STORE_SKIPPED))))
    await desk.worker(row, sender)._deliver_new()
    logged = await desk.deliveries()
    assert len(logged) == webhook_rows.KEEP_DELIVERIES and logged[-1].message_id == sender.ids()[-1]
    row, sender = await desk.add(id="whk_2", events='["session.idle"]'), RememberingSender()
    await desk.worker(row, sender)._deliver_new()
    assert sender.sent == [] and (await desk.row("whk_2")).cursor >= STORE_SKIPPED


async def test_without_the_key_of_its_secret_it_is_switched_off(desk: WebhookDesk) -> None:
    row, sender = await desk.add(), RememberingSender()
    await desk.announce("one")
    async with desk.working(row, sender, secret=None) as task:
        await task
    assert sender.sent == [] and "secret" in (await desk.row()).disabled_reason


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
            self,
            name,
            lambda row: self.desk.worker(row, sender),
            is_shared=True,
            poll_seconds=0.02,
        )
        dispatcher.start()
        try:
            yield dispatcher
        finally:
            await dispatcher.stop()


async def test_of_several_servers_one_delivers(desk: WebhookDesk) -> None:
    fleet = Fleet(desk)
    async with fleet.server("a"), fleet.server("b"), fleet.server("c"):
        await desk.add(server="")
        await desk.announce(*map(str, range(20)))
        await desk.until_stored(20)
        assert sorted(len(sender.sent) for sender in fleet.senders.values()) == [0, 0, 20]
    assert (await desk.row()).server == "", "who stops leaves it to the others"


async def test_of_a_dead_server_another_takes_it_over_and_the_first_can_store_no_more(desk: WebhookDesk) -> None:
    fleet = Fleet(desk)
    await desk.add(server="")
    async with fleet.server("a"):
        await desk.announce("one")
        await desk.until_stored(1)
        async with fleet.server("b"):
            fleet.living.discard("a")
            async with asyncio.timeout(PATIENCE):
                while (await desk.row()).server != "b":  # before that, the first one would still deliver
                    await asyncio.sleep(0.01)
            await desk.announce("two")
            await desk.until_stored(2)
            assert (await desk.row()).server == "b"
            fleet.living.add("a")
            await desk.announce("three")
            await desk.until_stored(3)
            assert [body["data"]["name"] for body in fleet.senders["b"].bodies()] == ["two", "three"]


@pytest.mark.parametrize("ticks", range(6))
async def test_it_stops_at_any_moment_of_its_waking(desk: WebhookDesk, ticks: int) -> None:
    async with asyncio.timeout(60), Fleet(desk).server("a") as dispatcher:
        await asyncio.sleep(0.1)
        dispatcher.changed()
        for _ in range(ticks):
            await asyncio.sleep(0)
