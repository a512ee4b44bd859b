"""What a server writes to its log as JSON: the lines of a turn name their session and, where it is traced, their trace."""

import json
import logging
import time
from io import StringIO
from pathlib import Path
from typing import Any

import httpx2
import pytest
from otlp_receiver import otlp_receiver
from running_app import PATIENCE
from running_server import serving, this_checkout
from turns import call, say, talking

from app.telemetry.log_lines import JsonLines
from app.tool.builtin.find import GlobTool

SAID = "it has begun"
PROMPT = {"parts": [{"type": "text", "text": "Go"}], "model": {"providerID": "scripted", "modelID": "rules"}}


def lines_of_an_abort(directory: Path, command: list[str], environment: dict[str, str]) -> tuple[str, list[str]]:
    """The session, and what was logged after the start: of a turn that is aborted, and of a request that no route reads."""
    script = directory / "script.json"
    script.write_text(json.dumps({"turns": [[{"text": SAID, "chunks": 1}, {"sleep": 60}]]}))
    with serving(command, directory, {**environment, "OPENSESSION_SCRIPT": str(script)}) as server:
        log = directory / "server.log"
        begun = log.stat().st_size
        with httpx2.Client(base_url=server.base, timeout=60) as client:
            session: str = client.post("/session", json={"title": "named"}).json()["id"]
            client.post(f"/session/{session}/prompt_async", json=PROMPT).raise_for_status()
            give_up = time.monotonic() + PATIENCE
            while SAID not in client.get(f"/session/{session}/message").text:
                assert time.monotonic() < give_up, "the model said nothing"
                time.sleep(0.02)
            client.post(f"/session/{session}/abort").raise_for_status()
            entry = {"service": "test", "level": "warn", "message": "two\nlines"}
            client.post("/log", json=entry).raise_for_status()
    with log.open("rb") as written:
        written.seek(begun)
        return session, written.read().decode().splitlines()


def the_one(lines: list[dict[str, Any]], logger: str) -> dict[str, Any]:
    [found] = [line for line in lines if line["logger"] == logger]
    return found


@pytest.mark.parametrize("by", ["option", "setting"])
def test_each_line_is_an_object(tmp_path: Path, by: str) -> None:
    command, environment = this_checkout()
    option, setting = (["--log-format", "json"], {}) if by == "option" else ([], {"OPENSESSION_LOG_FORMAT": "json"})
    with otlp_receiver() as collector:
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        session, written = lines_of_an_abort(tmp_path, [*command, *option], {**environment, **setting, **traced})
    lines = [json.loads(line) for line in written]
    aborted, said = the_one(lines, "app.runs.turns"), the_one(lines, "client")
    assert aborted["message"] == f"the turn of {session} was aborted" and aborted["level"] == "INFO"
    assert aborted["session_id"] == session
    assert "session_id" not in said and said["level"] == "WARNING"
    assert [span.name for span in collector.spans] == ["invoke_agent build", "chat rules"]


async def test_a_line_within_a_trace_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: Any) -> None:
        raise RuntimeError("it broke")

    monkeypatch.setattr(GlobTool, "execute", breaks)
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    monkeypatch.setattr(logging.getLogger("app.turn.tool_calls"), "handlers", [handler])
    with otlp_receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with talking(tmp_path, turns=[[call("glob", pattern="*")], [say()]], title="named") as (app, session):
            await app.prompt(session, "Go")
    [line] = map(json.loads, written.getvalue().splitlines())
    span = collector.span("execute_tool glob")
    assert (line["session_id"], line["trace_id"], line["span_id"]) == (session, span.trace_id.hex(), span.span_id.hex())
    assert line["message"] == "tool glob failed" and line["exception"].endswith("RuntimeError: it broke")


def test_text_by_default(tmp_path: Path) -> None:
    command, environment = this_checkout()
    session, written = lines_of_an_abort(tmp_path, command, environment)
    assert any(f"INFO app.runs.turns: the turn of {session} was aborted" in line for line in written), written
