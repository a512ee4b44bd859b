"""Requests to receivers: signed, to checked addresses alone, in bounded time, without redirects."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from doc_snippets import blocks
from running_server import ROOT
from standardwebhooks import Webhook as Verifier
from webhook_desk import requests_to
from webhook_receiver import Receiver, webhook_receiver

from app.tools.web import PinnedRequests
from app.transfer.webhooks.message import SendResult, WebhookSender, is_secret, message, message_id, new_secret, problem
from app.transfer.webhooks.worker import GIVE_UP_AFTER_MS, next_attempt

MESSAGE = message("evt_1", "session.idle", 1_700_000_000_000, "/d", {"sessionID": "ses_1"})
ANYWHERE = PinnedRequests(allow_private=True)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with webhook_receiver() as running:
        running.secret = new_secret()
        yield running


async def sent_to(receiver: Receiver, requests: PinnedRequests = ANYWHERE, seconds: float = 60.0) -> SendResult:
    sender = WebhookSender(requests, seconds)
    try:
        return await sender.send(receiver.url, receiver.secret, MESSAGE)
    finally:
        await sender.close()


async def test_the_librarys_verifier_accepts_it(receiver: Receiver) -> None:
    result = await sent_to(receiver)
    assert (result.status, result.error) == (204, None) and receiver.unverified == []
    [received] = receiver.received
    assert received.body == {
        "type": "session.idle",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "directory": "/d",
        "data": {"sessionID": "ses_1"},
    }
    assert received.id == "evt_1" and received.headers["content-type"] == "application/json"


async def test_with_another_secret_it_does_not(receiver: Receiver) -> None:
    sender = WebhookSender(ANYWHERE)
    result = await sender.send(receiver.url, new_secret(), MESSAGE)
    await sender.close()
    assert result.status == 401 and result.error == "it answered 401" and receiver.unverified


async def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.status = lambda received: 307
    result = await sent_to(receiver)
    assert result.status == 307 and result.error is not None and "not followed" in result.error and len(receiver.received) == 1


async def test_who_answers_too_late_has_not_accepted_it(receiver: Receiver) -> None:
    receiver.seconds = 3.0
    result = await sent_to(receiver, seconds=0.2)
    assert result.status is None and result.error == "no answer within 0.2 seconds"


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fe80::1", "::ffff:127.0.0.1"])
async def test_private_addresses_are_denied_and_not_told(receiver: Receiver, address: str) -> None:
    receiver.url = receiver.url.replace("127.0.0.1", "receiver.example")
    result = await sent_to(receiver, requests_to(address))
    assert result.error is not None and "not a public address" in result.error and receiver.received == []
    assert address not in result.error


async def test_a_name_that_is_bound_again_is_checked_again(receiver: Receiver) -> None:
    """Found public when the webhook was made, private when it is delivered."""
    import httpx2

    receiver.url = receiver.url.replace("127.0.0.1", "receiver.example")
    requests = requests_to("93.184.216.34", "127.0.0.1")
    await requests.checked_addresses(httpx2.URL(receiver.url))
    result = await sent_to(receiver, requests)
    assert result.error is not None and "not a public address" in result.error and receiver.received == []


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(receiver: Receiver) -> None:
    """Whatever the system finds for the name by then: it does not exist."""
    receiver.url = receiver.url.replace("127.0.0.1", "receiver.invalid")
    found = asyncio.Queue[None]()

    async def resolve(host: str, port: int) -> list[object]:
        from ipaddress import ip_address

        assert host == "receiver.invalid"
        found.put_nowait(None)
        return [ip_address("127.0.0.1")]

    result = await sent_to(receiver, PinnedRequests(allow_private=True, resolve=resolve))  # type: ignore[arg-type]
    assert result.error is None and found.qsize() == 1
    assert receiver.received[0].headers["host"].startswith("receiver.invalid:")


async def test_what_cannot_be_reached_is_an_error(receiver: Receiver) -> None:
    receiver.url = "http://127.0.0.1:1/hook"
    result = await sent_to(receiver)
    assert result.status is None and result.error is not None and result.error.startswith("ConnectError")


def test_secrets() -> None:
    secret = new_secret()
    assert is_secret(secret) and secret != new_secret() and Verifier(secret)
    for wrong in ("", "whsec_", "whsec_c2hvcnQ=", secret.removeprefix("whsec_"), "whsec_***", "whsec_" + "QUFB" * 40):
        assert not is_secret(wrong), wrong


def test_event_patterns() -> None:
    assert [problem(each) for each in ("*", "session.*", "session.idle", "message.part.*", "webhook.disabled")] == [None] * 5
    for wrong in (
        "",
        "session",
        "session.gone",
        "nothing.*",
        "ses*",
        "*.idle",
        "session.idle*",
        "message.part.delta",
        "server.heartbeat",
    ):
        assert problem(wrong) is not None, wrong
    assert "event streams" in str(problem("message.part.delta"))


def test_attempts_end_a_day_after_the_first_failure() -> None:
    assert next_attempt(1, 0, 0) == 5_000
    assert next_attempt(40, 0, 1_000_000) == 1_000_000 + 3_600_000
    assert next_attempt(40, 0, GIVE_UP_AFTER_MS - 1) == GIVE_UP_AFTER_MS
    assert next_attempt(40, 0, GIVE_UP_AFTER_MS) is None


def test_ids_are_of_the_webhook_and_the_event() -> None:
    assert message_id("a", 1) == message_id("a", 1) != message_id("a", 2) != message_id("b", 2)


def test_the_body_is_what_the_page_shows() -> None:
    (shown,) = [block.code for block in blocks((ROOT / "docs" / "webhooks.md").read_text()) if block.kind == "json webhook"]
    body = json.loads(shown)
    sent = message("1", body["type"], 1_769_153_255_000, body["directory"], body["data"], body["id"].encode()).body
    assert json.loads(sent) == body
