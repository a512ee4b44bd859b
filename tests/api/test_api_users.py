"""Several people on one server: whose a session is, and who hears of it."""

from pathlib import Path

import pytest
from running_app import running_app, text_part
from turns import bash, tools
from user_logins import user

from app.events.bus.base import NEVER_GIVEN, read_cursor

TURN = [{"text": "the secret of anna"}]


async def test_a_session_belongs_to_who_created_it_and_is_not_there_for_others(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[TURN]) as app, user(app, "anna") as anna, user(app, "bert") as bert:
        session = await anna.create_session(title="of anna")
        assert session["owner"] == "anna"
        await anna.prompt(session["id"], "Hi")
        unknown = await bert.get("/session/ses_unknown", expect=404)
        hidden = await bert.get(f"/session/{session['id']}", expect=404)
        assert str(hidden).replace(session["id"], "ses_unknown") == str(unknown)
        assert [found["id"] for found in await anna.get("/session")] == [session["id"]]
        assert await bert.get("/session") == []
        fork = await anna.post(f"/session/{session['id']}/fork")
        child = await anna.create_session(parentID=session["id"])
        assert fork["owner"] == child["owner"] == "anna"
        await bert.post("/session", {"parentID": session["id"]}, expect=404)
        await bert.call("DELETE", f"/session/{session['id']}", expect=404)


async def test_a_stream_has_the_events_of_ones_own_sessions_alone(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[TURN]) as app, user(app, "anna") as anna, user(app, "bert") as bert:
        async with anna.events(ids=True) as of_anna, bert.events("/global/event", ids=True) as of_bert:
            start = (await of_bert.until("server.connected")).cursor
            session = await anna.create_session(title="of anna")
            await anna.prompt(session["id"], "Hi")
            await of_anna.until("session.idle")
            mine = await bert.create_session(title="of bert")
            await of_bert.until("session.created")
        about = [event.properties["info"]["id"] for event in of_bert.seen if "info" in event.properties]
        assert set(about) == {mine["id"]} and session["id"] in str(of_anna.seen)
        async with bert.events("/global/event", cursor=start) as again:
            await again.until("session.updated")
            assert session["id"] not in str(again.seen), "replay has none of another user's either"
            assert mine["id"] in str(again.seen) and "server.resync" not in again.types


async def test_the_ids_of_events_tell_nothing_of_others(tmp_path: Path) -> None:
    """Neither how many there were in between, nor whether there were any."""
    async with running_app(tmp_path) as app, user(app, "anna") as anna, user(app, "bert") as bert:
        async with bert.events(ids=True) as first:
            before = (await first.until("server.connected")).cursor
        async with bert.events(ids=True) as second:
            nothing_between = (await second.until("server.connected")).cursor
        await anna.create_session()
        async with bert.events(ids=True) as third:
            after = (await third.until("server.connected")).cursor
        assert before and nothing_between and after and len({before, nothing_between, after}) == 3
        async with anna.events(cursor=before) as foreign:
            await foreign.until("server.resync")


async def test_the_ids_in_events_tell_nothing_of_others_and_resume(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[TURN]) as app, user(app, "anna") as anna, user(app, "bert") as bert:
        async with anna.events() as first:
            greeting = await first.until("server.connected")
            session = await anna.create_session()
            await anna.prompt(session["id"], "Hi")
            await first.until("session.idle")
        assert len({event.event_id for event in first.seen}) == len(first.seen)
        assert {read_cursor(event.event_id) for event in first.seen} == {NEVER_GIVEN}, "they are no numbers"
        async with anna.events(cursor=greeting.event_id) as again:
            idle = await again.until("session.idle")
        assert idle.event_id == (await first.until("session.idle")).event_id
        assert "server.resync" not in again.types
        async with bert.events(cursor=idle.event_id) as foreign:
            await foreign.until("server.resync")


async def test_an_admin_gives_a_session_to_another_user(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[TURN]) as app, user(app, "anna") as anna, user(app, "bert") as bert:
        async with user(app, "root", "admin") as root, anna.events() as of_anna, bert.events() as of_bert:
            session = await anna.create_session()
            child = await anna.create_session(parentID=session["id"])
            path = f"/session/{session['id']}"
            await anna.call("PATCH", path, {"owner": "bert"}, expect=403)
            await root.call("PATCH", path, {"owner": "nobody"}, expect=400)
            await root.call("PATCH", f"/session/{child['id']}", {"owner": "bert"}, expect=400)
            assert (await root.call("PATCH", path, {"owner": "bert", "title": "given"}))["owner"] == "bert"
            await of_anna.until("session.deleted", count=2)
            await of_bert.until("session.created", count=2)
        await anna.get(path, expect=404)
        assert {each["title"] for each in await bert.get("/session")} >= {"given"}
        assert [each["owner"] for each in await bert.get(f"{path}/children")] == ["bert"]


async def test_pages_of_messages_are_found_by_cursors_that_tell_no_counts(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, user(app, "anna") as anna:
        session = await anna.create_session()
        path = f"/session/{session['id']}/message"
        for text in ("one", "two", "three"):
            await anna.prompt(session["id"], text, noReply=True)
        newest = await anna.client.get(path, params={"limit": 1})
        cursor = newest.headers["x-next-cursor"]
        assert not cursor.isdigit()
        [older] = await anna.get(path, params={"limit": 1, "before": cursor})
        assert older["parts"][0]["text"] == "two"
        await anna.get(path, params={"before": "2"}, expect=400)


async def test_what_one_user_always_allows_another_is_still_asked(tmp_path: Path) -> None:
    call = [bash("echo x")]
    turns = [call, [{"text": "done"}], call, [{"text": "done"}], call, [{"text": "done"}]]
    ask = [{"permission": "bash", "pattern": "*", "action": "ask"}]
    async with running_app(tmp_path, turns=turns) as app, user(app, "anna") as anna, user(app, "bert") as bert:
        mine = await anna.create_session(title="t", permission=ask)
        async with anna.events() as events:
            await anna.prompt_async(mine["id"], "one")
            asked = await events.until("permission.asked")
            await anna.post(f"/permission/{asked.properties['id']}/reply", {"reply": "always"})
            await events.until("session.idle")
            await anna.prompt_async(mine["id"], "two")
            await events.until("session.idle", count=2)
            assert len(events.of_type("permission.asked")) == 1, "it is remembered for her"
        other = await bert.create_session(title="t", permission=ask)
        async with bert.events() as events:
            await bert.prompt_async(other["id"], "three")
            await events.until("permission.asked")
            assert len(await bert.get("/permission")) == 1 and await anna.get("/permission") == []


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    """Anna's, and another with a file that is not for her."""
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    for directory in (own, foreign):
        directory.mkdir()
    (foreign / "note.txt").write_text("the secret of bert")
    return own, foreign


async def test_nothing_that_a_member_allows_leads_out_of_their_roots(tmp_path: Path, roots: tuple[Path, Path]) -> None:
    """Neither a rule nor a reply: both are the member's own."""
    own, foreign = roots
    note = str(foreign / "note.txt")
    calls: list[tuple[str, dict[str, str]]] = [
        ("read", {"filePath": note}),
        ("list", {"path": str(foreign)}),
        ("grep", {"path": str(foreign), "pattern": "secret"}),
        ("bash", {"command": f"cat {note}", "description": "d"}),
        ("write", {"filePath": note, "content": "gone"}),
    ]
    allow = [{"permission": "*", "pattern": "*", "action": "allow"}]
    turns = [[{"tool": tool, "args": args} for tool, args in calls], [{"text": "done"}]]
    async with running_app(tmp_path, turns=turns) as app, user(app, "anna", roots=[own]) as anna:
        session = await anna.create_session(title="t", permission=allow)
        await anna.prompt(session["id"], "Go")
        messages = await anna.messages(session["id"])
    states = {part["tool"]: str(part["state"]) for part in tools(messages)}
    assert states.keys() == {tool for tool, _ in calls}
    for state in states.values():
        assert "outside the directories that this user may work in" in state and "the secret of bert" not in state
    assert (foreign / "note.txt").read_text() == "the secret of bert"


async def test_nothing_that_the_server_reads_for_a_member_leads_out_of_their_roots(
    tmp_path: Path, roots: tuple[Path, Path]
) -> None:
    """An attached file, instructions that the configuration names, a variable or a file that it quotes."""
    own, foreign = roots
    (own / "AGENTS.md").symlink_to(foreign / "note.txt")
    (own / "opencode.json").write_text(f'{{"instructions": ["{foreign}/note.txt"], "username": "a{{env:HOME}}b"}}')
    async with running_app(tmp_path, turns=[TURN, TURN]) as app, user(app, "anna", roots=[own]) as anna:
        session = await anna.create_session(title="t")
        file = {"type": "file", "mime": "text/plain", "url": f"file://{foreign}/note.txt"}
        refused = await anna.post(f"/session/{session['id']}/message", {"parts": [text_part("Hi"), file]}, expect=400)
        assert "outside the directories" in str(refused)
        await anna.prompt(session["id"], "Hi")
        assert "the secret of bert" not in str(app.provider.requests)
        assert (await anna.get("/config"))["username"] == "ab"
        (own / "opencode.json").write_text(f'{{"username": "{{file:{foreign}/note.txt}}"}}')
        assert "the secret of bert" not in str(await anna.get("/config", expect=500))


async def test_a_session_is_not_given_away_while_it_is_answered(tmp_path: Path) -> None:
    call = [bash("echo x")]
    ask = [{"permission": "bash", "pattern": "*", "action": "ask"}]
    async with running_app(tmp_path, turns=[call, TURN]) as app, user(app, "anna") as anna, user(app, "root", "admin") as root:
        session = await anna.create_session(title="before", permission=ask)
        async with anna.events() as events:
            await anna.prompt_async(session["id"], "Hi")
            request = (await events.until("permission.asked")).properties
            await root.call("PATCH", f"/session/{session['id']}", {"owner": "root", "title": "after"}, expect=409)
            assert (await anna.get(f"/session/{session['id']}"))["title"] == "before", "nothing was changed"
            await anna.post(f"/permission/{request['id']}/reply", {"reply": "once"})
            await events.until("session.idle")
        given = await root.call("PATCH", f"/session/{session['id']}", {"owner": "root", "title": "after"})
        assert (given["owner"], given["title"]) == ("root", "after")
