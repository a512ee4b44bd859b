"""The golden sequences of events: a turn of text, a turn with a tool, and what every frame looks like."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from running_app import RunningApp, running_app
from sse_reader import EventReader, Received
from turns import call, say

TEXT_TURN = [{"reasoning": "Hm.", "chunks": 1}, say("Hello there.", chunks=2)]
TOOL_TURN = [[call("read", filePath="a.txt")], [say("It says hello.", chunks=1)]]
LATE = {"session.updated", "session.diff", "message.updated user"}


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
        info = properties["info"]
        state = "completed" if "completed" in info["time"] else info.get("finish", "begun")
        return f"{event.type} {'user' if info['role'] == 'user' else f'assistant {state}'}"
    return event.type


def of_the_turn(events: EventReader) -> list[str]:
    """Without the title and the summaries, which come when they are ready, and with repeated deltas and statuses taken as one."""
    kept: list[str] = []
    begun = False
    for one in map(shape, events.seen):
        begun = begun or one == "session.status busy"
        if not (begun and one in LATE) and (not kept or kept[-1] != one):
            kept.append(one)
    return kept


async def heard(app: RunningApp, *turns: list[dict[str, Any]], path: str = "/event") -> tuple[EventReader, str]:
    """All events of a prompt with these turns, the last of them the session's idle; the session's id."""
    app.provider.add(*turns)
    session_id = (await app.create_session(title="T"))["id"]
    async with app.events(path) as events:
        await app.prompt(session_id, "hi")
        await events.until("session.idle")
    return events, session_id


BEGINS = ["message.updated assistant begun", "session.status busy", "message.part.updated step-start"]
SAYS = ["message.part.updated text +", "message.part.updated text", "message.part.updated step-finish"]
ENDS = ["message.updated assistant stop", "message.updated assistant completed", "session.status idle", "session.idle"]
THINKS = ["message.part.updated reasoning +", "message.part.updated reasoning"]
CALLS = [*(f"message.part.updated tool {state}" for state in ("pending", "running", "completed"))]
CALLS += ["message.part.updated step-finish", "message.updated assistant tool-calls", "message.updated assistant completed"]


async def test_a_text_turn(app: RunningApp) -> None:
    events, _ = await heard(app, TEXT_TURN)
    prompted = ["message.updated user", "message.part.updated text", "session.updated", "session.status busy"]
    assert of_the_turn(events) == ["server.connected", *prompted, *BEGINS, *THINKS, *SAYS, *ENDS]


async def test_a_tool_turn_whose_events_agree_with_what_is_stored(app: RunningApp) -> None:
    events, session_id = await heard(app, *TOOL_TURN, path="/event?ids=true")
    shapes = of_the_turn(events)
    start = shapes.index("message.part.updated step-start")
    assert shapes[start:] == [BEGINS[-1], *CALLS, "session.status busy", *BEGINS, *SAYS, *ENDS]
    stored = await app.messages(session_id)
    infos = {event.properties["info"]["id"]: event.properties["info"] for event in events.of_type("message.updated")}
    parts = {event.properties["part"]["id"]: event.properties["part"] for event in events.of_type("message.part.updated")}
    for message in stored:
        assert infos[message["info"]["id"]] == message["info"]
        assert [parts[part["id"]] for part in message["parts"]] == message["parts"]


async def test_ids_ascend_without_a_gap_in_one_directory(app: RunningApp) -> None:
    events, _ = await heard(app, *TOOL_TURN, path="/event?ids=true")
    ids = [event.id for event in events.seen if event.id is not None]
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    unnumbered = {shape(event) for event in events.seen if event.id is None}
    assert unnumbered <= {SAYS[0], THINKS[0], "message.part.updated tool running"}


async def test_nothing_of_a_turn_but_its_title_comes_after_its_idle(app: RunningApp) -> None:
    app.provider.add(*TOOL_TURN)
    session = await app.create_session(title="T")
    async with app.events() as events:
        await app.prompt(session["id"], "change nothing")
        await events.until("session.idle")
        await app.services.store.barrier()
        await app.create_session(title="marker")
        await events.until("session.created")
    assert events.types[events.types.index("session.idle") + 1] == "session.created"


def assert_frames_show_a_growing_text(frames: Sequence[Received], stored: str) -> None:
    """What streams is shown as far as it had come with its delta; the last frame, and no other, shows the finished part."""
    *streamed, finished = [event.properties for event in frames]
    said = ""
    for properties in streamed:
        said += properties["delta"]
        assert properties["part"]["text"] == said and "end" not in properties["part"]["time"]
    assert "delta" not in finished and finished["part"]["time"]["end"]
    assert finished["part"]["text"] == stored == said.rstrip()


async def test_a_fast_answer_is_announced_finished_once(app: RunningApp) -> None:
    for chunks in (1, 3, 200):
        turn = [{"reasoning": "Let me see. ", "chunks": chunks}, say("Hello there, you. \n\n", chunks=chunks)]
        events, session_id = await heard(app, turn)
        updated = events.of_type("message.part.updated")
        for part in (await app.messages(session_id))[1]["parts"]:
            if "text" in part:
                frames = [event for event in updated if event.properties["part"]["id"] == part["id"]]
                assert_frames_show_a_growing_text(frames, part["text"])


async def test_with_parts_as_deltas_a_part_that_streams_is_sent_by_what_it_gains(app: RunningApp) -> None:
    turn = [{"reasoning": "Hm, hm."}, say("Hello there.", chunks=6)]
    events, _ = await heard(app, turn, path="/event?parts=delta")
    gained = {"reasoning": "", "text": ""}
    for event in events.of_type("message.part.delta"):
        assert set(event.properties) == {"sessionID", "messageID", "partID", "partType", "field", "delta"}
        assert event.properties["field"] == "text"
        gained[event.properties["partType"]] += event.properties["delta"]
    assert gained == {"reasoning": "Hm, hm.", "text": "Hello there."}
    wholes = [event.properties for event in events.of_type("message.part.updated")]
    assert not [properties for properties in wholes if "delta" in properties]
    last = [properties["part"] for properties in wholes if properties["part"]["type"] == "text"][-1]
    assert last["text"] == "Hello there."


async def raw_greeting(app: RunningApp, path: str, headers: dict[str, str]) -> str:
    """The names of the lines of the first frame."""
    names = []
    async with app.client.stream("GET", path, headers=headers) as response:
        async for line in response.aiter_lines():
            if not line:
                break
            names.append(line.partition(":")[0])
    return " ".join(names)


ASKING: list[tuple[str, dict[str, str], str]] = [
    *((query, {}, "data") for query in ("", "?parts=full", "?ids=false")),
    *((query, {}, "id data") for query in ("?ids=true", "?parts=delta", "?lastEventID=")),
    ("", {"User-Agent": "opencode/1.1.34"}, "id data"),
    ("", {"User-Agent": "curl/8 opencode/1.1.34"}, "data"),
    ("", {"last-event-id": ""}, "id data"),
]


async def test_ids_are_for_who_asks(app: RunningApp) -> None:
    """OpenCode sends `data:` lines alone, and some of its clients can read nothing else."""
    for path in ("/event", "/global/event"):
        for query, headers, lines in ASKING:
            assert await raw_greeting(app, path + query, headers) == lines, (path, query, headers)


async def test_a_stream_is_announced_as_one_and_leaves_no_listener_behind(app: RunningApp) -> None:
    for path in ("/event", "/global/event?parts=delta"):
        async with app.client.stream("GET", path) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-cache", "no")
            await anext(response.aiter_lines())
            assert app.services.bus._listeners != {}
        assert app.services.bus._listeners == {}


async def test_each_stream_hears_its_own_directory_and_the_global_one_names_it(app: RunningApp) -> None:
    inside = app.directory / "inside"
    inside.mkdir()
    async with app.events() as here, app.events(directory=str(inside)) as there, app.events("/global/event") as everywhere:
        await app.create_session(title="here")
        await app.post("/session", {"title": "there"}, params={"directory": str(inside)})
        assert (await here.until("session.created")).properties["info"]["title"] == "here"
        assert (await there.until("session.created")).properties["info"]["title"] == "there"
        await everywhere.until("session.updated", count=2)
        assert len(here.of_type("session.created")) == len(there.of_type("session.created")) == 1
    greeting = everywhere.seen[0]
    assert greeting.data == {"payload": {"id": greeting.event_id, "type": "server.connected", "properties": {}}}
    assert [event.data["directory"] for event in everywhere.of_type("session.created")] == [str(app.directory), str(inside)]


async def test_hearts_beat_whatever_else_is_sent_each_with_an_id_of_its_own(tmp_path: Path) -> None:
    async with running_app(tmp_path, heartbeat_seconds=0.02) as app:
        async with app.events() as here, app.events("/global/event") as everywhere:
            await here.until("server.heartbeat", count=3)
            heartbeat = await everywhere.until("server.heartbeat", count=2)
    assert here.types[0] == "server.connected" and len({event.event_id for event in here.seen}) == len(here.seen)
    assert all(event.id is None and event.properties == {} for event in here.of_type("server.heartbeat"))
    assert heartbeat.data == {"payload": {"id": heartbeat.event_id, "type": "server.heartbeat", "properties": {}}}


async def test_a_disposed_directory_ends_its_stream_and_the_global_one_goes_on(app: RunningApp) -> None:
    async with app.events() as here, app.events("/global/event") as everywhere:
        await app.post("/instance/dispose")
        await here.until_ended()
        last = here.seen[-1]
        properties = {"directory": str(app.directory)}
        assert last.payload == {"id": last.event_id, "type": "server.instance.disposed", "properties": properties}
        await everywhere.until("server.instance.disposed")
        await app.post("/global/dispose")
        disposed = await everywhere.until("global.disposed")
        assert disposed.properties == {} and not everywhere.ended
