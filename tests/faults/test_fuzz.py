"""Whatever a client sends to a route, the answer is no server error, shows no traceback, and an error is JSON {name, data}."""

import json
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from long_form import LONG, SLACK
from real_server import MIB, RealServer, real_server

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS = 15 * SLACK
MAX_MIB = 150
MAX_DESCRIPTORS = 200 if LONG else 40
"""Both: the database's caches and connections are filled, git and rg are at work. In the long form dozens of worktrees are made,
each open with three descriptors."""

# An event stream does not end by itself; a shell command and a terminal would run what the fuzzer makes up.
LEFT_OUT = {"event.subscribe", "global.event", "session.shell", "pty.create", "v2.pty.create", "v2.event.subscribe"}
LEFT_OUT |= {"v2.session.events", "tui.control.next", "session.editorFile"}

DESCRIBED = (ROOT / "openapi.yaml").read_text().split("\n      operationId: ")[1:]
TAKES_BODY = {text.partition("\n")[0]: "\n      requestBody:" in text for text in DESCRIBED}
NAMES = [name for name in TAKES_BODY if name not in LEFT_OUT]


@cache
def operations() -> dict[str, Any]:
    """By their names. Only the process that runs these tests imports what reads them."""
    import schemathesis

    described = schemathesis.openapi.from_path(ROOT / "openapi.yaml", config=schemathesis.Config()).get_all_operations()
    return {operation.ok().definition.raw["operationId"]: operation.ok() for operation in described}


MALFORMED = {
    "nothing": b"",
    "cut off": b'{"parts": [',
    "not UTF-8": b'{"title": "\xff\xfe"}',
    "a lone surrogate": b'{"title": "\\ud800", "parts": [{"type": "text", "text": "\\ud800"}]}',
    "a NUL": b'{"title": "\\u0000", "parts": [{"type": "text", "text": "\\u0000"}]}',
    "null": b"null",
    "a list": b"[]",
    "a string": b'"x"',
    "a huge number": b'{"time": {"archived": 1e999}, "limit": 123456789012345678901234567890}',
    "not a number": b'{"time": {"archived": NaN}}',
    "deeply nested": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
}

enough_examples = settings(
    max_examples=130 if LONG else 2,
    deadline=None,
    derandomize=not LONG,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


tally = {"cases": 0, "memory": 0, "descriptors": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(tmp_path_factory.mktemp("fuzzed")) as running:
        tally.update(memory=running.memory, descriptors=running.descriptors)
        yield running


@pytest.fixture
def known(server: RealServer) -> dict[str, str]:
    """The ids of a session with one message, as path parameters."""
    with httpx2.Client(base_url=server.url, timeout=ANSWER_SECONDS) as client:
        session = client.post("/session", json={}).raise_for_status().json()
        prompt = {"noReply": True, "parts": [{"type": "text", "text": "known"}]}
        message = client.post(f"/session/{session['id']}/message", json=prompt).json()
    return {"sessionID": session["id"], "messageID": message["info"]["id"], "partID": message["parts"][0]["id"]}


def check(status: int, content: bytes, sent: str) -> None:
    tally["cases"] += 1
    text = content.decode(errors="replace")
    assert status < 500, f"{sent}: {status} {text[:500]}"
    assert "Traceback (most recent call last)" not in text, sent
    if status >= 400:
        error = json.loads(text)
        is_named = isinstance(error.get("name"), str) and "data" in error
        is_tagged = isinstance(error.get("_tag"), str) and isinstance(error.get("message"), str)
        assert is_named or is_tagged, f"{sent}: {text[:500]}"


@pytest.mark.parametrize("name", NAMES)
def test_generated_requests(name: str, server: RealServer, known: dict[str, str]) -> None:
    """As the description wants them, and otherwise."""
    from schemathesis import GenerationMode

    operation, query = operations()[name], {"directory": str(server.workspace)}
    path = {parameter: value for parameter, value in known.items() if f"{{{parameter}}}" in operation.path}
    for mode in (GenerationMode.NEGATIVE, GenerationMode.POSITIVE):  # the latter deletes what is known
        anywhere = operation.as_strategy(generation_mode=mode)
        here = operation.as_strategy(generation_mode=mode, path_parameters=path, query=query)

        @enough_examples
        @given(st.one_of(here, anywhere))
        def run(case: Any) -> None:
            response = case.call(base_url=server.url, timeout=ANSWER_SECONDS)
            check(response.status_code, response.content, case.as_curl_command())

        # Some operations have nothing that could be wrong in a generated way.
        with suppress(Unsatisfiable) if mode.is_negative else nullcontext():
            run()


@pytest.mark.parametrize("name", [name for name in NAMES if TAKES_BODY[name]])
def test_malformed_bodies(name: str, server: RealServer, known: dict[str, str]) -> None:
    operation = operations()[name]
    unknown = dict.fromkeys((parameter.name for parameter in operation.path_parameters), "unknown")
    path = operation.path.format_map({**unknown, **known})
    with httpx2.Client(base_url=server.url, timeout=ANSWER_SECONDS) as client:
        for described, body in MALFORMED.items():
            for content_type in ("application/json", "text/plain"):
                response = client.request(operation.method, path, content=body, headers={"content-type": content_type})
                check(response.status_code, response.content, f"{name}: {described} as {content_type}")


def test_the_server_is_well_after_all_that(server: RealServer, figure: Any) -> None:
    assert httpx2.get(f"{server.url}/global/health", timeout=ANSWER_SECONDS).json()["healthy"] is True
    grown, opened = (server.memory - tally["memory"]) / MIB, server.descriptors - tally["descriptors"]
    figure(f"{tally['cases']} requests: 0 5xx, {len(server.tracebacks())} tracebacks, +{grown:.0f} MiB, +{opened} open files")
    assert server.tracebacks() == []
    assert grown < MAX_MIB and opened < MAX_DESCRIPTORS
