"""A client that lost its connection comes back with the last id it saw: nothing is lost, nothing comes twice."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from session_parts import putting
from sse_reader import EventReader, Received
from turns import say, talking, until

from app.events.bus.base import EventId
from app.providers.base import BlockDelta, BlockEnd, BlockStart, Finish, ModelRequest, StreamEvent, StreamStart, Usage
from app.providers.scripted import ScriptedProvider
from app.record.repositories import journal_rows
from app.record.writer import Writer
from app.schema.part import TextPart
from app.sessions.live_parts import LivePart


class Halting(ScriptedProvider):
    """Stops in the middle of a text until the event is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        for event in (StreamStart(), BlockStart("text", "1"), BlockDelta("text", "1", "Hello ")):
            yield event
        await self.gate.wait()
        for event in (BlockDelta("text", "1", "there."), BlockEnd("text", "1"), Finish("stop", Usage(input=1, output=1))):
            yield event


class Picture:
    """What a client knows from the events alone: every part's text, by gains or by whole parts."""

    def __init__(self, *readers: EventReader) -> None:
        self.texts: dict[str, str] = {}
        self.ids: list[int] = []
        self.seen: list[str] = []
        for events in readers:
            self.take(events)

    def take(self, events: EventReader) -> None:
        for event in events.seen:
            if event.id is not None:
                self.ids.append(event.id)
            self.seen.append(event.type)
            properties = event.properties
            if event.type == "message.part.delta":
                self.texts[properties["partID"]] = self.texts.get(properties["partID"], "") + properties["delta"]
            if event.type == "message.part.updated" and "text" in properties["part"]:
                self.texts[properties["part"]["id"]] = properties["part"]["text"]


@asynccontextmanager
async def streaming(tmp_path: Path) -> AsyncIterator[tuple[RunningApp, EventReader, asyncio.Event]]:
    """An answer that has said `Hello ` and waits for the event to say `there.`; what a client heard of it."""
    provider = Halting()
    async with talking(tmp_path, provider=provider, title="T") as (app, session):
        async with app.events(ids="true") as first:
            await app.prompt_async(session, "hi")
            await first.until(says("Hello "))
            yield app, first, provider.gate
            provider.gate.set()
            await first.until("session.idle")


def says(text: str) -> Callable[[Received], bool]:
    """Whether an event shows a part that has said this much."""
    return lambda event: text in json.dumps(event.properties)


async def test_what_was_missed_is_replayed_in_order_and_then_goes_on(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("one")], [say("two")]], title="T") as (app, session):
        async with app.events(ids="true") as first:
            await app.prompt(session, "1")
            await first.until("session.idle")
        numbered = [(event.id, event.data) for event in first.seen if event.id is not None]
        for cut in (0, 3, len(numbered) - 2):
            async with app.events(cursor=numbered[cut][0]) as again:
                await again.until("session.idle")
            assert again.types[0] == "server.connected"
            assert [(event.id, event.data) for event in again.seen[1:] if event.id is not None] == numbered[cut + 1 :]
        last = numbered[-1][0]
        async with app.events(cursor=last) as live:
            await app.prompt(session, "2")
            await live.until("session.idle")
        assert next(event.id for event in live.seen if event.id is not None) == last + 1


@pytest.mark.parametrize("query", [{}, {"parts": "delta"}])
async def test_a_part_that_streamed_meanwhile_is_sent_as_it_stands_and_then_goes_on(
    tmp_path: Path, query: dict[str, str]
) -> None:
    async with streaming(tmp_path) as (app, first, gate):
        missed = Picture(first)
        async with app.events(cursor=missed.ids[-1], **query) as again, app.events(parts="delta") as new, app.events() as late:
            standing = await again.until(says("Hello "))
            assert standing.properties["part"]["text"] == "Hello " and standing.id is None
            await new.until(says("Hello "))
            gate.set()
            for events in (again, new, late):
                await events.until("session.idle")
        missed.take(again)
        for picture in (missed, Picture(new)):
            assert "Hello there." in picture.texts.values()
        assert missed.ids == sorted(set(missed.ids))
        # A client that asks for no ids begins anew.
        assert late.seen[1].properties["delta"] == "there." and late.seen[1].properties["part"]["text"] == "Hello there."


class Announcing:
    """Changes are committed as ever; while the gate is closed what is stored is not announced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate, self.committed = asyncio.Event(), asyncio.Event()
        self.gate.set()
        store = Writer._store

        async def held(writer: Writer, waiting: Any) -> Any:
            outcomes = await store(writer, waiting)
            self.committed.set()
            await self.gate.wait()
            return outcomes

        monkeypatch.setattr(Writer, "_store", held)

    def close(self) -> None:
        self.gate.clear()
        self.committed.clear()


@pytest.fixture
def announcing(monkeypatch: pytest.MonkeyPatch) -> Announcing:
    return Announcing(monkeypatch)


def say_at_once(app: RunningApp, session_id: str, message_id: str) -> None:
    """A part's first text and its end go to the disk together, as those of a fast model do."""
    store, directory = app.services.store, str(app.directory)
    part = TextPart(id="prt_1", session_id=session_id, message_id=message_id, text="")
    store.live.append(LivePart(part, directory), "Hello ")
    ended = part.model_copy(update={"text": "Hello"})
    store.post_parts(session_id, directory, putting(ended), parts=[ended])


@pytest.mark.parametrize("parts", ["full", "delta"])
async def test_a_client_that_comes_between_a_commit_and_its_announcement_hears_it_once(
    tmp_path: Path, announcing: Announcing, parts: str
) -> None:
    async with talking(tmp_path, title="T") as (app, session_id):
        asked = await app.prompt(session_id, "hi", noReply=True)

        async def listen() -> Picture:
            async with app.events(cursor=1, parts=parts) as events:
                await events.until(says("renamed"))
            return Picture(events)

        announcing.close()
        say_at_once(app, session_id, asked["info"]["id"])
        await announcing.committed.wait()
        listening = asyncio.create_task(listen())
        await until(lambda: app.services.bus.listeners() == 1, "the listener")
        announcing.gate.set()
        await app.call("PATCH", f"/session/{session_id}", {"title": "renamed"})
        picture = await listening
    assert picture.texts["prt_1"] == "Hello"
    assert len(picture.ids) == len(set(picture.ids))


async def test_a_new_client_is_sent_whatever_is_announced_after_it_began_to_listen(
    tmp_path: Path, announcing: Announcing
) -> None:
    """`opencode run` prompts while it is greeted."""
    async with talking(tmp_path) as (app, session_id):
        announcing.close()
        renaming = asyncio.create_task(app.call("PATCH", f"/session/{session_id}", {"title": "renamed"}))
        await announcing.committed.wait()
        async with app.events(ids="true") as new:
            announcing.gate.set()
            await new.until(says("renamed"))
        await renaming


@pytest.mark.parametrize("parts", ["full", "delta"])
async def test_a_client_that_is_cut_off_again_and_again_loses_and_doubles_nothing(tmp_path: Path, parts: str) -> None:
    text = " ".join(f"word{number}" for number in range(400))
    turn = [{"reasoning": text, "chunks": 60, "delay": 0.001}, say(text, chunks=120, delay=0.001)]
    async with talking(tmp_path, turns=[turn], title="T") as (app, session):
        async with app.events(parts=parts, ids="true") as events:
            await app.prompt_async(session, "hi")
            await events.until("message.updated")
        picture, connections = Picture(events), 0
        while "session.idle" not in picture.seen:
            connections += 1
            async with app.events(cursor=picture.ids[-1], parts=parts) as events:
                enough = 2 + connections % 4
                await events.when(lambda e=events, n=enough: len(e.seen) >= n or "session.idle" in e.types)
            picture.take(events)
        stored = await app.messages(session)
    assert connections > 5
    assert picture.ids == list(range(picture.ids[0], picture.ids[-1] + 1))
    assert picture.texts == {part["id"]: part["text"] for message in stored for part in message["parts"] if "text" in part}


NEVER_GIVEN = ["1", "999999", "0x10", "nonsense", "-1", "１２", "evt_", "evt_1", "9" * 30]


async def test_a_cursor_that_was_never_given_or_is_forgotten_is_answered_with_a_resync(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        for _ in range(3):
            await app.create_session()
        newest = await app.services.replay.head()
        await app.services.store._database.write(lambda c: journal_rows.trim_journal(c, newest - 2))
        of_newest = EventId(newest).wire(None).decode()
        for cursor in (*NEVER_GIVEN, f"{of_newest}x", f"{of_newest[:-1]}Z"):
            async with app.client.stream("GET", "/event", headers={b"last-event-id": cursor.encode()}) as response:
                events = EventReader(response)
                resync = await events.until("server.resync")
                await events.close()
            assert events.types == ["server.connected", "server.resync"] and resync.id == newest, cursor
        async with app.events(cursor=resync.id) as again:
            await app.create_session()
            await again.until("session.updated")
        assert again.types == ["server.connected", "session.created", "session.updated"], "which can be resumed from"


async def test_a_server_that_stops_ends_a_long_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_rows, "PAGE_BYTES", 1)
    async with running_app(tmp_path) as app:
        for _ in range(3):
            await app.create_session()
        async with app.client.stream("GET", "/event", headers={"last-event-id": "1"}) as response:
            lines = response.aiter_lines()
            assert "server.connected" in await anext(lines)
            app.services.bus.close()
            rest = [line async for line in lines if line.startswith("id:")]
        assert len(rest) < 6


async def test_a_replay_is_of_its_directory_alone_and_goes_back_before_a_restart(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        inside = app.directory / "inside"
        inside.mkdir()
        async with app.events("/global/event", ids="true") as watching:
            first = await watching.until("server.connected")
            await app.create_session(title="here")
            await app.post("/session", {"title": "there"}, params={"directory": str(inside)})
            await watching.until("session.updated", count=2)
    async with running_app(tmp_path) as app:
        async with app.events(cursor=first.id, directory=str(inside)) as events:
            await events.until("session.updated")
            await app.post("/session", {"title": "after"}, params={"directory": str(inside)})
            await events.until("session.updated", count=2)
        assert [event.properties["info"]["title"] for event in events.of_type("session.created")] == ["there", "after"]
        ids = [event.id for event in events.seen if event.id is not None]
        assert ids == sorted(set(ids))
        told = [event.id for event in watching.seen[1:] if event.id is not None]
        async with app.events("/global/event", cursor=first.id) as everywhere:
            await everywhere.until(lambda event: event.id == told[-1])
        assert [event.id for event in everywhere.seen if event.id is not None][: len(told)] == told


@pytest.mark.parametrize("path", ["/event", "/global/event"])
async def test_whichever_event_a_client_remembers_it_resumes_behind_it(tmp_path: Path, path: str) -> None:
    """Of a stream without `id:` lines, by the id that the JSON of each event has: a delta's and the greeting's too."""
    turn = [{"reasoning": "Hm.", "chunks": 2}, say("Hello there, all of you.", chunks=3, delay=0.02)]
    async with talking(tmp_path, turns=[turn], title="T") as (app, session):
        async with app.events(path) as first:
            await app.prompt(session, "1")
            await first.until("session.idle")
            await app.services.store.barrier()
        ids = [event.event_id for event in first.seen]
        assert sorted(set(ids)) == ids and all(event.id is None for event in first.seen)
        stored = [event for event in first.seen if event.event_id.endswith("0" * 13)]
        assert {"session.idle", "message.part.updated"} <= {event.type for event in stored} and len(stored) < len(ids)
        for remembered in first.seen[:-1]:
            async with app.events(path, lastEventID=remembered.event_id) as again:
                await again.until("session.idle")
            due = [event.data for event in stored if event.event_id > remembered.event_id]
            assert [event.data for event in again.seen if event.id is not None][: len(due)] == due
            assert again.types[0] == "server.connected" and "server.resync" not in again.types
