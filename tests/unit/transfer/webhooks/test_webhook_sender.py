"""Requests to receivers: signed, to checked addresses alone, in bounded time, without redirects."""

import asyncio
import json
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import httpx2
import pytest
from doc_snippets import blocks
from running_server import ROOT
from webhook_receiver import Receiver, webhook_receiver

from app.tools.web import PinnedRequests
from app.transfer.webhooks.message import SendResult, WebhookSender, message, message_id, new_secret
from app.transfer.webhooks.worker import GIVE_UP_AFTER_MS, next_attempt

MESSAGE = message("evt_1", "session.idle", 1_700_000_000_000, "/d", {"sessionID": "ses_1"})


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with webhook_receiver() as running:
        running.secret = new_secret()
        yield running


def requests_to(*addresses: str, allow_private: bool = False) -> PinnedRequests:
    """Each look-up finds the next of these; the last stays."""
    left = list(addresses)

    async def resolve(_host: str, _port: int) -> list[Any]:
        return [ip_address(left.pop(0) if len(left) > 1 else left[0])]

    return PinnedRequests(allow_private=allow_private, resolve=resolve)


async def sent_to(receiver: Receiver, requests: PinnedRequests | None = None, **changes: Any) -> SendResult:
    sender = WebhookSender(requests or PinnedRequests(allow_private=True), changes.pop("seconds", 60.0))
    try:
        return await sender.send(changes.get("url", receiver.url), changes.get("secret", receiver.secret), MESSAGE)
    finally:
        await sender.close()


async def test_the_librarys_verifier_accepts_it_and_no_other_secret(receiver: Receiver) -> None:
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
    result = await sent_to(receiver, secret=new_secret())
    assert (result.status, result.error) == (401, "it answered 401") and receiver.unverified


async def test_redirects_late_answers_and_none_are_no_acceptance(receiver: Receiver) -> None:
    receiver.status = lambda received: 307
    result = await sent_to(receiver)
    assert result.status == 307 and "not followed" in str(result.error) and len(receiver.received) == 1
    receiver.seconds = 3.0
    result = await sent_to(receiver, seconds=0.2)
    assert (result.status, result.error) == (None, "no answer within 0.2 seconds")
    result = await sent_to(receiver, url="http://127.0.0.1:1/hook")
    assert result.status is None and str(result.error).startswith("ConnectError")


async def test_what_a_receiver_sends_instead_of_http_is_told_in_short(receiver: Receiver) -> None:
    """It is stored with each attempt."""

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\xff" * 60_000 + b"\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(send, "127.0.0.1", 0) as server:
        result = await sent_to(receiver, url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert str(result.error).startswith("RemoteProtocolError: illegal status line") and len(str(result.error)) <= 500


async def test_private_addresses_are_denied_and_not_told(receiver: Receiver) -> None:
    url = receiver.url.replace("127.0.0.1", "receiver.example")
    for address in ("127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fe80::1", "::ffff:127.0.0.1"):
        result = await sent_to(receiver, requests_to(address), url=url)
        assert "not a public address" in str(result.error) and address not in str(result.error), address
    bound_again = requests_to("93.184.216.34", "127.0.0.1")
    await bound_again.checked_addresses(httpx2.URL(url))
    result = await sent_to(receiver, bound_again, url=url)
    assert "not a public address" in str(result.error), "found public when it was made, private when it is delivered"
    assert receiver.received == []


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(receiver: Receiver) -> None:
    """Whatever the system finds for the name by then: it does not exist."""
    requests = requests_to("127.0.0.1", "10.1.2.3", allow_private=True)
    result = await sent_to(receiver, requests, url=receiver.url.replace("127.0.0.1", "receiver.invalid"))
    assert result.error is None
    assert receiver.received[0].headers["host"].startswith("receiver.invalid:")


def test_attempts_end_a_day_after_the_first_failure() -> None:
    assert next_attempt(1, 0, 0) == 5_000
    assert next_attempt(40, 0, 1_000_000) == 1_000_000 + 3_600_000
    assert next_attempt(40, 0, GIVE_UP_AFTER_MS - 1) == GIVE_UP_AFTER_MS
    assert next_attempt(40, 0, GIVE_UP_AFTER_MS) is None


def test_the_body_is_what_the_page_shows_and_its_id_is_of_the_webhook_and_the_event() -> None:
    (shown,) = [block.code for block in blocks((ROOT / "docs" / "webhooks.md").read_text()) if block.kind == "json webhook"]
    body = json.loads(shown)
    sent = message("1", body["type"], 1_769_153_255_000, body["directory"], body["data"], body["id"].encode()).body
    assert json.loads(sent) == body
    assert message_id("a", 1) == message_id("a", 1) != message_id("a", 2) != message_id("b", 2)
