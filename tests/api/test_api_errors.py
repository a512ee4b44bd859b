"""Whatever is wrong with a request, the answer is JSON `{name, data}` with its documented status."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from running_app import RunningApp

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = {"content-type": "application/json"}


async def send(app: RunningApp, method: str, path: str, content: Any = None, **headers: str) -> tuple[int, Any]:
    response = await app.client.request(method, path, content=content, headers=headers or JSON)
    assert response.headers["content-type"] == "application/json"
    return response.status_code, response.json()


async def test_an_unknown_path_or_method(shared: RunningApp) -> None:
    for path in ("/nowhere", "/session/ses_1/nowhere", "/%00", "/session//", "/Session", "/../etc/passwd", "/é"):
        status, error = await send(shared, "GET", path)
        assert status in (400, 404) and isinstance(error["name"], str), path
    message = "There is no route GET /nowhere"
    assert await send(shared, "GET", "/nowhere") == (404, {"name": "NotFoundError", "data": {"message": message}})
    methods = {"PUT": "/session", "DELETE": "/config", "POST": "/event", "PATCH": "/global/health", "TRACE": "/session"}
    for method, path in methods.items():
        status, error = await send(shared, method, path)
        assert (status, error["name"]) == (405, "MethodNotAllowedError"), method


async def test_a_bad_request_is_reported_in_both_forms_and_names_its_part(shared: RunningApp) -> None:
    status, error = await send(shared, "POST", "/session", b'{"title": 5}')
    assert (status, error["name"], error["success"]) == (400, "BadRequest", False) and error["errors"] == error["error"]
    [issue] = error["errors"]
    assert issue["path"] == ["title"] and issue["message"] and issue["code"]
    assert error["data"] == {"message": f'{issue["message"]}\n  at ["title"]', "kind": "Payload", "received": {"title": 5}}
    _, of_query = await send(shared, "GET", "/session?limit=x")
    _, of_path = await send(shared, "GET", "/session/nope")
    assert (of_query["data"]["kind"], of_path["data"]["kind"]) == ("Query", "Params")
    assert of_path["data"]["message"].endswith('at ["sessionID"]')


@pytest.mark.parametrize(
    ("method", "path", "body", "tag", "facts"),
    [
        ("POST", "/permission/per_none/reply", b'{"reply": "once"}', "PermissionNotFoundError", {"requestID": "per_none"}),
        ("POST", "/question/que_none/reject", b"{}", "QuestionNotFoundError", {"requestID": "que_none"}),
        ("PATCH", "/project/none", b'{"name": "x"}', "ProjectNotFoundError", {"projectID": "none"}),
    ],
)
async def test_what_is_not_there_is_told_with_a_tag_too(
    shared: RunningApp, method: str, path: str, body: bytes, tag: str, facts: dict[str, str]
) -> None:
    _, error = await send(shared, method, path, body)
    message = error["data"]["message"]
    assert error == {"name": "NotFoundError", "data": {"message": message, **facts}, "_tag": tag, "message": message, **facts}


MALFORMED = {
    "cut off": b'{"title": ',
    "no JSON": b"title=x",
    "two documents": b"{} {}",
    "not UTF-8": b'{"title": "\xff"}',
    "a lone surrogate": b'{"title": "\\ud800"}',
    "not a number": b'{"time": {"archived": NaN}}',
    "beyond any number": b'{"time": {"archived": 1e999}}',
    "2,000 deep": b"[" * 2000 + b"]" * 2000,
    "a million values": b'{"title": "x", "parts": [' + b'{"type":"x"},' * 1_000_000 + b"0]}",
    "100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_json(shared: RunningApp, body: bytes) -> None:
    path = f"/session/{(await shared.create_session())['id']}"
    before = await shared.get("/session")
    for request in (("POST", "/session"), ("PATCH", path), ("POST", f"{path}/message")):
        status, error = await send(shared, *request, body)
        assert (status, error["name"], error["success"]) == (400, "BadRequest", False), request
    assert await shared.get("/session") == before and await shared.get(f"{path}/message") == []


async def test_long_requests_are_taken_and_a_bad_one_is_answered_shortly(shared: RunningApp) -> None:
    session = await shared.create_session()
    for text in ("word " * 400_000, '[{,"\\\\' * 50_000):  # what a string holds does not count as values
        assert (await shared.prompt(session["id"], text, noReply=True))["parts"][0]["text"] == text
    parts = json.dumps({"parts": [{"type": "unknown", "text": "x" * 100}] * 3000}).encode()
    status, error = await send(shared, "POST", f"/session/{session['id']}/message", parts)
    assert (status, error["name"]) == (400, "BadRequest") and "received" not in error["data"]
    assert 0 < len(error["errors"]) < 3000


async def test_strange_characters_are_kept(shared: RunningApp) -> None:
    for text in ("\0", "a\0b", "\x01\x1f\x7f", "\u2028\u2029", "\ufeff", "\U0001f600", "\ufffe\uffff", "e\u0301"):
        session = await shared.create_session(title=text)
        assert (await shared.get(f"/session/{session['id']}"))["title"] == text
        await shared.prompt(session["id"], text, noReply=True)
        assert (await shared.messages(session["id"]))[0]["parts"][0]["text"] == text
        await shared.get("/session", params={"search": text})


async def test_a_body_must_be_json(shared: RunningApp) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        status, error = await send(shared, "POST", "/session", b"{}", **{"content-type": content_type})
        assert (status, error["name"]) == (415, "UnsupportedMediaTypeError")
    for content_type in ("application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json"):
        assert (await send(shared, "POST", "/session", b"{}", **{"content-type": content_type}))[0] == 200
    status, marked = await send(shared, "POST", "/session", b'\xef\xbb\xbf{"title": "with a byte order mark"}')
    assert (status, marked["title"]) == (200, "with a byte order mark")


async def test_a_body_that_is_too_large_is_refused_by_its_length_or_as_it_comes(shared: RunningApp) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'{"title": "'
        for _ in range(40):
            yield b"x" * 1024 * 1024
        yield b'"}'

    before = await shared.get("/session")
    for content, length in ((b"{}", {"content-length": str(2**31)}), (endless(), {})):
        status, error = await send(shared, "POST", "/session", content, **JSON, **length)
        assert (status, error["name"]) == (413, "PayloadTooLargeError")
    assert await shared.get("/session") == before


async def test_an_internal_error_is_reported_without_its_details(shared: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError(f"broken in {__file__}")

    monkeypatch.setattr(shared.services.store._database, "read", broken)
    response = await shared.client.get("/session/ses_1")
    assert response.status_code >= 500 and set(response.json()) == {"name", "data"}
    assert "Traceback" not in response.text and "/app/" not in response.text


@pytest.mark.parametrize("depth", [100, 250, 260, 500, 1000])
async def test_deep_json_is_stored_or_refused(shared: RunningApp, depth: int) -> None:
    session = await shared.create_session()
    part = (await shared.prompt(session["id"], "hi", noReply=True))["parts"][0]
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    body = json.dumps({**part, "metadata": "HERE"}).encode().replace(b'"HERE"', nested)
    for method, path, sent in (
        ("PATCH", f"/session/{session['id']}/message/{part['messageID']}/part/{part['id']}", body),
        ("POST", "/log", b'{"service":"s","level":"info","message":"m","extra":%b}' % nested),
        ("PATCH", "/config", b'{"provider":{"x":{"options":%b}}}' % nested),
    ):
        assert (await send(shared, method, path, sent))[0] in (200, 400), path
    assert len(await shared.messages(session["id"])) == 1
    assert (await send(shared, "GET", "/config"))[0] == 200
