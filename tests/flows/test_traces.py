"""What a collector is sent of turns, read with the official protobufs; and that nothing is done for it where nobody asks."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_servers import over_http
from model_server import model_server
from otlp_receiver import OtlpReceiver, attributes, failed, otlp_receiver
from running_app import RunningApp, text_part
from running_server import ROOT, free_port
from turns import bash, call, priced, say, states, talking, task, texts, titled, until

from app.events.telemetry.telemetry import wants_traces

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
PLAIN: Mapping[str, Any] = {}
SECRETS = ("marked-prompt", "marked-answer", "marked-argument", "sk-marked-key")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with otlp_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        yield received


@asynccontextmanager
async def traced(
    base: Path, *turns: Any, config: Mapping[str, Any] = PLAIN, title: str | None = "named"
) -> AsyncIterator[tuple[RunningApp, str]]:
    """What it sends has arrived when the block has ended."""
    async with talking(base, config={**priced(), **config}, turns=turns, title=title) as (app, session):
        yield app, session


async def test_a_turn_with_a_tool_and_a_subagent(tmp_path: Path, collector: OtlpReceiver) -> None:
    usage = {"usage": {"input": 100, "output": 20, "reasoning": 5, "cache_read": 30, "cache_write": 7}}
    turns = [bash("echo one", "call_one"), usage], [task()], [say("Looked.")], [say("Done.")]
    async with traced(tmp_path, *turns) as (app, session):
        await app.prompt(session, "Go")
        [child] = await app.get(f"/session/{session}/children")
    chat = ("chat big", [])
    of_task = ("execute_tool task", [("invoke_agent general", [chat])])
    assert collector.tree() == [("invoke_agent build", [chat, ("execute_tool bash", []), chat, of_task, chat])]
    assert len({span.trace_id for span in collector.spans}) == 1
    names = "invoke_agent build", "chat big", "execute_tool bash"
    turn, model_call, tool_call = (attributes(collector.span(name)) for name in names)
    assert turn == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "build",
        "gen_ai.provider.name": "acme",
        "gen_ai.request.model": "big",
        "gen_ai.conversation.id": session,
        "opensession.turn.outcome": "answered",
    }
    assert 0 <= model_call.pop("gen_ai.response.time_to_first_chunk") < 60
    assert {name: model_call[name] for name in model_call if not name.startswith("gen_ai.request.m")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "acme",
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": session,
        "gen_ai.response.finish_reasons": ["tool-calls"],
        "gen_ai.usage.input_tokens": 137,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 30,
        "gen_ai.usage.cache_creation.input_tokens": 7,
    }
    assert model_call["gen_ai.request.model"] == "big"
    assert tool_call == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "bash",
        "gen_ai.tool.call.id": "call_one",
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": session,
    }
    assert attributes(collector.span("invoke_agent general"))["gen_ai.conversation.id"] == child["id"]
    assert not any(failed(span) for span in collector.spans)
    assert collector.resource()["service.name"] == "opensession"


async def test_what_fails_says_so(tmp_path: Path, collector: OtlpReceiver) -> None:
    failure = {"status": 400, "message": "marked-answer"}
    turns = [call("read", filePath="missing.txt")], [failure], [say("So", chunks=1), {"sleep": 60}]
    async with traced(tmp_path, *turns) as (app, session), app.events() as events:
        await app.prompt(session, "Go")
        await app.prompt_async(session, "Go on")
        await until(lambda: len(app.provider.requests) == 3)
        await app.post(f"/session/{session}/abort")
        await events.until("session.idle", count=2)
    found = [(span.name, attributes(span)["error.type"]) for span in collector.spans if failed(span)]
    of_turns = [("invoke_agent build", "APIError"), ("invoke_agent build", "aborted")]
    assert sorted(found) == [("chat big", "400"), ("chat big", "aborted"), ("execute_tool read", "ToolError"), *of_turns]
    assert [len(span.events) for span in collector.spans if span.events] == [], "exceptions may hold contents"


async def test_contents_and_keys_stay_here(tmp_path: Path, collector: OtlpReceiver) -> None:
    await _say_secrets(tmp_path)
    sent = b"".join(collector.bodies)
    assert b"invoke_agent" in sent
    assert [secret for secret in SECRETS if secret.encode() in sent] == []


async def test_contents_are_sent_when_they_are_asked_for(
    tmp_path: Path, collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    await _say_secrets(tmp_path)
    first, second = (attributes(collector.span("chat big", position)) for position in (0, 1))
    asked, answered = json.loads(first["gen_ai.input.messages"]), json.loads(second["gen_ai.output.messages"])
    assert asked[-1]["role"] == "user" and {"type": "text", "content": "marked-prompt"} in asked[-1]["parts"]
    assert answered == [{"role": "assistant", "parts": [{"type": "text", "content": "marked-answer"}], "finish_reason": "stop"}]
    [called] = json.loads(first["gen_ai.output.messages"])[0]["parts"]
    assert (called["type"], called["name"], called["arguments"]["command"]) == ("tool_call", "bash", "echo marked-argument")
    assert json.loads(second["gen_ai.input.messages"])[-1]["parts"][0]["type"] == "tool_call_response"
    assert json.loads(first["gen_ai.system_instructions"])[0]["type"] == "text"
    tool_call = attributes(collector.span("execute_tool bash"))
    assert json.loads(tool_call["gen_ai.tool.call.arguments"])["command"] == "echo marked-argument"
    assert "marked-argument" in tool_call["gen_ai.tool.call.result"]
    assert b"sk-marked-key" not in b"".join(collector.bodies)


async def _say_secrets(base: Path) -> None:
    config = priced()
    config["provider"]["acme"]["options"] = {"apiKey": "sk-marked-key"}
    async with traced(base, [bash("echo marked-argument")], [say("marked-answer")], config=config) as (app, session):
        await app.prompt(session, "marked-prompt")


async def test_a_requests_trace_goes_on_to_providers_and_mcp_servers(tmp_path: Path, collector: OtlpReceiver) -> None:
    with over_http() as url, model_server() as model:
        model.play([("far_trace", {})], ["Done."])
        config = {**model.config(), "mcp": {"far": {"type": "remote", "url": url}}}
        async with talking(tmp_path, config=config, title="named") as (app, session):
            await app.get("/mcp")
            headers = {"traceparent": TRACEPARENT, "baggage": "secret=1"}
            await app.post(f"/session/{session}/message", {"parts": [text_part("Go")]}, headers=headers)
            [seen] = [json.loads(state["output"]) for state in await states(app, session)]
    tool_call, chats = collector.span("execute_tool far_trace"), [span for span in collector.spans if span.name == "chat main"]
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert collector.span("invoke_agent build").parent_span_id.hex() == PARENT
    assert model.traceparents == [f"00-{TRACE}-{span.span_id.hex()}-01" for span in chats]
    within = f"00-{TRACE}-{tool_call.span_id.hex()}-01"
    assert seen == {"header": within, "meta": within, "baggage": None}


async def test_a_collector_that_is_away_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    async with traced(tmp_path, [say("Done.")]) as (app, session):
        assert texts(await app.prompt(session, "Go")) == ["Done."]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),  # less than a batch
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
    ],
)
async def test_a_variable_that_cannot_be_followed_is_told_and_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv(name, value)
    async with traced(tmp_path, [say("Done.")]) as (app, session):
        assert texts(await app.prompt(session, "Go")) == ["Done."]
    assert "no traces: an OTEL_… variable is wrong" in caplog.text


async def test_the_title_belongs_to_the_trace(tmp_path: Path, collector: OtlpReceiver) -> None:
    async with traced(tmp_path, [say("Done.")], title=None) as (app, session):
        await app.prompt(session, "Go")
        await titled(app, session)
    [(name, below)] = collector.tree()
    assert name == "invoke_agent build" and sorted(below) == [("chat big", []), ("chat title", [])]


OFF = """
import asyncio, sys
sys.path.insert(0, "tests/support")
from pathlib import Path
from running_app import running_app

async def main(base):
    async with running_app(base, turns=[[{"text": "Done."}]]) as app:
        session = await app.create_session()
        await app.prompt(session["id"], "Go")
        provider = next(iter(app.services.instances._cached.values())).instance.models.providers
        print(next(iter(provider._connections.values())).stream.__name__)

asyncio.run(main(Path(sys.argv[1])))
print(sorted(name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "prometheus_client",
    "google.protobuf", "app.events.telemetry.metrics", "app.events.telemetry.traces"))))
"""


def test_off_imports_nothing_and_reads_no_stream_along(tmp_path: Path) -> None:
    """OpenTelemetry's API, without an SDK, is what the web framework imports itself."""
    ran = subprocess.run([sys.executable, "-c", OFF, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["stream", "[]"], "around it is `observed` where somebody watches"


def test_which_variables_ask_for_traces() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}
    traces = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}
    for environ in (endpoint, traces, {"OTEL_TRACES_EXPORTER": "otlp"}):
        assert wants_traces(environ)
    off = {"OTEL_TRACES_EXPORTER": "none", **endpoint}, {"OTEL_SDK_DISABLED": "true", **endpoint}
    others = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318"}, {"OTEL_SERVICE_NAME": "mine"}
    for environ in ({}, *off, *others):
        assert not wants_traces(environ)
