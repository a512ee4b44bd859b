"""Webhooks over the API: what is accepted, who sees them, and that the secret is told once."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from storage_parts import writing
from user_logins import user
from webhook_receiver import Received, Receiver, webhook_receiver

from app.events.bus.base import Event

MANY = 1_000
NEVER_CALLED = "http://127.0.0.1:1/hook"


SERVED_WITH = {"webhook_private_addresses": True, "metrics": True, "max_webhooks": 2}


async def add(app: RunningApp, url: str, *events: str) -> tuple[dict[str, Any], str]:
    """A webhook and its address in the API."""
    hook = await app.post("/webhook", {"url": url, "events": events or ["session.created"]})
    return hook, f"/webhook/{hook['id']}"


async def until(receiver: Receiver, holds: Callable[[Sequence[Received]], bool]) -> list[Received]:
    return await asyncio.to_thread(receiver.wait, holds)


def has(kind: str) -> Callable[[Sequence[Received]], bool]:
    return lambda received: any(each.type == kind for each in received)


def has_path(path: str, count: int) -> Callable[[Sequence[Received]], bool]:
    return lambda received: sum(each.path == path for each in received) >= count


async def test_a_receiver_is_called_when_a_turn_is_over(app: RunningApp, receiver: Receiver) -> None:
    hook, path = await add(app, receiver.url, "session.idle", "session.created")
    receiver.secret = hook["secret"]
    session = await app.create_session()
    await app.prompt(session["id"], "Hi")
    received = await until(receiver, has("session.idle"))
    assert [each.type for each in received] == ["session.created", "session.idle"] and receiver.unverified == []
    assert received[1].data == {"sessionID": session["id"]} and received[1].body["directory"] == str(app.directory)
    async with asyncio.timeout(60):
        while len(logged := await app.get(f"{path}/deliveries")) < 2:
            await asyncio.sleep(0.01)
    assert [(each["messageID"], each["status"]) for each in logged] == [(each.id, 204) for each in reversed(received)]


async def test_the_secret_is_told_once_and_stored_encrypted(
    app: RunningApp, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "app")
    receiver.status = lambda received: 500
    hook, path = await add(app, f"{receiver.url}?token=tell-nobody", "*")
    key = hook["secret"].removeprefix("whsec_")
    await app.create_session()
    await until(receiver, lambda received: len(received) > 0)
    await app.call("PATCH", path, {"secret": hook["secret"], "events": ["session.*"]})
    shown = await app.get(path)
    answers = [shown, await app.get("/webhook"), await app.get(f"{path}/deliveries"), await app.post(f"{path}/test")]
    assert key not in str(answers) and "secret" not in shown
    stored = b"".join(file.read_bytes() for file in app.data_dir.rglob("*") if file.is_file())
    assert key.encode() not in stored
    # The test's own client logs what it asks for, by the same library.
    told = "".join(record.getMessage() for record in caplog.records if record.name.startswith("app."))
    told += (app.data_dir / "audit.log").read_text()
    assert key not in told and "tell-nobody" not in told and hook["id"] in told


async def test_a_change_to_an_internal_address_is_refused_without_telling_it_and_changes_nothing(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, user(app, "anna") as anna:
        hook, path = await add(anna, "https://93.184.216.34/hook", "session.idle")
        for change in ({"url": "http://10.0.0.1/"}, {"events": ["nothing"]}):
            await anna.call("PATCH", path, change, expect=400)
        assert await anna.get(path) == {name: value for name, value in hook.items() if name != "secret"}
        for host in ("localhost", "localhost.", "LOCALHOST"):
            told = await anna.post("/webhook", {"url": f"http://{host}:9/hook", "events": ["*"]}, expect=400)
            assert "127.0.0.1" not in str(told) and "::1" not in str(told)


async def test_a_webhook_is_changed_and_removed(app: RunningApp, receiver: Receiver) -> None:
    _, path = await add(app, receiver.url, "session.*")
    assert not (await app.call("PATCH", path, {"enabled": False}))["enabled"]
    first = await app.create_session(title="while it was off")
    tested = await app.post(f"{path}/test")
    assert tested["status"] == 204 and "error" not in tested
    assert [each.type for each in receiver.received] == ["webhook.test"]
    await app.call("PATCH", path, {"enabled": True, "url": receiver.url + "/moved", "events": ["session.created"]})
    received = await until(receiver, has("session.created"))
    assert received[-1].data["info"]["id"] == first["id"] and received[-1].path == "/hook/moved"
    await app.call("DELETE", path)
    await app.get(path, expect=404)
    await app.create_session(title="behind it")
    other, _ = await add(app, receiver.url + "/other")
    third = await app.create_session()
    await until(receiver, lambda got: got[-1].path == "/hook/other")
    assert [each.data["info"]["id"] for each in receiver.of_type("session.created")] == [first["id"], third["id"]]
    assert [each["id"] for each in await app.get("/webhook")] == [other["id"]]


async def backlog(app: RunningApp) -> float:
    lines = (await app.client.get("/metrics")).text.splitlines()
    [line] = [line for line in lines if line.startswith("opensession_webhook_backlog")]
    return float(line.split()[1])


async def test_a_failing_webhook_says_so_and_goes_on_at_once_when_asked(app: RunningApp, receiver: Receiver) -> None:
    receiver.status = lambda received: 503
    assert await backlog(app) == 0
    _, path = await add(app, receiver.url)
    await app.create_session()
    async with asyncio.timeout(60):
        while "failing" not in (shown := await app.get(path)):
            await asyncio.sleep(0.01)
    assert await backlog(app) >= 2, "session.created and session.updated"
    assert shown["failing"]["attempts"] == 1
    assert shown["failing"]["nextAttempt"] - shown["failing"]["since"] >= 5_000
    receiver.status = lambda received: 204
    assert "failing" not in await app.call("PATCH", path, {"enabled": True})
    received = await until(receiver, lambda got: len(got) >= 2)
    assert received[0].id == received[1].id


async def test_members_see_and_are_sent_their_own_a_bounded_number(
    anna: RunningApp, bert: RunningApp, vera: RunningApp, root: RunningApp, receiver: Receiver
) -> None:
    (hers, path), (all_, _) = (
        await add(anna, receiver.url + "/anna", "session.*"),
        await add(root, receiver.url + "/root", "session.*"),
    )
    assert hers["owner"] == "anna"
    await vera.post("/webhook", {"url": NEVER_CALLED, "events": ["*"]}, expect=403)
    for other in (bert, vera):
        assert await other.get("/webhook") == []
        await other.get(path, expect=404)
    for method, body in (("DELETE", None), ("PATCH", {"url": NEVER_CALLED})):
        await bert.call(method, path, body, expect=404)
    assert [each["id"] for each in await anna.get("/webhook")] == [hers["id"]]
    assert [each["id"] for each in await root.get("/webhook")] == [hers["id"], all_["id"]]
    secret = await bert.create_session(title="bert's secret")
    await anna.post("/webhook", {"url": receiver.url, "events": ["*"], "sessionID": secret["id"]}, expect=404)
    mine = await anna.create_session(title="anna's")
    await until(receiver, has_path("/hook/anna", 1))
    await until(receiver, has_path("/hook/root", 4))
    sent = {(each.path, each.data["info"]["id"]) for each in receiver.received}
    assert sent == {("/hook/anna", mine["id"]), ("/hook/root", mine["id"]), ("/hook/root", secret["id"])}
    await add(anna, NEVER_CALLED)
    refused = await anna.post("/webhook", {"url": NEVER_CALLED, "events": ["*"]}, expect=429)
    assert refused["name"] == "TooManyWebhooksError" and "OPENSESSION_MAX_WEBHOOKS" in refused["data"]["message"]
    await add(bert, NEVER_CALLED)
    await anna.call("DELETE", path)
    await add(anna, NEVER_CALLED)


async def test_a_restarted_server_goes_on_where_it_was(tmp_path: Path, receiver: Receiver) -> None:
    async with running_app(tmp_path, webhook_private_addresses=True) as app:
        receiver.status = lambda received: 503
        _, path = await add(app, receiver.url)
        session = await app.create_session()
        await until(receiver, lambda got: len(got) > 0)
    receiver.status = lambda received: 204
    async with running_app(tmp_path, webhook_private_addresses=True) as app:
        await app.call("PATCH", path, {"enabled": True})
        received = await until(receiver, lambda got: len(got) > 1)
        assert received[-1].data["info"]["id"] == session["id"] and received[-1].id == received[0].id


async def test_without_webhooks_nothing_looks_for_any(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []
    dispatcher: Any = app.services.deliveries
    look = dispatcher._poll

    async def counted() -> bool:
        looks.append(True)
        return bool(await look())

    monkeypatch.setattr(dispatcher, "_poll", counted)
    dispatcher._poll_seconds = 0.01
    await app.create_session()
    await asyncio.sleep(0.1)
    assert len(looks) <= 1, "only at the start"
    await add(app, "https://93.184.216.34/", "webhook.disabled")
    async with asyncio.timeout(60):
        while len(looks) < 3:
            await asyncio.sleep(0.01)


async def test_a_thousand_events_reach_a_fast_receiver_once_and_in_order_beside_a_slow_one(
    app: RunningApp, receiver: Receiver, figure: Any
) -> None:
    with webhook_receiver() as slow:
        slow.seconds = 5.0
        hook, _ = await add(app, receiver.url, "command.executed")
        await add(app, slow.url, "command.executed")
        receiver.secret, began = hook["secret"], time.monotonic()
        for number in range(MANY):
            payload = b'{"type":"command.executed","properties":{"sessionID":"ses_%d","name":"%d"}}' % (number % 7, number)
            event = Event("command.executed", payload, session_id=f"ses_{number % 7}", directory=str(app.directory))
            app.services.writer.post(writing(events=[event]))
        received = await until(receiver, lambda got: len(got) >= MANY)
        seconds = time.monotonic() - began
        assert [each.data["name"] for each in received] == [str(number) for number in range(MANY)]
        assert len({each.id for each in received}) == MANY and receiver.unverified == []
        assert len(slow.received) < MANY
    figure(f"{MANY} events to a receiver on this machine, each verified: {seconds:.1f} s, {MANY / seconds:.0f} a second")
