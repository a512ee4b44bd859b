"""Providers and MCP servers that send as much as they can: the server's memory has a bound, the turn ends with an error."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import httpx2
import pytest
from figures import Figure
from flood import Chunks, Flood, bomb, flooding, repeated, sse
from long_form import LONG
from real_server import MIB, RealServer, peak_memory, real_server
from turns import assert_finished, configured, talking
from wire_floods import FORMATS, GATHERED, UNENDED, chat

JSON = "application/json"

FLOOD = (400 if LONG else 150) * MIB
MOST = 260 * MIB
"""Less than a flood without a bound takes, of which each byte is held twice at least, as bytes and as text. What an SDK has read
lies in cycles of its own until the next collection: 80 to 220 MiB were seen of the same flood."""
SDK = 30 * MIB
"""What loading the SDK takes."""
CASES = [
    *((wire, kind) for wire, kind in GATHERED if LONG or kind in ("text", "arguments", "whole inputs")),
    *(("chat", kind) for kind in UNENDED if LONG or kind == "an event without an end"),
    ("chat", "a large error"),
    ("messages", "gzip"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    with real_server(tmp_path) as server:
        yield server


@pytest.fixture
def flood() -> Iterator[Flood]:
    with flooding() as flood:
        yield flood


def config(flood: Flood, wire: str) -> dict[str, Any]:
    options = {"baseURL": flood.url, "apiKey": "k"}
    provider = {"npm": FORMATS[wire][0], "options": options, "models": {"main": {"tool_call": True}}}
    return {"model": "fake/main", "small_model": "fake/main", "permission": "allow", "provider": {"fake": provider}}


def send(flood: Flood, wire: str, kind: str) -> None:
    match kind:
        case "a large error":
            flood.sends(lambda: repeated(b"x", FLOOD), status=400)
        case "gzip":
            flood.sends(lambda: iter([bomb(FLOOD)]), content_encoding="gzip")
        case _ if kind in UNENDED:
            flood.sends(lambda: UNENDED[kind](FLOOD))
        case _:
            flood.sends(lambda: FORMATS[wire][1](kind, FLOOD))


def peak_of_a_small_answer(server: RealServer, flood: Flood, wire: str) -> int:
    """The SDK is loaded by then."""
    flood.sends(lambda: FORMATS[wire][1]("text", 1))
    with httpx2.Client(base_url=server.url, timeout=120) as http:
        assert prompt(http, http.post("/session", json={}).json()["id"])["parts"]
    return peak_memory(server.process)


def prompt(http: httpx2.Client, session: str) -> dict[str, Any]:
    return http.post(f"/session/{session}/message", json={"parts": [{"type": "text", "text": "Hi"}]}).json()


def answer_of(server: RealServer) -> dict[str, Any]:
    with httpx2.Client(base_url=server.url, timeout=120) as http:
        session = http.post("/session", json={}).json()["id"]
        answer = prompt(http, session)
        assert http.get("/session/status").json() == {}
        assert http.get(f"/session/{session}/message").json()[-1]["info"]["error"] == answer["info"]["error"]
    return answer


@pytest.mark.parametrize(("wire", "kind"), CASES)
def test_a_provider_that_sends_too_much(server: RealServer, flood: Flood, figure: Figure, wire: str, kind: str) -> None:
    (server.workspace / "opencode.json").write_text(json.dumps(config(flood, wire)))
    before = peak_of_a_small_answer(server, flood, wire)
    send(flood, wire, kind)
    error = answer_of(server)["info"]["error"]
    took = peak_memory(server.process) - before
    assert error["name"] == "APIError" and len(json.dumps(error)) < 200_000
    assert took < MOST, f"{took / MIB:.0f} MiB"
    assert not server.tracebacks()
    figure(f"{wire}, {kind}: {took / MIB:.0f} MiB of {FLOOD / MIB:.0f}")


@pytest.mark.parametrize("limit", [{}, {"limit": {"context": 1_000_000, "output": 8_000}}])
def test_answers_that_grow_a_conversation_without_end(
    server: RealServer, flood: Flood, figure: Figure, limit: dict[str, Any]
) -> None:
    """Each step calls a tool with megabytes of arguments, and the provider counts a hundred tokens."""

    def answer() -> Chunks:
        arguments = json.dumps({"n": flood.asked, "x": "x" * 3 * MIB})
        yield chat(
            {"tool_calls": [{"index": 0, "id": f"c{flood.asked}", "function": {"name": "todoread", "arguments": arguments}}]}
        )
        yield chat({}, "tool_calls")
        yield sse({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}})

    flood.sends(answer)
    made = config(flood, "chat")
    made["provider"]["fake"]["models"]["main"] |= limit
    (server.workspace / "opencode.json").write_text(json.dumps(made))
    before = peak_memory(server.process)
    assert answer_of(server)["info"]["error"]
    took = peak_memory(server.process) - before
    assert took < MOST + SDK + 50 * MIB and flood.asked < 40
    figure(f"a conversation that grows by 3 MiB a step: {took / MIB:.0f} MiB, {flood.asked} requests")


MCP = ["a long answer", "blanks", "gzip", "a line of a program"]


@pytest.mark.parametrize("kind", MCP)
def test_an_mcp_server_that_sends_too_much(server: RealServer, flood: Flood, figure: Figure, kind: str) -> None:
    """Already when it is connected to."""
    entry: dict[str, Any] = {"type": "remote", "url": f"{flood.url}/mcp", "oauth": False}
    match kind:
        case "a long answer":
            flood.sends(lambda: chain([b'{"jsonrpc": "2.0", "id": 1, "result": "'], repeated(b"x", FLOOD)), content_type=JSON)
        case "blanks":
            flood.sends(lambda: repeated(b" ", FLOOD), content_type=JSON)
        case "gzip":
            flood.sends(lambda: iter([bomb(FLOOD)]), content_type=JSON, content_encoding="gzip")
        case _:
            entry = {"type": "local", "command": ["head", "-c", str(FLOOD), "/dev/zero"]}
    (server.workspace / "opencode.json").write_text(json.dumps({"mcp": {"one": entry}}))
    before = peak_memory(server.process)
    status = httpx2.get(f"{server.url}/mcp", timeout=120).json()["one"]
    took = peak_memory(server.process) - before
    assert status["status"] == "failed", status
    assert took < MOST, f"{took / MIB:.0f} MiB"
    figure(f"MCP, {kind}: {took / MIB:.0f} MiB of {FLOOD / MIB:.0f}")


@pytest.mark.parametrize("kind", ["text", "reasoning", "arguments", "a line without an end"])
async def test_a_flood_behind_a_call_that_has_begun_ends_the_turn_too(tmp_path: Path, flood: Flood, kind: str) -> None:
    call = {"type": "function_call", "id": "i", "call_id": "c0", "name": "todoread", "arguments": "{}"}

    def answer() -> Chunks:
        yield sse({"type": "response.output_item.done", "item": call})
        yield from UNENDED[kind](20 * MIB) if kind in UNENDED else FORMATS["responses"][1](kind, 20 * MIB)

    flood.sends(answer)
    workspace = configured(tmp_path, config(flood, "responses"))
    async with talking(tmp_path, workspace=workspace, max_part_bytes=100_000, title="Named") as (app, session):
        error = (await app.prompt(session, "Hi"))["info"]["error"]
        assert "more than" in error["data"]["message"] and flood.asked == 1
        assert_finished(await app.messages(session))
