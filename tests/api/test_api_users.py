"""Several people on one server: whose a session is, and who hears of it."""

from pathlib import Path

from running_app import running_app
from user_logins import user

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
