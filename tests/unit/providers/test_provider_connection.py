"""The connection to a provider: how it breaks, what goes along with a request, what is told of it, and how it ends."""

import asyncio
import gc
import io
import json
import logging
import math
import re
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from importlib.metadata import version
from typing import Any

import pytest
from fake_provider import FakeServer, Reply, adapter, ask, events_of, every_wire, failure_of, finish, sse, text

from app import __version__
from app.events.telemetry.log_lines import set_up_log
from app.providers import base

START = base.StreamStart()
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
WHOLE: dict[str, list[Any]] = {
    "chat": [STOP, "[DONE]"],
    "responses": [{"type": "response.completed", "response": {"status": "completed"}}],
    "messages": [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}],
}


def chunk(text: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


@asynccontextmanager
async def saying(said: bytes, reads: str | int = 0) -> AsyncIterator[int]:
    """A server that reads so much, says this, and closes the connection; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (reader.readuntil(b"\r\n\r\n") if reads == "head" else reader.read(int(reads)))
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_bytes_cut_anywhere_even_within_a_character(server: FakeServer) -> None:
    stream = sse(chunk("wörld 🌍")) + sse(STOP) + sse("[DONE]")
    server.reply = Reply([stream[at : at + 1] for at in range(len(stream))])
    assert base.BlockDelta("text", "text-1", "wörld 🌍") in await events_of(adapter(server))


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_a_connection_that_breaks_within_the_answer_may_be_retried(server: FakeServer, end: Any) -> None:
    server.plays(chunk("half"), end=end)
    seen = []
    with pytest.raises(base.ApiFailure) as failed:
        async for event in adapter(server).stream(ask()):
            seen.append(event)
            server.may_reset.set()
    told, metadata = failed.value, failed.value.metadata or {}
    assert told.retryable and metadata["url"] == f"{server.url}/chat/completions"
    if end == "cut":
        assert seen == [START, *text("text-1", "half")[:2]]
    else:
        assert (told.message, metadata["code"]) == ("Connection reset by server", "ECONNRESET")


@pytest.mark.parametrize(
    "given", [{"idle": 0.05}, {"options": {"timeout": 50}}, {"options": {"timeout": False, "chunkTimeout": 50}}]
)
async def test_a_silent_stream_fails_after_the_idle_time(server: FakeServer, given: dict[str, Any]) -> None:
    server.plays(chunk("half"), end="hang")
    failed = await failure_of(adapter(server, **given))
    assert "silent" in failed.message and failed.retryable


async def test_where_nobody_listens_or_says_anything_it_may_be_retried(unused_tcp_port: int) -> None:
    failed = await failure_of(adapter(None, base_url=f"http://127.0.0.1:{unused_tcp_port}/v1"))
    assert "Cannot connect to 127" in failed.message and failed.retryable and failed.status is None
    async with saying(b"") as port:
        failed = await failure_of(adapter(None, base_url=f"http://127.0.0.1:{port}/v1"))
    assert re.search(r"broke the connection off|reset by server", failed.message) and failed.retryable


@every_wire
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_server_that_does_not_speak_tls(wire: str, said: bytes) -> None:
    async with saying(said, 10) as port:
        failed = await failure_of(adapter(None, wire, base_url=f"https://127.0.0.1:{port}/v1"))
    assert f"127.0.0.1:{port}" in failed.message and failed.retryable


async def test_an_address_that_is_none_or_a_key_that_no_header_can_carry_is_not_retried(server: FakeServer) -> None:
    assert not (await failure_of(adapter(None, base_url="localhost/v1"))).retryable
    failed = await failure_of(adapter(server, api_key="key…"))
    assert "API key" in failed.message and not failed.retryable


async def test_what_came_before_an_unreadable_event_is_yielded(server: FakeServer) -> None:
    server.reply = Reply([sse(chunk("a")) + sse("{oops}")])
    seen = []
    with pytest.raises(base.ApiFailure, match="oops"):
        async for event in adapter(server).stream(ask()):
            seen.append(event)
    assert base.BlockDelta("text", "text-1", "a") in seen


@every_wire
@pytest.mark.parametrize("event", [b"{oops}", b"[1]", b'"oops"', b"oops \xff", b"7"])
async def test_an_event_that_is_no_object_of_json(server: FakeServer, wire: str, event: bytes) -> None:
    server.reply = Reply([b"data: " + event + b"\n\n"])
    failed = await failure_of(adapter(server, wire))
    assert "not a JSON object" in failed.message
    assert not failed.retryable and event.decode(errors="replace") in (failed.body or "")


async def test_a_stream_that_ends_early_has_no_finish(server: FakeServer) -> None:
    server.plays()
    assert await events_of(adapter(server)) == [START]
    server.reply = Reply([sse(chunk("a")), b'data: {"choices":[{"delta":{"content":"lo'])
    assert await events_of(adapter(server)) == [START, *text("text-1", "a")], "a last event that is cut off is left out"


@every_wire
async def test_the_last_event_is_the_end_though_the_server_stays(server: FakeServer, wire: str) -> None:
    server.plays(*WHOLE[wire], end="hang")
    assert await events_of(adapter(server, wire, idle=2)) == [START, finish("stop")]


@every_wire
async def test_an_answer_that_is_read_leaves_no_generator_for_the_loop_to_close(server: FakeServer, wire: str) -> None:
    """Each would cost a task."""
    left: list[Any] = []

    def noting(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
        if type(work).__name__ == "async_generator_athrow":
            left.append(work)
        return asyncio.Task(work, loop=loop, **options)

    server.plays(*WHOLE[wire])
    asyncio.get_running_loop().set_task_factory(noting)
    await events_of(adapter(server, wire))
    gc.collect()
    await asyncio.sleep(0)
    assert left == []


@every_wire
async def test_notes_ids_and_events_without_data_say_nothing(server: FakeServer, wire: str) -> None:
    nothing = b"retry: 3000\n\nid: 1\n\n: still here\n\nevent: ping\n\ndata:\n\n\n"
    server.reply = Reply([nothing, *(b"id: 2\n" + sse(event) + nothing for event in WHOLE[wire])])
    assert await events_of(adapter(server, wire)) == [START, finish("stop")]


async def test_closing_the_iterator_closes_the_connection(server: FakeServer) -> None:
    server.plays(chunk("half"), end="hang")
    stream = adapter(server).stream(ask())
    assert await anext(stream) == START
    await stream.aclose()
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_requests_at_once_share_a_client_and_the_next_one_its_connection(server: FakeServer) -> None:
    server.plays(STOP, "[DONE]")
    provider = adapter(server)
    first, second = await asyncio.gather(events_of(provider), events_of(provider))
    assert first == second == [START, finish("stop")]
    await events_of(provider)
    await provider.close()
    assert server.received[2].peer in (server.received[0].peer, server.received[1].peer)


@every_wire
async def test_cookies_are_not_kept(server: FakeServer, wire: str) -> None:
    server.reply = Reply([], headers={"content-type": "text/event-stream", "set-cookie": "user=1; Path=/"})
    provider = adapter(server, wire)
    for _ in range(2):
        await events_of(provider)
    assert len(server.received) == 2 and "cookie" not in server.received[1].headers


async def test_one_that_is_closed_while_it_opens(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    may_open, made, provider = threading.Event(), [], adapter(server)
    make = provider._make

    def late() -> Any:
        assert may_open.wait(10)
        made.append(make())
        return made[0]

    monkeypatch.setattr(provider, "_make", late)
    opening = asyncio.create_task(provider._open_client())
    await asyncio.sleep(0)
    closing = asyncio.create_task(provider.close())
    await asyncio.sleep(0)
    may_open.set()
    await asyncio.gather(opening, closing)
    assert made[0].is_closed()
    with pytest.raises(RuntimeError, match="closed"):
        await events_of(provider)


async def test_a_closed_provider_is_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        closing = adapter(None, base_url="http://127.0.0.1:9")
        freed = weakref.ref(closing)
        await closing.close()
        del closing
        assert freed() is None
    finally:
        gc.enable()


@every_wire
async def test_what_is_no_json_of_a_configuration_or_a_plugin_is_sent_as_json(server: FakeServer, wire: str) -> None:
    odd = {"since": date(2026, 1, 2), "ratio": math.nan, 1: "one"}
    tools = (base.ToolSpec("t", "T", {"type": "object", "default": odd}),)
    await events_of(adapter(server, wire), ask(tools=tools, options={"metadata": odd}))
    sent = {"since": "2026-01-02", "ratio": None, "1": "one"}
    assert server.body["metadata"] == sent and json.dumps(sent) in json.dumps(server.body["tools"])


async def test_headers_of_the_request_go_before_those_of_the_configuration(server: FakeServer) -> None:
    provider = adapter(server, headers={"x-mine": "1", "x-both": "config"})
    await events_of(provider, ask(headers={"User-Agent": "opencode/1", "x-both": "request"}))
    expected = {"authorization": "Bearer key", "content-type": "application/json", "x-mine": "1"}
    expected |= {"x-both": "request", "user-agent": "opencode/1"}
    assert expected.items() <= server.received[0].headers.items()


@every_wire
@pytest.mark.parametrize("key", [" ", " key "])
async def test_blanks_around_a_key_or_a_header_are_not_sent_and_the_sdk_and_we_are_named(
    server: FakeServer, wire: str, key: str
) -> None:
    await events_of(adapter(server, wire, api_key=key, headers={"x-mine": " 1 "}))
    headers = server.received[0].headers
    assert headers["x-mine"] == "1" and headers.get("authorization") in (None, f"Bearer {key}".strip())
    name, package = ("AsyncAnthropic", "anthropic") if wire == "messages" else ("AsyncOpenAI", "openai")
    sdk = f"{name}/Python {version(package)}"
    assert headers["user-agent"] == f"{sdk} opensession/{__version__}"


async def test_configured_headers_replace_the_sdk_s_whatever_their_case(server: FakeServer) -> None:
    for wire, key, own in (
        ("messages", None, {"Authorization": "Bearer t", "Anthropic-Version": "2026-10-21"}),
        ("chat", "key", {"authorization": "Token t", "accept": "text/event-stream"}),
        ("chat", None, {"Authorization": "Token t"}),
    ):
        await events_of(adapter(server, wire, api_key=key, headers=own))
        headers = server.received[-1].headers
        assert {name: headers[name.lower()] for name in own} == own and "x-api-key" not in headers


@every_wire
async def test_what_the_environment_says_of_an_sdk_s_own_server_is_told_to_no_other(
    server: FakeServer, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai, secret = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"), "secret-of-the-environment"
    for name in (*openai, "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, secret)
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, f"X-Own: {secret}\nAuthorization: {secret}")
    await events_of(adapter(server, wire))
    if wire != "messages":
        await events_of(adapter(server, wire, api_key=None))
        assert "authorization" not in server.received[1].headers, "a server of one's own needs no key"
    assert secret not in str([asked.headers for asked in server.received])


@every_wire
async def test_openai_and_anthropic_need_a_key_and_are_where_the_environment_says(
    server: FakeServer, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(base.MissingKey) as failed:
        await events_of(adapter(None, wire, api_key=None, base_url=None))
    assert failed.value.provider_id == "fake"
    monkeypatch.setenv("ANTHROPIC_BASE_URL" if wire == "messages" else "OPENAI_BASE_URL", server.url)
    await events_of(adapter(server, wire, base_url=None))
    assert server.received[0].path.startswith("/v1/")


@pytest.mark.parametrize(("variable", "scheme"), [("HTTP_PROXY", "http://"), ("ALL_PROXY", "http://"), ("HTTP_PROXY", "")])
async def test_a_proxy_of_the_environment_and_a_host_that_it_excepts(
    server: FakeServer, variable: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"{scheme}127.0.0.1:{server.port}")
    await events_of(adapter(server, base_url="http://models.invalid/v1"))
    monkeypatch.setenv(variable, f"{scheme}proxy.invalid")
    await events_of(adapter(server))
    assert [asked.path for asked in server.received] == ["http://models.invalid/v1/chat/completions", "/v1/chat/completions"]


@pytest.mark.parametrize(("status", "retryable"), [(407, False), (503, True)])
async def test_a_proxy_that_refuses_is_told_of_without_its_password(
    status: int, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with saying(b"HTTP/1.1 %d Not Now\r\ncontent-length: 0\r\n\r\n" % status, "head") as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:hunter2@127.0.0.1:{port}")
        failed = await failure_of(adapter(None, base_url="https://models.invalid/v1"))
    assert failed.message == f"The proxy refuses a connection to models.invalid: {status} Not Now"
    assert failed.retryable is retryable and "hunter2" not in str(failed.metadata)


@every_wire
async def test_a_port_that_there_is_not_is_told_of(wire: str) -> None:
    failed = await failure_of(adapter(None, wire, base_url="http://127.0.0.1:99999/v1"))
    assert "127.0.0.1:99999" in failed.message and "is not valid" in failed.message


@pytest.mark.parametrize("proxy", ["{}:none", "ftp://{}", "socks5://{}"])
async def test_a_proxy_whose_address_is_none_is_told_of_without_its_password(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.format("user:hunter2@127.0.0.1"))
    failed = await failure_of(adapter(None, base_url="https://models.invalid/v1"))
    assert failed.message == "The address https://models.invalid/v1/chat/completions, or that of the proxy, is not valid"
    assert not failed.retryable


@pytest.mark.parametrize("status", [401, 200])
async def test_a_failure_quotes_neither_key_nor_secret_headers(server: FakeServer, status: int) -> None:
    refusal = b'{"error": {"message": "Wrong: sk-secret-1, secret-of-gateway, secret-of-model"}}'
    server.reply = Reply([refusal if status == 401 else b"data: " + refusal + b"\n\n"], status)
    provider = adapter(server, api_key="sk-secret-1", headers={"X-Gateway-Token": "secret-of-gateway"})
    for _ in range(2):
        failed = await failure_of(provider, ask(headers={"X-Model-Key": "secret-of-model"}))
        assert failed.message.endswith("Wrong: ********, ********, ********")
        assert "secret" not in f"{failed} {failed.body}"


@every_wire
async def test_the_finest_log_tells_neither_key_nor_conversation(
    server: FakeServer, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, lines = logging.getLogger(), io.StringIO()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    set_up_log("text", "debug")
    root.addHandler(logging.StreamHandler(lines))
    try:
        provider = adapter(server, wire, api_key="sk-secret-1", headers={"X-Token": "sk-secret-2"})
        await events_of(provider, ask("words of a user"))
    finally:
        root.setLevel(level)
    assert len(server.received) == 1
    assert not [secret for secret in ("sk-secret", "words of a user") if secret in lines.getvalue()]
