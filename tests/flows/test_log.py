"""What a server says in its log of what goes wrong: once, with the session, the directory and what failed."""

import asyncio
import json
import logging
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextvars import copy_context
from io import StringIO
from pathlib import Path
from typing import Any

import httpx2
import pytest
from otlp_receiver import otlp_receiver
from running_app import PATIENCE, RunningApp, running_app
from running_server import serving_here
from shell_commands import Shell
from turns import bash, call, requests, say, talking, until
from web_page import web_page

from app.events.telemetry.log_lines import DIRECTORY_OF_LINES, SESSION_OF_LINES, JsonLines, TextLines
from app.providers import retry
from app.sessions.store import Store
from app.tools.builtin.find import GlobTool
from app.turn import decide
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


async def test_a_turn_that_ends_with_an_error_or_at_a_deadline_is_logged_once(tmp_path: Path, log: Log) -> None:
    turns = [[{"status": 400, "message": "the model is not there"}], [bash("sleep 60")]]
    async with talking(tmp_path, turns=turns, title="T") as (app, session):
        answer = await app.prompt(session, "Hi")
        name = answer["info"]["error"]["name"]
        assert_names(log.the_one(), app, session, session, name, "the model is not there")
        await app.prompt(session, "Hi", deadlineSeconds=0.2)
        assert_names(log.lines()[1], app, session, "deadline")
        assert len(log.lines()) == 2


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


async def test_what_goes_well_is_aborted_or_clients_do_wrong_is_no_warning(tmp_path: Path, log: Log) -> None:
    async with talking(tmp_path, turns=[[say()], [say("One."), {"wait": asyncio.Event()}]], title="T") as (app, session):
        await app.prompt(session, "Hi")
        answering = asyncio.create_task(app.prompt(session, "Hi again"))
        await until(lambda: len(requests(app)) == 2)
        await app.post(f"/session/{session}/abort")
        await answering
        await app.get("/session/ses_none", expect=404)
        await app.post("/session", {"title": 5}, expect=400)
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


async def test_tools_that_time_out_are_logged(tmp_path: Path, log: Log) -> None:
    async with (
        web_page(hangs=True) as silent,
        talking(tmp_path, allow_private_addresses=True, title="T") as (app, session),
    ):
        fetch = call("webfetch", url=silent.url, format="text", timeout=0.2)
        for number, (tool, step) in enumerate({"bash": bash("sleep 60", timeout=100), "webfetch": fetch}.items()):
            app.provider.add([step], [say()])
            await app.prompt(session, "Hi")
            assert_names(log.lines()[number], app, session, tool, "timed out")
            assert len(log.lines()) == number + 1


async def test_an_unexpected_error_is_logged_once_and_answered_with_500(
    app: RunningApp, session: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*_: object) -> None:
        raise RuntimeError("it broke")

    for number, path in enumerate((f"/session/{session}", f"/api/session/{session}")):
        with monkeypatch.context() as patched:
            patched.setattr(Store, "session", breaks)
            patched.setattr(Store, "session_json", breaks)
            answer = await app.client.get(path)
        assert answer.status_code == 500 and "RuntimeError" in answer.text and "it broke" not in answer.text
        assert len(log.lines()) == number + 1
        line = log.lines()[number]
        assert line["session_id"] == session and f"GET {path} failed" in line["message"]
        assert line["exception"].endswith("RuntimeError: it broke")


async def test_a_database_that_refuses_is_logged_once(app: RunningApp, session: str, log: Log) -> None:
    with sqlite3.connect(app.data_dir / "opensession.db") as other:
        other.execute("CREATE TRIGGER refuse BEFORE UPDATE ON session BEGIN SELECT RAISE(ABORT, 'refused here'); END")
    await app.call("PATCH", f"/session/{session}", {"title": "x"}, expect=503)
    assert_names(log.the_one("app.api"), app, session, "PATCH", "503", "refused here")


async def test_what_is_refused_by_a_stopping_server_is_logged_and_a_path_cannot_forge_a_line(app: RunningApp, log: Log) -> None:
    app.services.draining.begin()
    await app.post("/session", {}, expect=503)
    assert "POST /session was answered with 503" in log.the_one("app.api")["message"]
    await app.post("/session/ses_1%0A2026-01-01 ERROR forged/abort?x=%0A", {})
    await app.post("/session/ses_1%0Aforged/message", {}, expect=503)
    assert len(log.lines("app.api")) == 2 and "\n" not in log.lines("app.api")[1]["message"]


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
        for headers in (basic("nearly-right"), {"authorization": f"Bearer {token}"}):
            assert (await app.client.get("/session", headers=headers)).status_code == 401
        assert (await app.client.get("/event", params={"token": "nearly-right"})).status_code == 401
        lines = log.lines("app.users.login")
        assert len(lines) == 3 and all("127.0.0.1" in line["message"] and "refused" in line["message"] for line in lines)
        assert ["GET /session" in line["message"] for line in lines] == [True, True, False] and "/event" in lines[2]["message"]
        assert "nearly" not in str(lines) and token not in str(lines)
        assert (await app.client.get("/session", headers=basic("right"))).status_code == 200
        assert len(log.lines()) == 3
        for _ in range(FAILURES + 20):
            await app.client.get("/session", headers=basic("wrong"))
        lines = log.lines("app.users.login")[3:]
        assert len(lines) <= FAILURES and "too many" in lines[-1]["message"], "an address that is locked out fills no log"


def test_a_line_of_text_names_the_session_and_the_directory_once() -> None:
    def written(text: str) -> str:
        SESSION_OF_LINES.set("ses_1")
        DIRECTORY_OF_LINES.set("/srv/project")
        error = (RuntimeError, RuntimeError(text), None) if text.startswith("a") else None
        return TextLines("%(levelname)s %(message)s").format(logging.LogRecord("x", logging.WARNING, "", 1, text, (), error))

    lines = {
        "it failed": "WARNING it failed (ses_1, /srv/project)",
        "ses_1 failed": "WARNING ses_1 failed (/srv/project)",
        "ses_1 in /srv/project failed": "WARNING ses_1 in /srv/project failed",
        "a\nERROR b\x1b]0;c\x07\x9b is in the way": "WARNING a\\nERROR b\\x1b]0;c\\x07\\x9b is in the way (ses_1, /srv/project)\n"
        "  RuntimeError: a\n  ERROR b\\x1b]0;c\\x07\\x9b is in the way",
    }
    assert {text: copy_context().run(written, text) for text in lines} == lines


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
        ([], {"OPENSESSION_SCRIPT": "/nowhere/at/all.json"}),
        ([], {"OPENSESSION_DATABASE_URL": "sqlite:////dev/null/at/all.db"}),
        ([], {"OPENSESSION_DATABASE_URL": "postgresql://user:secret@host:here/database"}),
    ],
    ids=["port", "login", "setting", "level", "script", "database", "address"],
)
def test_as_json_a_start_that_is_refused_is_an_object_too(
    tmp_path: Path, options: list[str], environment: dict[str, str], taken_port: int
) -> None:
    given = [str(taken_port) if option == "TAKEN" else option for option in options]
    shell = Shell(tmp_path, tmp_path, tmp_path / "data", environment)
    ran = shell.done("serve", "--log-format", "json", *given, code=1)
    assert ran.stdout == ""
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert lines[-1]["level"] == "ERROR" and lines[-1]["message"]


SAID = "it has begun"
PROMPT = {"parts": [{"type": "text", "text": "Go"}], "model": {"providerID": "scripted", "modelID": "rules"}}


def lines_of_an_abort(directory: Path, *options: str, **environment: str) -> tuple[str, list[str]]:
    """The session, and what a server in a process of its own logged of a turn that was aborted and of what a client said."""
    log, turns = directory / "server.log", [[{"text": SAID, "chunks": 1}, {"sleep": 60}]]
    with serving_here(directory, *options, turns=turns, **environment) as server:
        begun = log.stat().st_size
        with httpx2.Client(base_url=server.base, timeout=60) as client:
            session: str = client.post("/session", json={"title": "named"}).json()["id"]
            client.post(f"/session/{session}/prompt_async", json=PROMPT).raise_for_status()
            give_up = time.monotonic() + PATIENCE
            while SAID not in client.get(f"/session/{session}/message").text:
                assert time.monotonic() < give_up, "the model said nothing"
                time.sleep(0.02)
            client.post(f"/session/{session}/abort").raise_for_status()
            for level in ("debug", "info", "warn", "error"):
                entry = {"service": "test", "level": level, "message": "two\nlines"}
                client.post("/log", json=entry).raise_for_status()
    return session, log.read_bytes()[begun:].decode().splitlines()


JSON = ("--log-format", "json")
LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"]


@pytest.mark.parametrize(
    ("options", "environment", "shown"),
    [
        (JSON, {}, LEVELS[1:]),
        (("--log-level", "warning"), {"OPENSESSION_LOG_FORMAT": "json"}, LEVELS[2:]),
        (JSON, {"OPENSESSION_LOG_LEVEL": "ERROR"}, LEVELS[3:]),
        ((*JSON, "--log-level", "debug"), {"OPENSESSION_LOG_LEVEL": "error"}, LEVELS),
    ],
    ids=["by default", "option", "setting", "the option before the setting"],
)
def test_as_json_each_line_is_an_object_and_the_level_says_how_much_is_logged(
    tmp_path: Path, options: tuple[str, ...], environment: dict[str, str], shown: list[str]
) -> None:
    with otlp_receiver() as collector:
        session, written = lines_of_an_abort(tmp_path, *options, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **environment)
    lines = [json.loads(line) for line in written]
    said = [line for line in lines if line["logger"] == "client"]
    assert [line["level"] for line in said] == shown and not any("session_id" in line for line in said)
    aborted = [line for line in lines if line["logger"] == "app.turn.runs.turns" and line["level"] == "INFO"]
    wanted = [(f"the turn of {session} was aborted", session)] if "INFO" in shown else []
    assert [(line["message"], line["session_id"]) for line in aborted] == wanted
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
    session, written = lines_of_an_abort(tmp_path)
    assert any(f"INFO app.turn.runs.turns: the turn of {session} was aborted" in line for line in written), written
