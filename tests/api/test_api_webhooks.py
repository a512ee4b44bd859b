"""Webhooks over the API: what is accepted, who sees them, and that the secret is told once."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from storage_parts import writing
from typer.testing import CliRunner
from user_logins import user
from webhook_receiver import Received, Receiver, webhook_receiver

from app.cli import app as command
from app.events.bus.base import Event

MANY = 1_000
NEVER_CALLED = "http://127.0.0.1:1/hook"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with webhook_receiver() as running:
        yield running


async def until(receiver: Receiver, holds: Callable[[Sequence[Received]], bool]) -> list[Received]:
    return await asyncio.to_thread(receiver.wait, holds)


def has(kind: str) -> Callable[[Sequence[Received]], bool]:
    return lambda received: any(each.type == kind for each in received)


def sessions(receiver: Receiver, path: str) -> set[str]:
    return {each.data["info"]["id"] for each in receiver.received if each.path == path}


async def test_a_receiver_is_called_when_a_turn_is_over(tmp_path: Path, receiver: Receiver) -> None:
    async with running_app(tmp_path, turns=[[{"text": "Hello."}]], webhook_private_addresses=True) as app:
        hook = await app.post("/webhook", {"url": receiver.url, "events": ["session.idle", "session.created"]})
        receiver.secret = hook["secret"]
        session = await app.create_session()
        await app.prompt(session["id"], "Hi")
        received = await until(receiver, has("session.idle"))
        assert [each.type for each in received] == ["session.created", "session.idle"] and receiver.unverified == []
        assert received[1].data == {"sessionID": session["id"]} and received[1].body["directory"] == str(app.directory)
        async with asyncio.timeout(60):
            while len(logged := await app.get(f"/webhook/{hook['id']}/deliveries")) < 2:
                await asyncio.sleep(0.01)
        assert [(each["messageID"], each["status"]) for each in logged] == [(each.id, 204) for each in reversed(received)]


async def test_the_secret_is_told_once_and_stored_encrypted(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "app")
    async with running_app(tmp_path, webhook_private_addresses=True) as app:
        receiver.status = lambda received: 500
        hook = await app.post("/webhook", {"url": f"{receiver.url}?token=tell-nobody", "events": ["*"]})
        path, key = f"/webhook/{hook['id']}", hook["secret"].removeprefix("whsec_")
        await app.create_session()
        await until(receiver, lambda received: len(received) > 0)
        await app.call("PATCH", path, {"secret": hook["secret"], "events": ["session.*"]})
        answers = [
            await app.get("/webhook"),
            await app.get(path),
            await app.get(f"{path}/deliveries"),
            await app.post(f"{path}/test"),
        ]
        assert key not in str(answers) and "secret" not in answers[1]
    stored = b"".join(file.read_bytes() for file in app.data_dir.rglob("*") if file.is_file())
    assert key.encode() not in stored
    # The test's own client logs what it asks for, by the same library.
    told = "".join(record.getMessage() for record in caplog.records if record.name.startswith("app."))
    told += (app.data_dir / "audit.log").read_text()
    assert key not in told and "tell-nobody" not in told and hook["id"] in told


async def test_a_change_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        hook = await app.post("/webhook", {"url": "https://93.184.216.34/hook", "events": ["session.idle"]})
        path = f"/webhook/{hook['id']}"
        await app.call("PATCH", path, {"url": "http://10.0.0.1/"}, expect=400)
        await app.call("PATCH", path, {"events": ["nothing"]}, expect=400)
        assert await app.get(path) == {name: value for name, value in hook.items() if name != "secret"}


async def test_a_webhook_is_changed_and_removed(tmp_path: Path, receiver: Receiver) -> None:
    async with running_app(tmp_path, webhook_private_addresses=True) as app:
        hook = await app.post("/webhook", {"url": receiver.url, "events": ["session.*"]})
        path = f"/webhook/{hook['id']}"
        off = await app.call("PATCH", path, {"enabled": False})
        assert not off["enabled"]
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
        other = await app.post("/webhook", {"url": receiver.url + "/other", "events": ["session.created"]})
        third = await app.create_session()
        received = await until(receiver, lambda got: got[-1].path == "/hook/other")
        assert [each.data["info"]["id"] for each in receiver.of_type("session.created")] == [first["id"], third["id"]]
        assert [each["id"] for each in await app.get("/webhook")] == [other["id"]]


async def backlog(app: RunningApp) -> float:
    lines = (await app.client.get("/metrics")).text.splitlines()
    [line] = [line for line in lines if line.startswith("opensession_webhook_backlog")]
    return float(line.split()[1])


async def test_a_failing_webhook_says_so_and_goes_on_at_once_when_asked(tmp_path: Path, receiver: Receiver) -> None:
    async with running_app(tmp_path, webhook_private_addresses=True, metrics=True) as app:
        receiver.status = lambda received: 503
        assert await backlog(app) == 0
        hook = await app.post("/webhook", {"url": receiver.url, "events": ["session.created"]})
        await app.create_session()
        async with asyncio.timeout(60):
            while "failing" not in (shown := await app.get(f"/webhook/{hook['id']}")):
                await asyncio.sleep(0.01)
        assert await backlog(app) >= 2, "session.created and session.updated"
        assert shown["failing"]["attempts"] == 1
        assert shown["failing"]["nextAttempt"] - shown["failing"]["since"] >= 5_000
        receiver.status = lambda received: 204
        assert "failing" not in await app.call("PATCH", f"/webhook/{hook['id']}", {"enabled": True})
        received = await until(receiver, lambda got: len(got) >= 2)
        assert received[0].id == received[1].id


async def test_members_see_and_are_sent_their_own(tmp_path: Path, receiver: Receiver) -> None:
    async with running_app(tmp_path, webhook_private_addresses=True) as app:
        async with user(app, "anna") as anna, user(app, "bert") as bert, user(app, "vera", "viewer") as vera:
            async with user(app, "root", "admin") as root:
                hers = await anna.post("/webhook", {"url": receiver.url + "/anna", "events": ["session.*"]})
                all_ = await root.post("/webhook", {"url": receiver.url + "/root", "events": ["session.*"]})
                assert hers["owner"] == "anna"
                await vera.post("/webhook", {"url": NEVER_CALLED, "events": ["*"]}, expect=403)
                for other in (bert, vera):
                    assert await other.get("/webhook") == []
                    await other.get(f"/webhook/{hers['id']}", expect=404)
                await bert.call("DELETE", f"/webhook/{hers['id']}", expect=404)
                await bert.call("PATCH", f"/webhook/{hers['id']}", {"url": NEVER_CALLED}, expect=404)
                assert [each["id"] for each in await anna.get("/webhook")] == [hers["id"]]
                assert [each["id"] for each in await root.get("/webhook")] == [hers["id"], all_["id"]]
                secret = await bert.create_session(title="bert's secret")
                await anna.post("/webhook", {"url": receiver.url, "events": ["*"], "sessionID": secret["id"]}, expect=404)
                mine = await anna.create_session(title="anna's")
                await until(receiver, lambda got: any(each.path == "/hook/anna" for each in got))
                await until(receiver, lambda got: sum(each.path == "/hook/root" for each in got) >= 4)
                assert sessions(receiver, "/hook/anna") == {mine["id"]}
                assert sessions(receiver, "/hook/root") == {mine["id"], secret["id"]}


async def test_a_user_has_a_bounded_number(tmp_path: Path) -> None:
    async with running_app(tmp_path, webhook_private_addresses=True, max_webhooks=2) as app:
        body = {"url": NEVER_CALLED, "events": ["session.idle"]}
        async with user(app, "anna") as anna, user(app, "bert") as bert:
            made = [await anna.post("/webhook", body) for _ in range(2)]
            refused = await anna.post("/webhook", body, expect=429)
            assert refused["name"] == "TooManyWebhooksError" and "OPENSESSION_MAX_WEBHOOKS" in refused["data"]["message"]
            await bert.post("/webhook", body)
            await anna.call("DELETE", f"/webhook/{made[0]['id']}")
            await anna.post("/webhook", body)


async def test_a_restarted_server_goes_on_where_it_was(tmp_path: Path, receiver: Receiver) -> None:
    async with running_app(tmp_path, webhook_private_addresses=True) as app:
        receiver.status = lambda received: 503
        await app.post("/webhook", {"url": receiver.url, "events": ["session.created"]})
        session = await app.create_session()
        await until(receiver, lambda got: len(got) > 0)
    receiver.status = lambda received: 204
    async with running_app(tmp_path, webhook_private_addresses=True) as app:
        [hook] = await app.get("/webhook")
        await app.call("PATCH", f"/webhook/{hook['id']}", {"enabled": True})
        received = await until(receiver, lambda got: len(got) > 1)
        assert received[-1].data["info"]["id"] == session["id"] and received[-1].id == received[0].id


async def test_the_secrets_are_encrypted_anew_with_the_others(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    async with running_app(tmp_path, webhook_private_addresses=True) as app:
        hook = await app.post("/webhook", {"url": receiver.url, "events": ["session.idle"]})
        receiver.secret = hook["secret"]
        rotated = await asyncio.to_thread(CliRunner().invoke, command, ["secret", "rotate"])
        assert rotated.exit_code == 0 and rotated.output.startswith("1 keys"), rotated.output
        assert (await app.post(f"/webhook/{hook['id']}/test"))["status"] == 204 and receiver.unverified == []


async def test_without_webhooks_nothing_looks_for_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []

    async with running_app(tmp_path) as app:
        dispatcher: Any = app.fastapi.state.server.deliveries
        look = dispatcher._look

        async def counted() -> bool:
            looks.append(True)
            return bool(await look())

        monkeypatch.setattr(dispatcher, "_look", counted)
        dispatcher._look_seconds = 0.01
        await app.create_session()
        await asyncio.sleep(0.1)
        assert len(looks) <= 1, "only at the start"
        hook = await app.post("/webhook", {"url": "https://93.184.216.34/", "events": ["webhook.disabled"]})
        async with asyncio.timeout(60):
            while len(looks) < 3:
                await asyncio.sleep(0.01)
        await app.call("DELETE", f"/webhook/{hook['id']}")


async def test_a_thousand_events_reach_a_fast_receiver_once_and_in_order(tmp_path: Path, receiver: Receiver, figure: Any) -> None:
    async with running_app(tmp_path, webhook_private_addresses=True) as app:
        hook = await app.post("/webhook", {"url": receiver.url, "events": ["command.executed"]})
        receiver.secret = hook["secret"]
        writer, began = app.fastapi.state.server.writer, time.monotonic()
        for number in range(MANY):
            payload = b'{"type":"command.executed","properties":{"sessionID":"ses_%d","name":"%d"}}' % (number % 7, number)
            session_id, directory = f"ses_{number % 7}", str(app.directory)
            writer.post(writing(events=[Event("command.executed", payload, session_id=session_id, directory=directory)]))
        received = await until(receiver, lambda got: len(got) >= MANY)
        seconds = time.monotonic() - began
        assert [each.data["name"] for each in received] == [str(number) for number in range(MANY)]
        assert len({each.id for each in received}) == MANY and receiver.unverified == []
    figure(f"{MANY} events to a receiver on this machine, each verified: {seconds:.1f} s, {MANY / seconds:.0f} a second")


async def test_a_slow_receiver_holds_up_no_other(tmp_path: Path, receiver: Receiver) -> None:
    with webhook_receiver() as slow:
        slow.seconds = 5.0
        async with running_app(tmp_path, webhook_private_addresses=True) as app:
            for each in (slow, receiver):
                await app.post("/webhook", {"url": each.url, "events": ["session.created"]})
            for _ in range(5):
                await app.create_session()
            await until(receiver, lambda got: len(got) >= 5)
            assert len(slow.received) < 5


async def test_the_address_of_an_internal_name_is_not_told(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, user(app, "anna") as anna:
        for host in ("localhost", "localhost.", "LOCALHOST"):
            answer = await anna.client.post("/webhook", json={"url": f"http://{host}:9/hook", "events": ["*"]})
            assert answer.status_code == 400 and "127.0.0.1" not in answer.text and "::1" not in answer.text
