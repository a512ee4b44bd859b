"""A client that lost its connection comes back with the last id it saw: nothing is lost, nothing comes twice."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from session_parts import putting
from sse_reader import EventReader, Received
from turns import talking, until

from app.providers.base import Finish, ModelRequest, StreamEvent, StreamStart, TextDelta, TextEnd, TextStart, Usage
from app.providers.scripted import ScriptedProvider
from app.record.repositories import journal_rows
from app.record.writer import Writer
from app.schema.part import TextPart
from app.sessions.live_parts import LivePart


class Halting(ScriptedProvider):
    """Stops in the middle of a text until the event is set."""

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__()
        self._gate = gate

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        yield StreamStart()
        yield TextStart("1")
        yield TextDelta("1", "Hello ")
        await self._gate.wait()
        yield TextDelta("1", "there.")
        yield TextEnd("1")
        yield Finish("stop", Usage(input=1, output=1))


class Picture:
    """What a client knows from the events alone: every part's text, by gains or by whole parts."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.ids: list[int] = []
        self.seen: list[str] = []

    @property
    def cursor(self) -> int:
        return self.ids[-1]

    def take(self, events: list[Received]) -> "Picture":
        for event in events:
            if event.id is not None:
                self.ids.append(event.id)
            self.seen.append(event.type)
            properties = event.properties
            if event.type == "message.part.delta":
                self.texts[properties["partID"]] = self.texts.get(properties["partID"], "") + properties["delta"]
            if event.type == "message.part.updated" and "text" in properties["part"]:
                self.texts[properties["part"]["id"]] = properties["part"]["text"]
        return self


@asynccontextmanager
async def streaming(tmp_path: Path) -> AsyncIterator[tuple[RunningApp, str, asyncio.Event]]:
    """A session whose answer has said `Hello ` and waits for the event to say `there.`."""
    gate = asyncio.Event()
    async with talking(tmp_path, provider=Halting(gate), title="T") as (app, session):
        yield app, session, gate
        gate.set()


def says(text: str) -> object:
    """Whether an event shows a part that has said this much."""

    def shown(event: Received) -> bool:
        return text in json.dumps(event.properties)

    return shown


async def test_what_was_missed_is_replayed_in_order_and_then_goes_on(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[{"text": "one"}], [{"text": "two"}]], title="T") as (app, session):
        async with app.events(ids="true") as first:
            await app.prompt(session, "1")
            await first.until("session.idle")
        numbered = [event for event in first.seen if event.id is not None]
        for cut in (numbered[0], numbered[3], numbered[-2]):
            async with app.events(cursor=cut.id) as again:
                await again.until("session.idle")
            assert again.types[0] == "server.connected"
            missed = [event for event in again.seen[1:] if event.id is not None]
            assert [(event.id, event.data) for event in missed] == [
                (event.id, event.data) for event in numbered if event.id and cut.id and event.id > cut.id
            ]
        async with app.events(cursor=numbered[-1].id) as live:
            await app.prompt(session, "2")
            await live.until("session.idle")
        assert next(event.id for event in live.seen if event.id is not None) == (numbered[-1].id or 0) + 1


@pytest.mark.parametrize("query", [{}, {"parts": "delta"}])
async def test_a_part_that_streamed_meanwhile_is_sent_as_it_stands_and_then_goes_on(
    tmp_path: Path, query: dict[str, str]
) -> None:
    async with streaming(tmp_path) as (app, session_id, gate):
        async with app.events(ids="true", **query) as first:
            await app.prompt_async(session_id, "hi")
            await first.until("message.part.updated", count=2)
        picture = Picture().take(first.seen)
        async with app.events(cursor=picture.cursor, **query) as again:
            standing = await again.until(says("Hello "))  # type: ignore[arg-type]
            assert standing.properties["part"]["text"] == "Hello " and standing.id is None
            gate.set()
            await again.until("session.idle")
        picture.take(again.seen)
        [answer] = [message for message in await app.messages(session_id) if message["info"]["role"] == "assistant"]
        [text_id] = [part["id"] for part in answer["parts"] if part["type"] == "text"]
        assert picture.texts[text_id] == "Hello there."
        assert len(picture.ids) == len(set(picture.ids)) and picture.ids == sorted(picture.ids)


async def test_a_client_that_asks_for_no_ids_begins_anew(tmp_path: Path) -> None:
    async with streaming(tmp_path) as (app, session_id, gate):
        async with app.events() as first:
            await app.prompt_async(session_id, "hi")
            await first.until(says("Hello "))  # type: ignore[arg-type]
            async with app.events() as late:
                gate.set()
                await late.until("session.idle")
    assert late.seen[1].properties["delta"] == "there." and late.seen[1].properties["part"]["text"] == "Hello there."


async def test_a_new_client_that_wants_deltas_is_told_what_streams(tmp_path: Path) -> None:
    async with streaming(tmp_path) as (app, session_id, gate):
        async with app.events() as first:
            await app.prompt_async(session_id, "hi")
            await first.until(says("Hello "))  # type: ignore[arg-type]
            async with app.events(parts="delta") as late:
                await late.until(says("Hello "))  # type: ignore[arg-type]
                gate.set()
                await late.until("session.idle")
        picture = Picture().take(late.seen)
        assert "Hello there." in picture.texts.values()


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


def say_at_once(app: RunningApp, session_id: str, message_id: str) -> None:
    """A part's first text and its end go to the disk together, as those of a fast model do."""
    store, directory = app.services.store, str(app.directory)
    part = TextPart(id="prt_1", session_id=session_id, message_id=message_id, text="")
    store.live.append(LivePart(part, directory), "Hello ")
    ended = part.model_copy(update={"text": "Hello"})
    store.post_parts(session_id, directory, putting(ended), parts=[ended])


@pytest.mark.parametrize("parts", ["full", "delta"])
async def test_a_client_that_comes_between_a_commit_and_its_announcement_hears_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: str
) -> None:
    announcing = Announcing(monkeypatch)
    async with talking(tmp_path, title="T") as (app, session_id):
        body = {"noReply": True, "parts": [{"type": "text", "text": "hi"}]}
        asked = await app.post(f"/session/{session_id}/message", body)

        async def listen() -> Picture:
            async with app.events(cursor=1, parts=parts) as events:
                await events.until(says("renamed"))  # type: ignore[arg-type]
            return Picture().take(events.seen)

        announcing.close()
        say_at_once(app, session_id, asked["info"]["id"])
        await announcing.committed.wait()
        listening = asyncio.create_task(listen())
        await until(lambda: app.services.bus.listeners() == 1, "the listener")
        announcing.gate.set()
        await app.call("PATCH", f"/session/{session_id}", json={"title": "renamed"})
        picture = await listening
    assert picture.texts["prt_1"] == "Hello"
    assert len(picture.ids) == len(set(picture.ids))


async def test_a_new_client_is_sent_whatever_is_announced_after_it_began_to_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`opencode run` prompts while it is greeted."""
    announcing = Announcing(monkeypatch)
    async with running_app(tmp_path) as app:
        path = f"/session/{(await app.create_session(title='T'))['id']}"
        announcing.close()
        renaming = asyncio.create_task(app.call("PATCH", path, json={"title": "renamed"}))
        await announcing.committed.wait()
        async with app.events(ids="true") as new:
            announcing.gate.set()
            await new.until(says("renamed"))  # type: ignore[arg-type]
        await renaming


@pytest.mark.parametrize("parts", ["full", "delta"])
async def test_a_client_that_is_cut_off_again_and_again_loses_and_doubles_nothing(tmp_path: Path, parts: str) -> None:
    text = " ".join(f"word{number}" for number in range(400))
    turn = [{"reasoning": text, "chunks": 60, "delay": 0.001}, {"text": text, "chunks": 120, "delay": 0.001}]
    async with talking(tmp_path, turns=[turn], title="T") as (app, session):
        picture = Picture()
        async with app.events(parts=parts, ids="true") as events:
            await app.prompt_async(session, "hi")
            await events.until("message.updated")
        picture.take(events.seen)
        connections = 0
        while "session.idle" not in picture.seen:
            connections += 1
            async with app.events(cursor=picture.cursor, parts=parts) as events:
                enough = 2 + connections % 4
                await events.when(lambda e=events, n=enough: len(e.seen) >= n or "session.idle" in e.types)
            picture.take(events.seen)
        stored = await app.messages(session)
    assert connections > 5
    assert picture.ids == list(range(picture.ids[0], picture.ids[-1] + 1))
    expected = {part["id"]: part["text"] for message in stored for part in message["parts"] if "text" in part}
    assert picture.texts == expected


async def test_a_cursor_that_was_never_given_is_answered_with_a_resync(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        await app.create_session()
        for cursor in ("999999", "0x10", "nonsense", "-1", "9" * 30, "１２"):
            async with app.client.stream("GET", "/event", headers={b"last-event-id": cursor.encode()}) as response:
                events = EventReader(response)
                resync = await events.until("server.resync")
                await events.close()
            assert events.types == ["server.connected", "server.resync"]
            assert resync.id == await app.services.replay.head()


async def test_a_cursor_older_than_the_journal_is_answered_with_a_resync_that_can_be_resumed_from(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        for _ in range(3):
            await app.create_session()
        newest = await app.services.replay.head()
        await app.services.store._database.write(lambda c: journal_rows.trim_journal(c, newest - 2))
        async with app.events(cursor=1) as events:
            resync = await events.until("server.resync")
        async with app.events(cursor=resync.id) as again:
            await app.create_session()
            await again.until("session.updated")
        assert again.types == ["server.connected", "session.created", "session.updated"]


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


async def test_a_replay_is_of_its_directory_alone(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        inside = app.directory / "inside"
        inside.mkdir()
        async with app.events("/global/event", ids="true") as watching:
            first = await watching.until("server.connected")
            await app.create_session(title="here")
            await app.post("/session", {"title": "there"}, params={"directory": str(inside)})
            await watching.until("session.updated", count=2)
        async with app.events(cursor=first.id, directory=str(inside)) as events:
            await events.until("session.updated")
        assert [event.properties["info"]["title"] for event in events.of_type("session.created")] == ["there"]
        async with app.events("/global/event", cursor=first.id) as events:
            await events.until("session.updated", count=2)
        assert [event.id for event in events.seen] == [event.id for event in watching.seen[:1]][1:] + [
            None if event.type == "server.connected" else event.id for event in watching.seen
        ]


async def test_a_restarted_server_replays_from_before_the_restart(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        async with app.events(ids="true") as events:
            first = await events.until("server.connected")
            await app.create_session(title="before")
            await events.until("session.updated")
    async with running_app(tmp_path) as app:
        async with app.events(cursor=first.id) as again:
            assert (await again.until("session.created")).properties["info"]["title"] == "before"
            await app.create_session(title="after")
            await again.until("session.created", count=2)
    ids = [event.id for event in again.seen if event.id is not None]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("path", ["/event", "/global/event"])
async def test_whichever_event_a_client_remembers_it_resumes_behind_it(tmp_path: Path, path: str) -> None:
    """Of a stream without `id:` lines, by the id that the JSON of each event has: a delta's and the greeting's too."""
    turn = [{"reasoning": "Hm.", "chunks": 2}, {"text": "Hello there, all of you.", "chunks": 3, "delay": 0.02}]
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
            missed = [event.data for event in again.seen if event.id is not None]
            due = [event.data for event in stored if event.event_id > remembered.event_id]
            assert missed[: len(due)] == due
            assert again.types[0] == "server.connected" and "server.resync" not in again.types


async def test_a_heartbeat_has_an_id_of_its_own_each_time(tmp_path: Path) -> None:
    async with running_app(tmp_path, heartbeat_seconds=0.01) as app, app.events() as events:
        await events.until("server.heartbeat", count=2)
        assert len({event.event_id for event in events.seen}) == len(events.seen)
