"""What a server says in its log of what goes wrong: once, with the session, the directory and what failed."""

import asyncio
import json
import logging
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import httpx2
import pytest
from otlp_receiver import otlp_receiver
from running_app import PATIENCE, RunningApp, running_app
from running_server import clean_environment, free_port, serving, this_checkout
from turns import bash, call, requests, say, talking, until

from app.events.telemetry.log_lines import JsonLines, TextLines
from app.sessions.store import Store
from app.tools.builtin.find import GlobTool
from app.turn import decide, retry
from app.users.login import FAILURES
from app.users.tokens import TokenStore

Line = dict[str, Any]


class Log:
    """What was logged since the last look."""

    def __init__(self) -> None:
        self._written = StringIO()
        self.handler = logging.StreamHandler(self._written)
        self.handler.setFormatter(JsonLines())

    def lines(self, logger: str = "") -> list[Line]:
        found = [json.loads(line) for line in self._written.getvalue().splitlines()]
        return [line for line in found if line["logger"].startswith(logger) and line["level"] != "INFO"]

    def the_one(self, logger: str = "") -> Line:
        [line] = self.lines(logger)
        return line


@pytest.fixture
def log() -> Iterator[Log]:
    log, root = Log(), logging.getLogger()
    before = root.level
    root.addHandler(log.handler)
    root.setLevel(logging.INFO)
    yield log
    root.removeHandler(log.handler)
    root.setLevel(before)


def assert_names(line: Line, app: RunningApp, session_id: str, *words: str) -> None:
    assert line["session_id"] == session_id and line["directory"] == str(app.directory)
    for word in words:
        assert word in line["message"], line


# Turns.


async def test_a_turn_that_ends_with_an_error_is_logged_once(tmp_path: Path, log: Log) -> None:
    async with talking(tmp_path, turns=[[{"status": 400, "message": "the model is not there"}]], title="T") as (app, session):
        answer = await app.prompt(session, "Hi")
        name = answer["info"]["error"]["name"]
        assert_names(log.the_one(), app, session, session, name, "the model is not there")


async def test_a_turn_that_breaks_is_logged_with_its_traceback(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("it broke")

    async with talking(tmp_path, turns=[[say()]], title="T") as (app, session):
        monkeypatch.setattr(decide, "next_action", breaks)
        await app.prompt(session, "Hi")
        broken, ended = [line for line in log.lines() if line["message"].startswith("the turn of")]
        assert broken["exception"].endswith("RuntimeError: it broke")
        assert_names(broken, app, session)
        assert_names(ended, app, session, "ended with UnknownError", "it broke")


async def test_a_deadline_that_passes_is_logged(tmp_path: Path, log: Log) -> None:
    async with talking(tmp_path, turns=[[bash("sleep 60")]], title="T") as (app, session):
        await app.prompt(session, "Hi", deadlineSeconds=0.2)
        assert_names(log.the_one(), app, session, "deadline")


async def test_a_turn_that_goes_well_or_is_aborted_is_no_warning(tmp_path: Path, log: Log) -> None:
    async with talking(tmp_path, turns=[[say()], [say("One."), {"wait": asyncio.Event()}]], title="T") as (app, session):
        await app.prompt(session, "Hi")
        answering = asyncio.create_task(app.prompt(session, "Hi again"))
        await until(lambda: len(requests(app)) == 2)
        await app.post(f"/session/{session}/abort")
        await answering
        assert log.lines() == []


async def test_a_request_to_a_model_that_is_sent_again_is_logged(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "INITIAL_MS", 1)
    overloaded = {"status": 529, "message": "too much to do"}
    async with talking(tmp_path, turns=[[overloaded], [overloaded], [say("Now.")]], title="T") as (app, session):
        await app.prompt(session, "Hi")
        first, second = log.lines()
        for number, line in ((1, first), (2, second)):
            assert_names(line, app, session, f"request {number} ", "scripted/rules", "too much to do")


@pytest.mark.parametrize("tool", ["bash", "webfetch"])
async def test_a_tool_that_times_out_is_logged(tmp_path: Path, log: Log, tool: str, silent_port: int) -> None:
    calls = {
        "bash": bash("sleep 60", timeout=100),
        "webfetch": call("webfetch", url=f"http://127.0.0.1:{silent_port}/", format="text", timeout=0.2),
    }
    async with talking(tmp_path, turns=[[calls[tool]], [say()]], allow_private_addresses=True, title="T") as (app, session):
        await app.prompt(session, "Hi")
        assert_names(log.the_one(), app, session, tool, "timed out")


@pytest.fixture
async def silent_port() -> Any:
    """A server that answers nothing."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


# Requests.


@pytest.mark.parametrize("path", ["/session/{}", "/api/session/{}"])
async def test_an_unexpected_error_is_logged_once_and_answered_with_500(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def breaks(*_: object) -> None:
        raise RuntimeError("it broke")

    async with talking(tmp_path) as (app, session):
        with monkeypatch.context() as patched:
            patched.setattr(Store, "session", breaks)
            patched.setattr(Store, "session_json", breaks)
            answer = await app.client.get(path.format(session))
        assert answer.status_code == 500 and "RuntimeError" in answer.text and "it broke" not in answer.text
        line = log.the_one()
        assert line["session_id"] == session and f"GET {path.format(session)} failed" in line["message"]
        assert line["exception"].endswith("RuntimeError: it broke")


async def test_a_database_that_refuses_is_logged_once(tmp_path: Path, log: Log) -> None:
    async with talking(tmp_path) as (app, session):
        with sqlite3.connect(app.data_dir / "opensession.db") as other:
            other.execute("CREATE TRIGGER refuse BEFORE UPDATE ON session BEGIN SELECT RAISE(ABORT, 'refused here'); END")
        await app.call("PATCH", f"/session/{session}", {"title": "x"}, expect=503)
        assert_names(log.the_one("app.api"), app, session, "PATCH", "503", "refused here")


async def test_what_is_refused_by_a_stopping_server_is_logged(tmp_path: Path, log: Log) -> None:
    async with running_app(tmp_path) as app:
        app.services.draining.begin()
        await app.post("/session", {}, expect=503)
        assert "POST /session was answered with 503" in log.the_one("app.api")["message"]


async def test_a_path_cannot_forge_a_line(tmp_path: Path, log: Log) -> None:
    async with running_app(tmp_path) as app:
        app.services.draining.begin()
        await app.post("/session/ses_1%0A2026-01-01 ERROR forged/abort?x=%0A", {})
        await app.post("/session/ses_1%0Aforged/message", {}, expect=503)
        assert "\n" not in log.the_one("app.api")["message"]


async def test_what_clients_do_wrong_is_no_warning(tmp_path: Path, log: Log) -> None:
    async with running_app(tmp_path) as app:
        await app.get("/session/ses_none", expect=404)
        await app.post("/session", {"title": 5}, expect=400)
        assert log.lines() == []


# Logins.


def basic(password: str) -> dict[str, str]:
    return {"authorization": httpx2.BasicAuth("opencode", password)._auth_header}


async def test_logins_that_are_refused_are_logged_without_what_was_tried(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    async with running_app(tmp_path) as app:
        tokens = TokenStore(app.data_dir)
        token = tokens.create("laptop")
        tokens.revoke("laptop")
        wrong = [basic("nearly-right"), {"authorization": f"Bearer {token}"}]
        for headers in wrong:
            assert (await app.client.get("/session", headers=headers)).status_code == 401
        assert (await app.client.get("/event", params={"token": "nearly-right"})).status_code == 401
        lines = log.lines("app.users.login")
        assert len(lines) == 3 and all("127.0.0.1" in line["message"] and "refused" in line["message"] for line in lines)
        assert [path for line in lines for path in ("/session", "/event") if f"GET {path}" in line["message"]] == [
            "/session",
            "/session",
            "/event",
        ]
        assert "nearly" not in str(lines) and token not in str(lines)
        assert (await app.client.get("/session", headers=basic("right"))).status_code == 200
        assert len(log.lines()) == 3


async def test_an_address_that_is_locked_out_fills_no_log(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    async with running_app(tmp_path) as app:
        for _ in range(FAILURES + 20):
            await app.client.get("/session", headers=basic("wrong"))
        lines = log.lines("app.users.login")
        assert len(lines) == FAILURES and "too many" in lines[-1]["message"]


# The form.


def test_a_line_of_text_names_the_session_and_the_directory_once() -> None:
    from app.events.telemetry.log_lines import DIRECTORY_OF_LINES, SESSION_OF_LINES

    tokens = SESSION_OF_LINES.set("ses_1"), DIRECTORY_OF_LINES.set("/srv/project")
    form = TextLines("%(levelname)s %(message)s")
    try:
        written = [
            form.format(logging.LogRecord("x", logging.WARNING, __file__, 1, text, (), None))
            for text in ("it failed", "ses_1 failed", "ses_1 in /srv/project failed")
        ]
    finally:
        SESSION_OF_LINES.reset(tokens[0])
        DIRECTORY_OF_LINES.reset(tokens[1])
    assert written == [
        "WARNING it failed (ses_1, /srv/project)",
        "WARNING ses_1 failed (/srv/project)",
        "WARNING ses_1 in /srv/project failed",
    ]


class Served:
    """A server in a process of its own, and all that it writes."""

    def __init__(self, base: Path, *options: str, **environment: str) -> None:
        self.port, self.output = free_port(), base / "output"
        self._written = self.output.open("wb")
        command, paths = this_checkout()
        self.process = subprocess.Popen(
            [*command[:-1], str(self.port), *options],
            env=clean_environment(base, **paths, OPENSESSION_DATA_DIR=str(base / "data"), **environment),
            cwd=base,
            stdin=subprocess.DEVNULL,
            stdout=self._written,
            stderr=subprocess.STDOUT,
        )

    def get(self, path: str) -> httpx2.Response:
        """As soon as it answers."""
        give_up = time.monotonic() + 2 * PATIENCE
        while True:
            try:
                return httpx2.get(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE)
            except httpx2.TransportError:
                assert self.process.poll() is None and time.monotonic() < give_up, self.output.read_text()
                time.sleep(0.05)

    def ended(self) -> list[str]:
        """The lines of all that it wrote."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(2 * PATIENCE)
        self._written.close()
        return self.output.read_text().splitlines()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--port", "TAKEN"], {}),
        (["--hostname", "0.0.0.0"], {}),
        ([], {"OPENSESSION_MAX_PART_BYTES": "many"}),
        ([], {"OPENSESSION_LOG_LEVEL": "loud"}),
        ([], {"OPENSESSION_DATABASE_URL": "sqlite:////nowhere/at/all.db"}),
    ],
    ids=["port", "login", "setting", "level", "database"],
)
def test_as_json_a_start_that_is_refused_is_an_object_too(
    tmp_path: Path, options: list[str], environment: dict[str, str], taken_port: int
) -> None:
    paths, given = this_checkout()[1], [str(taken_port) if option == "TAKEN" else option for option in options]
    ran = subprocess.run(
        [sys.executable, "-m", "app.cli", "serve", "--log-format", "json", *given],
        env=clean_environment(tmp_path, **paths, OPENSESSION_DATA_DIR=str(tmp_path / "data"), **environment),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 1 and ran.stdout == ""
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert lines[-1]["level"] == "ERROR" and lines[-1]["message"]


@pytest.mark.parametrize(
    ("options", "environment", "shown"),
    [
        ([], {}, {"client": ["INFO", "WARNING", "ERROR"]}),
        (["--log-level", "warning"], {}, {"client": ["WARNING", "ERROR"]}),
        ([], {"OPENSESSION_LOG_LEVEL": "ERROR"}, {"client": ["ERROR"]}),
        (["--log-level", "debug"], {"OPENSESSION_LOG_LEVEL": "error"}, {"client": ["DEBUG", "INFO", "WARNING", "ERROR"]}),
    ],
    ids=["by default", "option", "setting", "the option before the setting"],
)
def test_the_level_says_how_much_is_logged(
    tmp_path: Path, options: list[str], environment: dict[str, str], shown: dict[str, list[str]]
) -> None:
    served = Served(tmp_path, "--log-format", "json", *options, **environment)
    served.get("/global/health")
    for level in ("debug", "info", "warn", "error"):
        entry = {"service": "test", "level": level, "message": "said"}
        httpx2.post(f"http://127.0.0.1:{served.port}/log", json=entry, timeout=PATIENCE).raise_for_status()
    lines = [json.loads(line) for line in served.ended()]
    assert [line["level"] for line in lines if line["logger"] == "client"] == shown["client"]


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
    aborted, said = the_one(lines, "app.turn.runs.turns"), the_one(lines, "client")
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
    assert any(f"INFO app.turn.runs.turns: the turn of {session} was aborted" in line for line in written), written
