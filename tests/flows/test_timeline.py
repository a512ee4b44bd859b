"""A session's events in the second API: read, left off and read on, they tell each thing once, whatever the journal still has."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from sse_reader import Received
from user_logins import user

from app.events.bus.base import UNKNOWN_MARK, read_cursor
from app.sessions import replay
from app.users.principal import Role

READ = {"tool": "read", "args": {"filePath": "a.txt"}}
TURNS = [[{"text": "One."}, READ], [{"text": "Two."}]]


async def begin(app: RunningApp, *texts: str, session: str | None = None) -> str:
    session = session or str((await app.post("/api/session", {}))["data"]["id"])
    for text in texts:
        await app.post(f"/api/session/{session}/prompt", {"prompt": {"text": text}})
        await app.post(f"/api/session/{session}/wait", expect=204)
    return session


async def history(app: RunningApp, session: str, after: int = 0, *, expect: int = 200) -> list[dict[str, Any]]:
    page = await app.get(f"/api/session/{session}/history?after={after}", expect=expect)
    assert expect != 200 or not page["hasMore"]
    return list(page["data"]) if expect == 200 else [page]


def told(events: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Without their numbers."""
    return [(event["type"], event["data"]) for event in events]


def seqs(events: list[dict[str, Any]]) -> list[int]:
    return [event["durable"]["seq"] for event in events]


async def forget_journal(app: RunningApp, monkeypatch: pytest.MonkeyPatch, keep: int = 0) -> None:
    monkeypatch.setattr(replay, "KEEP_EVENTS", keep)
    await app.services.replay.trim()
    monkeypatch.undo()


async def test_after_each_event_exactly_the_rest_is_told_also_after_a_restart(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=TURNS) as app:
        session = await begin(app, "Hi")
        whole = await history(app, session)
        for number, seq in enumerate(seqs(whole), start=1):
            assert await history(app, session, seq) == whole[number:]
            for limit in (1, 2, 5):
                page = await app.get(f"/api/session/{session}/history?after={seq}&limit={limit}")
                assert (page["data"], page["hasMore"]) == (whole[number : number + limit], len(whole) > number + limit)
    async with running_app(tmp_path) as again:
        assert await history(again, session) == whole
        for number, seq in enumerate(seqs(whole), start=1):
            assert await history(again, session, seq) == whole[number:]


async def test_after_each_event_of_prompts_that_waited_exactly_the_rest_is_told(tmp_path: Path) -> None:
    gate = asyncio.Event()
    turns = [[{"text": "One."}, {"wait": gate}], [{"text": "Two."}], [{"text": "Three."}]]
    async with running_app(tmp_path, turns=turns) as app:
        session = await begin(app)
        for text in ("Hi", "And", "Then"):
            wanted = {"prompt": {"text": text}, "delivery": "queue"}
            await app.post(f"/api/session/{session}/prompt", wanted)
        gate.set()
        await app.post(f"/api/session/{session}/wait", expect=204)
        whole = await history(app, session)
        assert [event["data"].get("delivery") for event in whole].count("queue") == 4
        for number, seq in enumerate(seqs(whole), start=1):
            assert await history(app, session, seq) == whole[number:]


async def test_a_history_that_the_journal_has_forgotten_is_made_of_the_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(tmp_path, turns=[*TURNS, [{"text": "Three."}]]) as app:
        session = await begin(app, "Hi")
        before = await history(app, session)
        await forget_journal(app, monkeypatch)
        made = await history(app, session)
        assert sorted(map(str, told(made))) == sorted(map(str, told(before)))
        assert seqs(made) == [*range(1, len(before) + 1)]
        for number in range(len(made)):
            assert await history(app, session, number) == made[number:]
        await begin(app, "Again", session=session)
        whole = await history(app, session)
        assert whole[: len(made)] == made and seqs(whole) == sorted(set(seqs(whole)))
        assert await history(app, session, len(made)) == whole[len(made) :]

        rest = told(whole[len(made) :])
        await forget_journal(app, monkeypatch)
        assert told(await history(app, session, len(made))) == rest, "who was away for longer goes on where they were"
        async with app.events(f"/api/session/{session}/event?after={len(made)}") as events:
            await events.until("session.next.step.ended")
        assert told([event.data for event in events.seen]) == rest
        assert await history(app, session, seqs(await history(app, session))[-1]) == []


async def test_where_the_journal_has_forgotten_a_part_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(tmp_path, turns=TURNS) as app:
        session = await begin(app, "Hi")
        before = await history(app, session)
        head = await app.services.replay.head()
        for keep in range(head, 0, -1):
            await forget_journal(app, monkeypatch, keep)
            now = await history(app, session)
            assert sorted(map(str, told(now))) == sorted(map(str, told(before))), keep
            assert seqs(now) == sorted(set(seqs(now)))


async def test_an_event_that_is_nowhere_any_more_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_app(tmp_path) as app:
        session = await begin(app)
        await app.post(f"/api/session/{session}/agent", {"agent": "plan"}, expect=204)
        await app.post(f"/api/session/{session}/agent", {"agent": "build"}, expect=204)
        switched, _ = await history(app, session)
        await forget_journal(app, monkeypatch)
        [refused] = await history(app, session, switched["durable"]["seq"], expect=400)
    assert (refused["_tag"], refused["field"]) == ("InvalidRequestError", "after")


async def test_a_fork_has_the_history_of_what_it_copies(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=TURNS) as app:
        session = await begin(app, "Hi")
        of_original = await history(app, session)
        fork = (await app.post(f"/session/{session}/fork", {}))["id"]
        of_fork = await history(app, fork)
        export = await app.get(f"/session/{session}/export")
        await app.call("DELETE", f"/session/{session}")
        await app.post("/session/import", export)
        of_imported = await history(app, session)
    kinds = sorted(event["type"] for event in of_original)
    for events in (of_fork, of_imported):
        assert sorted(event["type"] for event in events) == kinds
        assert seqs(events) == [*range(1, len(kinds) + 1)]
        assert events[0]["type"] == "session.next.prompt.admitted"


async def test_a_stream_and_the_history_say_the_same_whenever_the_stream_is_cut(tmp_path: Path) -> None:
    gates = [asyncio.Event() for _ in range(4)]
    reads = [{"tool": "read", "args": {"filePath": "a.txt", "limit": 1 + n}} for n in range(len(gates))]
    turns = [[{"text": "Reading."}, read, {"wait": gate}] for read, gate in zip(reads, gates, strict=True)]
    async with running_app(tmp_path, turns=[*turns, [{"text": "Done."}]]) as app:
        session = await begin(app)
        await app.post(f"/api/session/{session}/prompt", {"prompt": {"text": "Hi"}})
        heard: list[dict[str, Any]] = []
        for gate in gates:
            after = seqs(heard)[-1] if heard else 0
            async with app.events(f"/api/session/{session}/event?after={after}") as events:
                await events.until("session.next.tool.success")
            heard += [event.data for event in events.seen]
            gate.set()
        await app.post(f"/api/session/{session}/wait", expect=204)
        heard += await history(app, session, seqs(heard)[-1])
        assert heard == await history(app, session)


async def test_a_stream_tells_the_end_of_a_shell_line(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session = await begin(app)
        async with app.events(f"/api/session/{session}/event") as events:
            await app.post(f"/session/{session}/shell", {"agent": "build", "command": "echo shelled"})
            ended = await events.until("session.next.shell.ended")
            assert ended.data["data"]["output"] == "shelled\n"
            assert [event.data for event in events.seen] == await history(app, session)


async def test_a_stream_tells_what_happens_to_its_session_in_whatever_directory_and_ends_with_it(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"text": "Elsewhere."}], [{"text": "Another's."}]]) as app:
        (other := app.directory / "other").mkdir()
        session, beside = await begin(app), await begin(app)
        async with app.events(f"/api/session/{session}/event") as events:
            await app.post(f"/session/{session}/message?directory={other}", {"parts": [{"type": "text", "text": "Hi"}]})
            await begin(app, "Hi", session=beside)
            await events.until("session.next.step.ended")
            assert [event.data for event in events.seen] == await history(app, session)
            await app.call("DELETE", f"/session/{session}")
            await events.until_ended()


async def test_a_stream_ends_for_whom_its_session_is_taken_from(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"text": "Seen."}]]) as app, user(app, "root", "admin") as root:
        async with user(app, "anna") as anna, user(app, "bert") as bert:
            session = await begin(anna)
            path = f"/api/session/{session}/event"
            async with anna.events(path) as of_anna, root.events(path) as of_root:
                await root.call("PATCH", f"/session/{session}", {"owner": "bert"})
                await of_anna.until_ended()
                async with bert.events(path) as of_bert:
                    await begin(bert, "Hi", session=session)
                    for events in (of_root, of_bert):
                        await events.until("session.next.step.ended")
            assert of_anna.seen == []


async def test_the_stream_of_all_events_tells_the_same_with_the_same_numbers(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=TURNS) as app:
        session = await begin(app)
        async with app.events("/api/event") as events:
            await begin(app, "Hi", session=session)
            await events.until("session.idle")
        told_here = [event.data for event in events.seen if event.type.startswith("session.next.")]
        numbered = [event for event in told_here if "durable" in event]
        whole = await history(app, session)
    started = [event for event in whole if event["type"] == "session.next.text.started"]
    assert [{"id": e["id"], "type": e["type"], "durable": e["durable"], "data": e["data"]} for e in numbered] == [
        event for event in whole if event not in started
    ]
    assert {event["location"]["directory"] for event in told_here} == {str(app.directory)}
    for text in ("One.", "Two."):
        ended = next(event["data"] for event in whole if event["data"].get("text") == text)
        of_text = [event for event in told_here if event["data"].get("textID") == ended["textID"]]
        assert [event["type"].rpartition(".")[2] for event in of_text][0 :: len(of_text) - 1] == ["started", "ended"]
        assert "".join(event["data"].get("delta", "") for event in of_text) == text
    ids = [event.event_id for event in events.seen]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("role", ["admin", "member"])
async def test_who_has_some_of_the_events_of_one_change_is_told_the_others(tmp_path: Path, role: Role) -> None:
    turns = [*TURNS, [{"text": "Three."}]]
    async with running_app(tmp_path, turns=turns) as server, user(server, "root", "admin"), user(server, "anna", role) as app:

        def told(events: Sequence[Received]) -> list[tuple[str, str]]:
            """Without those of no event of the journal, or that get another id each time."""
            open_id = read_cursor if role == "admin" else server.services.secret.cursors("anna").open
            lasting = (event for event in events if open_id(event.event_id).mark < UNKNOWN_MARK)
            return [(event.event_id, event.type) for event in lasting if event.type != "server.connected"]

        session = await begin(app)
        async with app.events("/api/event") as events:
            for delivery in ("steer", "queue"):
                await app.post(f"/api/session/{session}/prompt", {"prompt": {"text": delivery}, "delivery": delivery})
            await events.until("session.idle", count=2)
        told_first = told(events.seen)
        assert ("session.next.prompted" in {kind for _, kind in told_first}) and "prompt.queued" in {
            kind for _, kind in told_first
        }
        for number, (seen, _) in enumerate(told_first[:-1], start=1):
            rest = told_first[number:]
            async with app.events("/api/event", cursor=seen) as cut_off:
                greeting = await cut_off.until("server.connected")
            async with app.events("/api/event", cursor=greeting.event_id) as again:
                await again.until("session.idle", count=[kind for _, kind in rest].count("session.idle"))
            assert told(again.seen) == rest


async def test_what_was_missed_on_the_stream_of_all_events_is_told_too(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=TURNS) as app:
        session = await begin(app)
        async with app.events("/api/event") as events:
            await app.post(f"/api/session/{session}/agent", {"agent": "plan"}, expect=204)
            switched = await events.until("session.next.agent.switched")
        await begin(app, "Hi", session=session)
        whole = await history(app, session)
        async with app.events("/api/event", cursor=switched.event_id) as events:
            await events.until("session.next.step.ended", count=2)
    missed = [event.data["durable"]["seq"] for event in events.seen if "durable" in event.data]
    assert set(missed) <= set(seqs(whole))
    assert [event.type for event in events.seen].count("session.next.prompted") == 1
