"""The golden sequences of events: a turn of text, a turn with a tool, and what every frame looks like."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from sse_reader import EventReader, Received
from turns import talking

TEXT_TURN = [[{"reasoning": "Hm.", "chunks": 1}, {"text": "Hello there.", "chunks": 2}]]
TOOL_TURN = [
    [{"tool": "read", "args": {"filePath": "a.txt"}, "id": "call_1"}],
    [{"text": "It says hello.", "chunks": 1}],
]


def shape(event: Received) -> str:
    """What the event is about: `session.status busy`, `message.part.updated text +`, `message.updated assistant completed`."""
    properties = event.properties
    if event.type == "session.status":
        return f"{event.type} {properties['status']['type']}"
    if event.type == "message.part.updated":
        part = properties["part"]
        detail = part.get("state", {}).get("status") or ("+" if "delta" in properties else "")
        return f"{event.type} {part['type']} {detail}".strip()
    if event.type == "message.updated":
        return f"{event.type} {message_shape(properties['info'])}"
    return event.type


def message_shape(info: dict[str, Any]) -> str:
    if info["role"] == "user":
        return "user"
    return f"assistant {'completed' if 'completed' in info['time'] else info.get('finish', 'begun')}"


LATE = {"session.updated", "session.diff"}


def of_the_turn(shapes: Sequence[str]) -> list[str]:
    """Without the title and the summaries, which come when they are ready, and with repeated deltas and statuses taken as one."""
    kept: list[str] = []
    begun = False
    for one in shapes:
        begun = begun or one == "session.status busy"
        if begun and (one in LATE or one == "message.updated user"):
            continue
        if not kept or kept[-1] != one:
            kept.append(one)
    return kept


async def heard(app: RunningApp, text: str = "hi", path: str = "/event") -> EventReader:
    """All events of one turn, the last of them the session's idle."""
    session = await app.create_session(title="T")
    async with app.events(path) as events:
        await app.prompt(session["id"], text)
        await events.until("session.idle")
    return events


async def test_a_text_turn(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=TEXT_TURN) as app:
        events = await heard(app)
    assert of_the_turn([shape(event) for event in events.seen]) == [
        "server.connected",
        "message.updated user",
        "message.part.updated text",
        "session.updated",
        "session.status busy",
        "message.updated assistant begun",
        "session.status busy",
        "message.part.updated step-start",
        "message.part.updated reasoning +",
        "message.part.updated reasoning",
        "message.part.updated text +",
        "message.part.updated text",
        "message.part.updated step-finish",
        "message.updated assistant stop",
        "message.updated assistant completed",
        "session.status idle",
        "session.idle",
    ]


async def test_a_tool_turn(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=TOOL_TURN) as app:
        events = await heard(app)
    shapes = of_the_turn([shape(event) for event in events.seen])
    start = shapes.index("message.part.updated step-start")
    assert shapes[start:] == [
        "message.part.updated step-start",
        "message.part.updated tool pending",
        "message.part.updated tool running",
        "message.part.updated tool completed",
        "message.part.updated step-finish",
        "message.updated assistant tool-calls",
        "message.updated assistant completed",
        "session.status busy",
        "message.updated assistant begun",
        "session.status busy",
        "message.part.updated step-start",
        "message.part.updated text +",
        "message.part.updated text",
        "message.part.updated step-finish",
        "message.updated assistant stop",
        "message.updated assistant completed",
        "session.status idle",
        "session.idle",
    ]


async def test_nothing_of_a_turn_but_its_title_comes_after_its_idle(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=TOOL_TURN, title="T") as (app, session):
        async with app.events() as events:
            await app.prompt(session, "change nothing")
            await events.until("session.idle")
            await app.services.store.barrier()
            await app.create_session(title="marker")
            await events.until("session.created")
        after = events.types[events.types.index("session.idle") + 1 :]
        assert after[:1] == ["session.created"]


async def test_the_events_agree_with_what_is_stored(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=TOOL_TURN) as app:
        events = await heard(app)
        session_id = events.of_type("session.idle")[0].properties["sessionID"]
        stored = await app.messages(session_id)
    infos = {event.properties["info"]["id"]: event.properties["info"] for event in events.of_type("message.updated")}
    parts = {event.properties["part"]["id"]: event.properties["part"] for event in events.of_type("message.part.updated")}
    assert [infos[message["info"]["id"]] for message in stored] == [message["info"] for message in stored]
    assert [parts[part["id"]] for message in stored for part in message["parts"]] == [
        part for message in stored for part in message["parts"]
    ]


def assert_frames_show_a_growing_text(frames: Sequence[Received], stored: str) -> None:
    """What streams is shown as far as it had come with its delta; the last frame, and no other, shows the finished part."""
    *streamed, finished = [event.properties for event in frames]
    said = ""
    for properties in streamed:
        said += properties["delta"]
        assert properties["part"]["text"] == said and "end" not in properties["part"]["time"]
    assert "delta" not in finished and finished["part"]["time"]["end"]
    assert finished["part"]["text"] == stored == said.rstrip()


@pytest.mark.parametrize("chunks", [1, 3, 200])
async def test_a_fast_answer_is_announced_finished_once(tmp_path: Path, chunks: int) -> None:
    turn = [{"reasoning": "Let me see. ", "chunks": chunks}, {"text": "Hello there, you. \n\n", "chunks": chunks}]
    async with running_app(tmp_path, turns=[turn]) as app:
        events = await heard(app)
        session_id = events.of_type("session.idle")[0].properties["sessionID"]
        [answer] = [message for message in await app.messages(session_id) if message["info"]["role"] == "assistant"]
    for part in answer["parts"]:
        if "text" in part:
            frames = [event for event in events.of_type("message.part.updated") if event.properties["part"]["id"] == part["id"]]
            assert_frames_show_a_growing_text(frames, part["text"])


async def test_with_parts_as_deltas_a_part_that_streams_is_sent_by_what_it_gains(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"text": "Hello there.", "chunks": 6}]]) as app:
        events = await heard(app, path="/event?parts=delta")
    gains = events.of_type("message.part.delta")
    assert "".join(event.properties["delta"] for event in gains) == "Hello there."
    assert {event.properties["field"] for event in gains} == {"text"}
    assert set(gains[0].properties) == {"sessionID", "messageID", "partID", "partType", "field", "delta"}
    wholes = [event for event in events.of_type("message.part.updated") if "delta" in event.properties]
    assert wholes == []
    last = [event for event in events.of_type("message.part.updated") if event.properties["part"]["type"] == "text"][-1]
    assert last.properties["part"]["text"] == "Hello there."


async def test_a_gain_tells_reasoning_from_text(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"reasoning": "Hm, hm."}, {"text": "Hello."}]]) as app:
        events = await heard(app, path="/event?parts=delta")
    gained: dict[str, str] = {}
    for event in events.of_type("message.part.delta"):
        kind = event.properties["partType"]
        gained[kind] = gained.get(kind, "") + event.properties["delta"]
    assert gained == {"reasoning": "Hm, hm.", "text": "Hello."}


async def test_ids_ascend_without_a_gap_in_one_directory(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=TOOL_TURN) as app:
        events = await heard(app, path="/event?ids=true")
    ids = [event.id for event in events.seen if event.id is not None]
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    unnumbered = {shape(event) for event in events.seen if event.id is None}
    assert unnumbered <= {"message.part.updated text +", "message.part.updated reasoning +", "message.part.updated tool running"}


async def raw_greeting(app: RunningApp, path: str, headers: dict[str, str]) -> str:
    """The lines of the first frame."""
    async with app.client.stream("GET", path, headers=headers) as response:
        lines = []
        async for line in response.aiter_lines():
            if not line:
                return " ".join(name.partition(":")[0] for name in lines)
            lines.append(line)
    raise AssertionError("the stream ended")


ASKING: list[tuple[str, dict[str, str], str]] = [
    ("", {}, "data"),
    ("?parts=full", {}, "data"),
    ("?ids=false", {}, "data"),
    ("?ids=true", {}, "id data"),
    ("", {"User-Agent": "opencode/1.1.34"}, "id data"),
    ("", {"User-Agent": "curl/8 opencode/1.1.34"}, "data"),
    ("?parts=delta", {}, "id data"),
    ("", {"last-event-id": ""}, "id data"),
    ("?lastEventID=", {}, "id data"),
]


@pytest.mark.parametrize("path", ["/event", "/global/event"])
async def test_ids_are_for_who_asks(tmp_path: Path, path: str) -> None:
    """OpenCode sends `data:` lines alone, and some of its clients can read nothing else."""
    async with running_app(tmp_path) as app:
        for query, headers, lines in ASKING:
            assert await raw_greeting(app, path + query, headers) == lines, (query, headers)


async def test_the_global_stream_names_the_directory_of_each_event(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=TEXT_TURN) as app:
        events = await heard(app, path="/global/event")
        assert events.seen[0].data == {"payload": {"id": events.seen[0].event_id, "type": "server.connected", "properties": {}}}
        of_session = [event for event in events.seen if event.type.startswith(("session.", "message."))]
        assert {event.data["directory"] for event in of_session} == {str(app.directory)}


async def test_each_stream_hears_its_own_directory(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        inside = app.directory / "inside"
        inside.mkdir()
        async with app.events() as here, app.events(directory=str(inside)) as there:
            await app.create_session(title="here")
            await app.post("/session", {"title": "there"}, params={"directory": str(inside)})
            assert (await here.until("session.created")).properties["info"]["title"] == "here"
            assert (await there.until("session.created")).properties["info"]["title"] == "there"
            assert len(here.of_type("session.created")) == len(there.of_type("session.created")) == 1


async def test_a_stream_is_announced_as_one(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, app.client.stream("GET", "/event") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"


async def test_hearts_beat_whatever_else_is_sent(tmp_path: Path) -> None:
    async with running_app(tmp_path, heartbeat_seconds=0.02) as app:
        async with app.events() as here, app.events("/global/event") as everywhere:
            await here.until("server.heartbeat", count=3)
            await everywhere.until("server.heartbeat", count=2)
        assert here.types[0] == "server.connected"
        assert all(event.id is None and event.properties == {} for event in here.of_type("server.heartbeat"))
        heartbeat = everywhere.of_type("server.heartbeat")[0]
        assert heartbeat.data == {"payload": {"id": heartbeat.event_id, "type": "server.heartbeat", "properties": {}}}


async def test_a_disposed_directory_ends_its_stream_and_the_global_one_goes_on(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        async with app.events() as here, app.events("/global/event") as everywhere:
            await app.post("/instance/dispose")
            await here.until_ended()
            assert here.seen[-1].payload == {
                "id": here.seen[-1].event_id,
                "type": "server.instance.disposed",
                "properties": {"directory": str(app.directory)},
            }
            await everywhere.until("server.instance.disposed")
            await app.post("/global/dispose")
            disposed = await everywhere.until("global.disposed")
            assert disposed.properties == {} and not everywhere.ended


async def test_a_client_that_goes_away_leaves_no_listener_behind(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        for path in ("/event", "/global/event?parts=delta"):
            async with app.events(path):
                assert app.services.bus._listeners != {}
        assert app.services.bus._listeners == {}
