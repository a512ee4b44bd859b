"""Several people on one server: whose a session is, who hears of it, whose keys are used, and what one may use a day."""

import asyncio
import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from alive import alive
from running_app import RunningApp, running_app, text_part
from sse_reader import Received
from turns import bash, call, infos, requests, say, texts, tools, until
from typer.testing import CliRunner
from user_logins import add_user, user
from webhook_receiver import webhook_receiver

from app.cli import app as command
from app.events.bus.base import NEVER_GIVEN, read_cursor
from app.providers.registry import Providers
from app.record.repositories import account_rows
from app.users.principal import Role
from app.users.users import ADDED_SECONDS, User, Users

SECRET = say("the secret of anna")
ASK = [{"permission": "bash", "pattern": "*", "action": "ask"}]


async def test_a_session_is_its_users_with_what_is_made_of_it_until_an_admin_gives_it_away(
    anna: RunningApp, bert: RunningApp, root: RunningApp
) -> None:
    session = await anna.create_session()
    path = f"/session/{session['id']}"
    child = await anna.create_session(parentID=session["id"])
    fork = await anna.post(f"{path}/fork")
    assert session["owner"] == child["owner"] == fork["owner"] == "anna"
    await bert.post("/session", {"parentID": session["id"]}, expect=404)
    async with anna.events() as of_anna, bert.events() as of_bert:
        await anna.call("PATCH", path, {"owner": "bert"}, expect=403)
        await root.call("PATCH", path, {"owner": "nobody"}, expect=400)
        await root.call("PATCH", f"/session/{child['id']}", {"owner": "bert"}, expect=400)
        assert (await root.call("PATCH", path, {"owner": "bert", "title": "given"}))["owner"] == "bert"
        await of_anna.until("session.deleted", count=2)
        await of_bert.until("session.created", count=2)
    await anna.get(path, expect=404)
    assert {each["title"] for each in await bert.get("/session")} >= {"given"}
    assert [each["owner"] for each in await bert.get(f"{path}/children")] == ["bert"]


async def test_a_session_is_not_given_away_while_it_is_answered(anna: RunningApp, root: RunningApp) -> None:
    anna.provider.add([bash("echo x")], [SECRET])
    session = await anna.create_session(title="before", permission=ASK)
    path, given = f"/session/{session['id']}", {"owner": "root", "title": "after"}
    async with anna.events() as events:
        await anna.prompt_async(session["id"], "Hi")
        request = (await events.until("permission.asked")).properties
        await root.call("PATCH", path, given, expect=409)
        assert (await anna.get(path))["title"] == "before", "nothing was changed"
        await anna.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await events.until("session.idle")
    assert (await root.call("PATCH", path, given)).items() >= given.items()


def session_of(event: Received) -> str | None:
    """The session that an event tells of, on each stream."""
    told: Any = event.payload.get("properties", event.payload.get("data"))
    return told.get("info", {}).get("id")


@pytest.mark.parametrize("path", ["/event", "/global/event", "/api/event"])
async def test_a_stream_has_the_events_of_ones_own_sessions_alone(anna: RunningApp, bert: RunningApp, path: str) -> None:
    async with bert.events(path) as of_bert:
        start = (await of_bert.until("server.connected")).event_id
        hers, his = await anna.create_session(), await bert.create_session()
        await of_bert.until("session.updated")
    async with bert.events(path, cursor=start) as again:
        await again.until("session.updated")
    for events in (of_bert, again):
        assert {session_of(event) for event in events.seen} == {None, his["id"]} and hers["id"] not in str(events.seen)
        assert "server.resync" not in events.types


async def test_the_ids_of_events_tell_nothing_of_others_and_resume(anna: RunningApp, bert: RunningApp) -> None:
    """Neither how many there were in between, nor whether there were any."""
    greetings = []
    for makes_one in (False, False, True):
        if makes_one:
            await anna.create_session()
        async with bert.events(ids=True) as events:
            greetings.append((await events.until("server.connected")).cursor)
    assert all(greetings) and len(set(greetings)) == 3
    anna.provider.add([SECRET])
    async with anna.events() as first:
        greeting = await first.until("server.connected")
        await anna.prompt((await anna.create_session())["id"], "Hi")
        idle = await first.until("session.idle")
    assert len({event.event_id for event in first.seen}) == len(first.seen)
    assert {read_cursor(event.event_id).seq for event in first.seen} == {NEVER_GIVEN}, "they are no numbers"
    async with anna.events(cursor=greeting.event_id) as again:
        assert (await again.until("session.idle")).event_id == idle.event_id
    assert "server.resync" not in again.types
    for who, foreign in ((bert, idle.event_id), (anna, greetings[0])):
        async with who.events(cursor=foreign) as refused:
            await refused.until("server.resync")


async def test_pages_of_messages_are_found_by_cursors_that_tell_no_counts(anna: RunningApp) -> None:
    session = await anna.create_session()
    path = f"/session/{session['id']}/message"
    for text in ("one", "two", "three"):
        await anna.prompt(session["id"], text, noReply=True)
    cursor = (await anna.client.get(path, params={"limit": 1})).headers["x-next-cursor"]
    assert not cursor.isdigit()
    [older] = await anna.get(path, params={"limit": 1, "before": cursor})
    assert texts(older) == ["two"]
    await anna.get(path, params={"before": "2"}, expect=400)


async def test_what_one_user_always_allows_another_is_still_asked(anna: RunningApp, bert: RunningApp) -> None:
    anna.provider.add(*[[bash("echo x")], [say()]] * 3)
    mine, other = [await who.create_session(title="t", permission=ASK) for who in (anna, bert)]
    async with anna.events() as events:
        await anna.prompt_async(mine["id"], "one")
        asked = await events.until("permission.asked")
        await anna.post(f"/permission/{asked.properties['id']}/reply", {"reply": "always"})
        await events.until("session.idle")
        await anna.prompt_async(mine["id"], "two")
        await events.until("session.idle", count=2)
        assert len(events.of_type("permission.asked")) == 1, "it is remembered for her"
    async with bert.events() as events:
        await bert.prompt_async(other["id"], "three")
        await events.until("permission.asked")
        assert len(await bert.get("/permission")) == 1 and await anna.get("/permission") == []


async def test_nothing_leads_a_member_out_of_their_roots(app: RunningApp, tmp_path: Path) -> None:
    """Neither a rule nor a reply, which are the member's own; nor what the server reads for them: an attached file, instructions
    that the configuration names, a variable or a file that it quotes."""
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    for directory in (own, foreign):
        directory.mkdir()
    note = foreign / "note.txt"
    note.write_text("the secret of bert")
    calls = [
        call("read", filePath=str(note)),
        call("list", path=str(foreign)),
        call("grep", path=str(foreign), pattern="secret"),
        bash(f"cat {note}"),
        call("write", filePath=str(note), content="gone"),
    ]
    app.provider.add(calls, [say()], [say()])
    async with user(app, "anna", roots=[own]) as anna:
        session = await anna.create_session(title="t", permission=[{"permission": "*", "pattern": "*", "action": "allow"}])
        await anna.prompt(session["id"], "Go")
        states = {part["tool"]: str(part["state"]) for part in tools(await anna.messages(session["id"]))}
        assert states.keys() == {each["tool"] for each in calls}
        for state in states.values():
            assert "outside the directories that this user may work in" in state and "the secret of bert" not in state
        assert note.read_text() == "the secret of bert"
        (own / "AGENTS.md").symlink_to(note)
        (own / "opencode.json").write_text(f'{{"instructions": ["{note}"], "username": "a{{env:HOME}}b"}}')
        file = {"type": "file", "mime": "text/plain", "url": note.as_uri()}
        refused = await anna.post(f"/session/{session['id']}/message", {"parts": [text_part("Hi"), file]}, expect=400)
        assert "outside the directories" in str(refused)
        await anna.prompt(session["id"], "Hi")
        assert "the secret of bert" not in str(app.provider.requests)
        assert (await anna.get("/config"))["username"] == "ab"
        (own / "opencode.json").write_text(f'{{"username": "{{file:{note}}}"}}')
        assert "the secret of bert" not in str(await anna.get("/config", expect=500))


@pytest.mark.parametrize("change", ["removed", "viewer", "other roots"])
async def test_what_runs_for_a_user_ends_when_they_may_not_do_it_any_more(app: RunningApp, tmp_path: Path, change: str) -> None:
    """A turn whose command runs, with what is queued behind it; one that waits for a permission; a shell line; a terminal."""
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    app.provider.add([bash("touch began; sleep 1000")], [bash("echo x")], [say("never said")], [say("never said")])
    await add_user(app, "bert", roots=[own])
    async with user(app, "anna", roots=[own]) as anna, user(app, "root", "admin") as root:
        running, shell = await anna.create_session(title="t"), await anna.create_session(title="t")
        await anna.prompt_async(running["id"], "one")
        await until((own / "began").exists)
        await anna.prompt_async(running["id"], "two", whenBusy="queue")
        asking = await anna.create_session(title="t", permission=ASK)
        async with anna.events() as events:
            await anna.prompt_async(asking["id"], "three")
            await events.until("permission.asked")
        line = {"agent": "build", "command": "touch shell; sleep 1000"}
        sent = asyncio.create_task(anna.client.post(f"/session/{shell['id']}/shell", json=line))
        await until((own / "shell").exists)
        terminal = await anna.post("/pty", {"command": "sleep", "args": ["1000"]})
        users = app.services.users
        if change == "removed":
            await users.remove("anna")
        elif change == "viewer":
            await users.change(User("anna", Role.VIEWER, (str(own.resolve()),)))
        else:
            await users.change(User("anna", Role.MEMBER, (str(other.resolve()),)))
        assert (await asyncio.wait_for(sent, 30)).status_code
        await until(lambda: not psutil.pid_exists(terminal["pid"]), "the terminal's end")
        directory = {"directory": str(own)}

        async def is_idle() -> bool:
            return not app.services.live.at_work and await root.get("/session/status", params=directory) == {}

        await until(is_idle)
        first, second = infos(await root.messages(running["id"]), "assistant")
        assert first["error"]["name"] == "MessageAbortedError" and second["error"]["name"] == "UnknownError", (first, second)
        [refused] = infos(await root.messages(asking["id"]), "assistant")
        assert refused["error"]["name"] == "MessageAbortedError"
        assert await root.get("/permission", params=directory) == [] and await root.get("/pty", params=directory) == []
        assert "never said" not in str([await root.messages(each["id"]) for each in (running, asking, shell)])


async def test_a_command_that_is_expanded_when_its_user_is_removed_ends_when_its_turn_begins(
    app: RunningApp, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    template = "!`touch began; until [ -e go ]; do sleep 0.1; done`"
    (own / "opencode.json").write_text(json.dumps({"command": {"slow": {"template": template}}}))
    app.provider.add([{"wait": asyncio.Event()}])
    await add_user(app, "bert", roots=[own])
    async with user(app, "anna", roots=[own]) as anna:
        command, slow = f"/session/{(await anna.create_session(title='t'))['id']}/command", {"command": "slow", "arguments": ""}
        sent = asyncio.create_task(anna.client.post(command, json=slow))
        await until((own / "began").exists)
        await app.services.users.remove("anna")
        await asyncio.sleep(2.5)  # until the change is known, and what runs by then has ended
        (own / "go").touch()
        answer = (await asyncio.wait_for(sent, 30)).json()
        assert answer["info"]["error"]["name"] == "MessageAbortedError", answer


# Keys of users, and budgets.

KEY = {"type": "api", "key": "sk-of-anna-alone"}


async def connected(app: RunningApp) -> list[str]:
    return sorted((await app.get("/provider"))["connected"])


async def stored_bodies(app: RunningApp) -> list[str]:
    return [row.body for row in await app.services.store.query(account_rows.user_keys)]


async def test_a_key_is_its_users_alone_encrypted_and_rotated_with_webhooks_secrets_while_the_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    with webhook_receiver() as receiver:
        async with (
            running_app(tmp_path, webhook_private_addresses=True) as app,
            user(app, "anna") as anna,
            user(app, "bert") as bert,
        ):
            await anna.call("PUT", "/auth/anthropic", KEY)
            assert await connected(anna) == ["anthropic"] and await connected(bert) == ["scripted"]
            [body] = await stored_bodies(app)
            assert KEY["key"] not in body and not (app.data_dir / "auth.json").exists()
            hook = await anna.post("/webhook", {"url": receiver.url, "events": ["session.idle"]})
            receiver.secret, file = hook["secret"], app.data_dir / "secret.json"
            secret, mode = file.read_text(), file.stat().st_mode & 0o777
            rotated = await asyncio.to_thread(CliRunner().invoke, command, ["secret", "rotate"])
            assert rotated.exit_code == 0 and rotated.output.startswith("2 keys"), rotated.output
            assert await stored_bodies(app) != [body] and file.read_text() != secret and mode == 0o600
            assert await connected(anna) == ["anthropic"]
            assert (await anna.post(f"/webhook/{hook['id']}/test"))["status"] == 204 and receiver.unverified == []
            await anna.call("DELETE", "/auth/anthropic")
            assert await connected(anna) == ["scripted"] and await stored_bodies(app) == []
            entry = {"type": "wellknown", "key": "TOKEN", "token": "secret-token"}
            await anna.call("PUT", "/auth/https://example.com", entry, expect=403)  # an organisation would be everybody's


@pytest.mark.parametrize(
    ("shared", "annas", "roots"), [(None, "scripted", "openai"), (True, "openai", "openai"), (False, "scripted", "scripted")]
)
async def test_the_servers_key_is_for_admins_unless_it_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool | None, annas: str, roots: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-server")
    settings = {} if shared is None else {"shared_keys": shared}
    async with running_app(tmp_path, **settings) as app, user(app, "anna") as anna, user(app, "root", "admin") as root:
        assert (await connected(anna), await connected(root)) == ([annas], [roots])


async def test_a_key_of_the_configuration_is_the_servers_too(app: RunningApp, anna: RunningApp, root: RunningApp) -> None:
    url = {"baseURL": "http://127.0.0.1:1/v1"}
    options = {
        "open": url,
        "keyed": {**url, "apiKey": "sk-of-the-server"},
        "headed": {**url, "headers": {"X-Odd": "of the server"}},
    }
    adapter = {"npm": "@ai-sdk/openai-compatible", "models": {"m": {}}}
    await root.call("PATCH", "/config", {"provider": {name: {**adapter, "options": each} for name, each in options.items()}})
    assert await connected(root) == ["headed", "keyed", "open"] and await connected(anna) == ["open"]
    await anna.call("PUT", "/auth/keyed", KEY)
    assert await connected(anna) == ["keyed", "open"]
    keyed = (await app.services.instances.get(None, "anna")).models.connected["keyed"]
    assert keyed.key == KEY["key"] and "apiKey" not in keyed.options


async def test_who_has_used_up_a_days_budget_gets_no_more_answers(app: RunningApp, bert: RunningApp) -> None:
    used = [{"text": "ok"}, {"usage": {"input": 900, "output": 100}}]
    app.provider.add(used, used)
    async with user(app, "anna", max_tokens=1000) as anna:
        mine, other = await anna.create_session(title="t"), await bert.create_session(title="t")
        assert "error" not in (await anna.prompt(mine["id"], "one"))["info"]
        refused = (await anna.prompt(mine["id"], "two"))["info"]["error"]
        assert refused["name"] == "APIError" and refused["data"]["statusCode"] == 402
        assert "1000 of 1000 tokens" in refused["data"]["message"] and not refused["data"]["isRetryable"]
        assert await anna.get("/session/status") == {}
        assert "error" not in (await bert.prompt(other["id"], "one"))["info"]
    async with user(app, "cora", max_cost=0) as cora:
        refused = (await cora.prompt((await cora.create_session(title="t"))["id"], "one"))["info"]["error"]
        assert "0.00 of 0 dollars" in refused["data"]["message"], "nothing is nothing from the first call on"


async def test_a_call_that_is_aborted_counts_against_the_budget(app: RunningApp) -> None:
    app.provider.add([say("Nearly all of it"), {"wait": asyncio.Event()}])
    async with user(app, "anna", max_tokens=1) as anna:
        session = (await anna.create_session(title="t"))["id"]
        await anna.prompt_async(session, "one")
        await until(lambda: requests(anna))
        await anna.post(f"/session/{session}/abort")
        assert (await anna.prompt(session, "two"))["info"]["error"]["data"]["statusCode"] == 402


async def test_models_of_keys_that_a_user_has_replaced_are_closed(anna: RunningApp) -> None:
    """Also when a turn runs meanwhile: at its end."""
    anna.provider.add([say("One."), {"wait": (gate := asyncio.Event())}])
    session = await anna.create_session()
    answering = asyncio.create_task(anna.prompt(session["id"], "one"))
    await until(lambda: requests(anna))
    counts = []
    for number in range(16):
        await anna.call("PUT", "/auth/anthropic", {**KEY, "key": f"sk-{number}"})
        assert await connected(anna) == ["anthropic"]
        counts.append(alive(Providers))
        if number == 7:
            gate.set()
            assert texts(await answering) == ["One."]
    await until(lambda: alive(Providers) <= counts[0], "the models of replaced keys are closed")


async def test_who_was_added_elsewhere_just_now_is_known(anna: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.users.users.FRESH_SECONDS", 60)
    services = anna.services
    assert await services.users.get("anna") and not await services.users.get("dora")
    await Users(services.database).add(User("dora", Role.MEMBER))
    await asyncio.sleep(2 * ADDED_SECONDS)
    assert await services.users.get("dora")
