import asyncio
import gc
import io
import json
import logging
import math
import re
import threading
import weakref
from datetime import date
from typing import Any

import pytest
from anthropic import __version__ as anthropic_version
from fake_provider import FakeServer, Reply, adapter, ask, events_of, every_adapter, failure_of, sse
from openai import __version__ as openai_version

from app import __version__
from app.events.telemetry.log_lines import set_up_log
from app.providers.anthropic_messages import Anthropic
from app.providers.base import ApiFailure, Finish, MissingKey, StreamStart, TextDelta, TextEnd, TextStart, ToolSpec, Usage
from app.providers.openai_chat import OpenAIChat
from app.providers.openai_responses import OpenAIResponses


def text_chunk(text: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
WHOLE: Any = pytest.mark.parametrize(
    ("kind", "events"),
    [
        (OpenAIChat, [STOP, "[DONE]"]),
        (OpenAIResponses, [{"type": "response.completed", "response": {"status": "completed"}}]),
        (Anthropic, [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]),
    ],
)


async def test_bytes_cut_anywhere_even_within_a_character(server: FakeServer) -> None:
    stream = sse(text_chunk("wörld 🌍")) + sse(STOP) + sse("[DONE]")
    server.reply = Reply([stream[at : at + 1] for at in range(len(stream))])
    assert TextDelta("text-1", "wörld 🌍") in await events_of(adapter(server))


async def test_a_connection_cut_within_the_answer_may_be_retried(server: FakeServer) -> None:
    server.plays(text_chunk("half"), end="cut")
    seen = []
    with pytest.raises(ApiFailure) as failed:
        async for event in adapter(server).stream(ask()):
            seen.append(event)
    assert seen == [StreamStart(), TextStart("text-1"), TextDelta("text-1", "half")]
    assert failed.value.retryable
    assert failed.value.metadata is not None
    assert failed.value.metadata["url"] == f"{server.url}/chat/completions"


async def test_a_reset_connection(server: FakeServer) -> None:
    server.plays(text_chunk("half"), end="reset")
    with pytest.raises(ApiFailure) as failed:
        async for _ in adapter(server).stream(ask()):
            server.may_reset.set()
    assert failed.value.message == "Connection reset by server"
    assert failed.value.retryable
    assert failed.value.metadata is not None
    assert failed.value.metadata["code"] == "ECONNRESET"


@pytest.mark.parametrize(
    "given", [{"idle": 0.05}, {"options": {"timeout": 50}}, {"options": {"timeout": False, "chunkTimeout": 50}}]
)
async def test_a_silent_stream_fails_after_the_idle_time(server: FakeServer, given: dict[str, Any]) -> None:
    server.plays(text_chunk("half"), end="hang")
    failed = await failure_of(adapter(server, **given))
    assert "silent" in failed.message and failed.retryable


async def test_nobody_listens(unused_tcp_port: int) -> None:
    provider = adapter(None, base_url=f"http://127.0.0.1:{unused_tcp_port}/v1")
    failed = await failure_of(provider)
    assert re.search("Cannot connect to 127", failed.message)
    assert failed.retryable
    assert failed.status is None


async def test_a_connection_that_is_closed_before_the_answer() -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        provider = adapter(None, base_url=f"http://127.0.0.1:{port}/v1")
        failed = await failure_of(provider)
        assert re.search(r"broke the connection off|reset by server", failed.message)
    assert failed.retryable


@every_adapter
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_server_that_does_not_speak_tls(kind: type[OpenAIChat], said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        provider = adapter(None, kind, base_url=f"https://127.0.0.1:{port}/v1")
        failed = await failure_of(provider)
        assert re.search(f"127.0.0.1:{port}", failed.message)
    assert failed.retryable


async def test_an_address_that_is_none_is_not_retried() -> None:
    provider = adapter(None, base_url="localhost/v1")
    failed = await failure_of(provider)
    assert not failed.retryable


async def test_a_key_that_no_header_can_carry(server: FakeServer) -> None:
    failed = await failure_of(adapter(server, api_key="key…"))
    assert re.search("API key", failed.message)
    assert not failed.retryable


@every_adapter
@pytest.mark.parametrize("key", [" ", " key "])
async def test_blanks_around_a_key_or_a_header_are_not_sent(server: FakeServer, kind: type[OpenAIChat], key: str) -> None:
    await events_of(adapter(server, kind, api_key=key, headers={"x-mine": " 1 "}))
    headers = server.received[0].headers
    assert headers["x-mine"] == "1"
    assert headers.get("authorization") in (None, f"Bearer {key}".strip())


async def test_requests_at_once_share_one_client(server: FakeServer) -> None:
    server.plays(STOP, "[DONE]")
    provider = adapter(server)
    first, second = await asyncio.gather(events_of(provider), events_of(provider))
    assert first == second == [StreamStart(), Finish("stop", Usage())]
    await provider.close()


async def test_closing_the_iterator_closes_the_connection(server: FakeServer) -> None:
    server.plays(text_chunk("half"), end="hang")
    stream = adapter(server).stream(ask())
    assert await anext(stream) == StreamStart()
    await stream.aclose()
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_the_connection_serves_the_next_request(server: FakeServer) -> None:
    server.plays(text_chunk("x"), STOP, "[DONE]")
    provider = adapter(server)
    await events_of(provider)
    await events_of(provider)
    await provider.close()
    assert server.received[0].peer == server.received[1].peer


@WHOLE
async def test_the_last_event_is_the_end_though_the_server_stays(
    server: FakeServer, kind: type[OpenAIChat], events: list[Any]
) -> None:
    server.plays(*events, end="hang")
    provider = adapter(server, kind, idle=2)
    assert await events_of(provider) == [StreamStart(), Finish("stop", Usage())]


@every_adapter
async def test_cookies_are_not_kept(server: FakeServer, kind: type[OpenAIChat]) -> None:
    server.reply = Reply([], headers={"content-type": "text/event-stream", "set-cookie": "user=1; Path=/"})
    provider = adapter(server, kind)
    for _ in range(2):
        await events_of(provider)
    assert len(server.received) == 2 and "cookie" not in server.received[1].headers


async def test_an_empty_stream_started_but_did_not_finish(server: FakeServer) -> None:
    server.plays()
    assert await events_of(adapter(server)) == [StreamStart()]


async def test_a_last_event_that_is_cut_off_is_left_out(server: FakeServer) -> None:
    server.reply = Reply([sse(text_chunk("a")), b'data: {"choices":[{"delta":{"content":"lo'])
    assert await events_of(adapter(server)) == [StreamStart(), TextStart("text-1"), TextDelta("text-1", "a"), TextEnd("text-1")]


@WHOLE
async def test_notes_ids_and_events_without_data_say_nothing(
    server: FakeServer, kind: type[OpenAIChat], events: list[Any]
) -> None:
    nothing = b"retry: 3000\n\nid: 1\n\n: still here\n\nevent: ping\n\ndata:\n\n\n"
    server.reply = Reply([nothing, *(b"id: 2\n" + sse(event) + nothing for event in events)])
    provider = adapter(server, kind)
    assert await events_of(provider) == [StreamStart(), Finish("stop", Usage())]


async def test_what_came_before_an_unreadable_event_is_yielded(server: FakeServer) -> None:
    server.reply = Reply([sse(text_chunk("a")) + sse("{oops}")])
    seen = []
    with pytest.raises(ApiFailure, match="oops"):
        async for event in adapter(server).stream(ask()):
            seen.append(event)
    assert TextDelta("text-1", "a") in seen


@every_adapter
@pytest.mark.parametrize("event", [b"{oops}", b"[1]", b'"oops"', b"oops \xff", b"7"])
async def test_an_event_that_is_no_object_of_json(server: FakeServer, kind: type[OpenAIChat], event: bytes) -> None:
    server.reply = Reply([b"data: " + event + b"\n\n"])
    failed = await failure_of(adapter(server, kind))
    assert re.search("not a JSON object", failed.message)
    assert not failed.retryable and event.decode(errors="replace") in (failed.body or "")


@every_adapter
async def test_what_is_no_json_of_a_configuration_or_a_plugin_is_sent_as_json(server: FakeServer, kind: type[OpenAIChat]) -> None:
    odd = {"since": date(2026, 1, 2), "ratio": math.nan, 1: "one"}
    provider = adapter(server, kind)
    await events_of(provider, ask(tools=(ToolSpec("t", "T", {"type": "object", "default": odd}),), options={"metadata": odd}))
    sent = {"since": "2026-01-02", "ratio": None, "1": "one"}
    assert server.body["metadata"] == sent
    assert json.dumps(sent) in json.dumps(server.body["tools"])


async def test_headers(server: FakeServer) -> None:
    server.plays(STOP, "[DONE]")
    provider = adapter(server, headers={"x-mine": "1", "x-both": "config"})
    await events_of(provider, ask(headers={"User-Agent": "opencode/1", "x-both": "request"}))
    headers = server.received[0].headers
    assert headers["authorization"] == "Bearer key"
    assert headers["content-type"] == "application/json"
    assert [headers[name] for name in ("x-mine", "x-both", "user-agent")] == ["1", "request", "opencode/1"]


@pytest.mark.parametrize(
    ("kind", "sdk"),
    [
        (OpenAIChat, f"AsyncOpenAI/Python {openai_version}"),
        (OpenAIResponses, f"AsyncOpenAI/Python {openai_version}"),
        (Anthropic, f"AsyncAnthropic/Python {anthropic_version}"),
    ],
)
async def test_requests_name_the_sdk_and_us(server: FakeServer, kind: type[OpenAIChat], sdk: str) -> None:
    await events_of(adapter(server, kind))
    assert server.received[0].headers["user-agent"] == f"{sdk} opensession/{__version__}"


@every_adapter
async def test_what_the_environment_says_of_an_sdk_s_own_server_is_told_to_no_other(
    server: FakeServer, kind: type[OpenAIChat], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "secret-of-the-environment")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "secret-of-the-environment")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "X-Own: secret-of-the-environment\nAuthorization: secret-of-the-environment")
    await events_of(adapter(server, kind))
    assert "secret-of-the-environment" not in str(server.received[0].headers)


@pytest.mark.parametrize(
    ("kind", "key", "own"),
    [
        (Anthropic, None, {"Authorization": "Bearer t", "Anthropic-Version": "2026-10-21"}),
        (OpenAIChat, "key", {"authorization": "Token t", "accept": "text/event-stream"}),
        (OpenAIChat, None, {"Authorization": "Token t"}),
    ],
)
async def test_configured_headers_replace_the_sdk_s_whatever_their_case(
    server: FakeServer, kind: type[OpenAIChat], key: str | None, own: dict[str, str]
) -> None:
    await events_of(adapter(server, kind, api_key=key, headers=own))
    headers = server.received[0].headers
    assert {name: headers[name.lower()] for name in own} == own
    assert "x-api-key" not in headers


@pytest.mark.parametrize(
    ("kind", "variable"),
    [(OpenAIChat, "OPENAI_BASE_URL"), (OpenAIResponses, "OPENAI_BASE_URL"), (Anthropic, "ANTHROPIC_BASE_URL")],
)
async def test_an_address_of_the_environment(
    server: FakeServer, kind: type[OpenAIChat], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, server.url)
    await events_of(adapter(server, kind, base_url=None))
    assert server.received[0].path.startswith("/v1/")


@pytest.mark.parametrize(("variable", "scheme"), [("HTTP_PROXY", "http://"), ("ALL_PROXY", "http://"), ("HTTP_PROXY", "")])
async def test_a_proxy_of_the_environment(
    server: FakeServer, variable: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.plays(STOP, "[DONE]")
    monkeypatch.setenv(variable, f"{scheme}127.0.0.1:{server.port}")
    await events_of(adapter(server, base_url="http://models.invalid/v1"))
    assert server.received[0].path == "http://models.invalid/v1/chat/completions"


@pytest.mark.parametrize(("status", "retryable"), [(407, False), (503, True)])
async def test_a_proxy_that_refuses_is_told_of_without_its_password(
    status: int, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d Not Now\r\ncontent-length: 0\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1") as proxy:
        port = proxy.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:hunter2@127.0.0.1:{port}")
        failed = await failure_of(adapter(None, base_url="https://models.invalid/v1"))
    assert failed.message == f"The proxy refuses a connection to models.invalid: {status} Not Now"
    assert failed.retryable is retryable and "hunter2" not in str(failed.metadata)


@pytest.mark.parametrize(
    "proxy", ["user:hunter2@127.0.0.1:none", "ftp://user:hunter2@127.0.0.1", "socks5://user:hunter2@127.0.0.1"]
)
async def test_a_proxy_whose_address_is_none_is_told_of_without_its_password(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    failed = await failure_of(adapter(None, base_url="https://models.invalid/v1"))
    assert failed.message == "The address https://models.invalid/v1/chat/completions, or that of the proxy, is not valid"
    assert not failed.retryable


async def test_a_host_that_the_environment_excepts_from_the_proxy(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.plays(STOP, "[DONE]")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    await events_of(adapter(server))
    assert server.received[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
async def test_a_server_of_ones_own_needs_no_key(
    server: FakeServer, kind: type[OpenAIChat], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-for-openai")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "secret-for-openai")
    await events_of(adapter(server, kind, api_key=None))
    assert "authorization" not in server.received[0].headers


@every_adapter
async def test_openai_and_anthropic_need_a_key(kind: type[OpenAIChat]) -> None:
    with pytest.raises(MissingKey) as failed:
        await events_of(adapter(None, kind, api_key=None, base_url=None))
    assert failed.value.provider_id == "fake"


async def test_one_that_is_closed_while_it_opens(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    may_open, made, provider = threading.Event(), [], adapter(server)
    make = provider._make

    def late() -> Any:
        assert may_open.wait(10)
        made.append(make())
        return made[0]

    monkeypatch.setattr(provider, "_make", late)
    opening = asyncio.create_task(provider._opened())
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


@pytest.mark.parametrize("status", [401, 200])
async def test_a_failure_quotes_neither_key_nor_secret_headers(server: FakeServer, status: int) -> None:
    refusal = b'{"error": {"message": "Wrong: sk-secret-1, secret-of-gateway, secret-of-model"}}'
    server.reply = Reply([refusal if status == 401 else b"data: " + refusal + b"\n\n"], status)
    provider = adapter(server, api_key="sk-secret-1", headers={"X-Gateway-Token": "secret-of-gateway"})
    failed = await failure_of(provider, ask(headers={"X-Model-Key": "secret-of-model"}))
    assert failed.message.endswith("Wrong: ********, ********, ********")
    assert "secret" not in f"{failed} {failed.body}"


@every_adapter
async def test_the_finest_log_tells_neither_key_nor_conversation(
    server: FakeServer, kind: type[OpenAIChat], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, lines = logging.getLogger(), io.StringIO()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    set_up_log("text", "debug")
    root.addHandler(logging.StreamHandler(lines))
    try:
        provider = adapter(server, kind, api_key="sk-secret-1", headers={"X-Token": "sk-secret-2"})
        await events_of(provider, ask("words of a user"))
    finally:
        root.setLevel(level)
    assert len(server.received) == 1
    assert not [secret for secret in ("sk-secret", "words of a user") if secret in lines.getvalue()]
