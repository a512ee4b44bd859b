"""Whatever is wrong with a request, the answer is JSON `{name, data}` with its documented status."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from running_app import RunningApp

JSON = {"content-type": "application/json"}


async def send(app: RunningApp, method: str, path: str, content: Any = None, **headers: str) -> tuple[int, Any]:
    response = await app.client.request(method, path, content=content, headers=headers or JSON)
    assert response.headers["content-type"] == "application/json"
    return response.status_code, response.json()


async def test_an_unknown_path_or_method(app: RunningApp) -> None:
    for path in ("/nowhere", "/session/ses_1/nowhere", "/%00", "/session//", "/Session", "/../etc/passwd", "/é"):
        status, error = await send(app, "GET", path)
        assert status in (400, 404) and isinstance(error["name"], str), path
    message = "There is no route GET /nowhere"
    assert await send(app, "GET", "/nowhere") == (404, {"name": "NotFoundError", "data": {"message": message}})
    methods = {"PUT": "/session", "DELETE": "/config", "POST": "/event", "PATCH": "/global/health", "TRACE": "/session"}
    for method, path in methods.items():
        status, error = await send(app, method, path)
        assert (status, error["name"]) == (405, "MethodNotAllowedError"), method


async def test_a_bad_request_is_reported_in_both_forms(app: RunningApp) -> None:
    status, error = await send(app, "POST", "/session", b'{"title": 5}')
    assert status == 400
    assert error["errors"] == error["error"] and error["success"] is False
    assert error["name"] == "BadRequest"
    [issue] = error["errors"]
    assert issue["path"] == ["title"] and issue["message"] and issue["code"]
    assert error["data"] == {"message": f'{issue["message"]}\n  at ["title"]', "kind": "Payload", "received": {"title": 5}}


async def test_a_bad_parameter_names_the_part_of_the_request(app: RunningApp) -> None:
    _, of_query = await send(app, "GET", "/session?limit=x")
    _, of_path = await send(app, "GET", "/session/nope")
    assert (of_query["data"]["kind"], of_path["data"]["kind"]) == ("Query", "Params")
    assert of_path["data"]["message"].endswith('at ["sessionID"]')


async def test_what_is_not_there_is_told_with_a_tag_too(app: RunningApp) -> None:
    _, permission = await send(app, "POST", "/permission/per_none/reply", b'{"reply": "once"}')
    _, question = await send(app, "POST", "/question/que_none/reject", b"{}")
    _, project = await send(app, "PATCH", "/project/none", b'{"name": "x"}')
    for error, tag, facts in (
        (permission, "PermissionNotFoundError", {"requestID": "per_none"}),
        (question, "QuestionNotFoundError", {"requestID": "que_none"}),
        (project, "ProjectNotFoundError", {"projectID": "none"}),
    ):
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
async def test_malformed_json(app: RunningApp, body: bytes) -> None:
    session = await app.create_session()
    for method, path in (
        ("POST", "/session"),
        ("PATCH", f"/session/{session['id']}"),
        ("POST", f"/session/{session['id']}/message"),
    ):
        status, error = await send(app, method, path, body)
        assert (status, error["name"], error["success"]) == (400, "BadRequest", False), path
    assert await app.get("/session") == [session]


async def test_what_a_string_holds_does_not_count_as_values(app: RunningApp) -> None:
    session = await app.create_session()
    text = '[{,"\\\\' * 50_000
    assert (await app.prompt(session["id"], text, noReply=True))["parts"][0]["text"] == text


async def test_a_long_bad_request_is_answered_shortly(app: RunningApp) -> None:
    session = await app.create_session()
    parts = json.dumps({"parts": [{"type": "unknown", "text": "x" * 100}] * 3000}).encode()
    status, error = await send(app, "POST", f"/session/{session['id']}/message", parts)
    assert (status, error["name"]) == (400, "BadRequest") and "received" not in error["data"]
    assert 0 < len(error["errors"]) < 3000


@pytest.mark.parametrize("depth", [100, 250, 260, 500, 1000])
async def test_deep_json_is_stored_or_refused(app: RunningApp, depth: int) -> None:
    session = await app.create_session()
    sent = await app.prompt(session["id"], "hi", noReply=True)
    part = sent["parts"][0]
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    body = json.dumps({**part, "metadata": "HERE"}).encode().replace(b'"HERE"', nested)
    path = f"/session/{session['id']}/message/{part['messageID']}/part/{part['id']}"
    status, _ = await send(app, "PATCH", path, body)
    assert status in (200, 400)
    assert len(await app.messages(session["id"])) == 1
    assert (await send(app, "POST", "/log", b'{"service":"s","level":"info","message":"m","extra":%b}' % nested))[0] in (200, 400)
    assert (await send(app, "PATCH", "/config", b'{"provider":{"x":{"options":%b}}}' % nested))[0] in (200, 400)
    assert (await send(app, "GET", "/config"))[0] == 200


async def test_strange_characters_are_kept(app: RunningApp) -> None:
    for text in ("\0", "a\0b", "\x01\x1f\x7f", "\u2028\u2029", "\ufeff", "\U0001f600", "\ufffe\uffff", "e\u0301"):
        session = await app.create_session(title=text)
        assert (await app.get(f"/session/{session['id']}"))["title"] == text
        await app.prompt(session["id"], text, noReply=True)
        assert (await app.messages(session["id"]))[0]["parts"][0]["text"] == text
        await app.get("/session", params={"search": text})


async def test_a_body_must_be_json(app: RunningApp) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        status, error = await send(app, "POST", "/session", b"{}", **{"content-type": content_type})
        assert (status, error["name"]) == (415, "UnsupportedMediaTypeError")
    for content_type in (
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/merge-patch+json",
    ):
        assert (await send(app, "POST", "/session", b"{}", **{"content-type": content_type}))[0] == 200


async def test_a_body_that_is_too_large_is_refused_by_its_length_or_as_it_comes(app: RunningApp) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'{"title": "'
        for _ in range(40):
            yield b"x" * 1024 * 1024
        yield b'"}'

    for content, length in ((b"{}", {"content-length": str(2**31)}), (endless(), {})):
        status, error = await send(app, "POST", "/session", content, **{**JSON, **length})
        assert (status, error["name"]) == (413, "PayloadTooLargeError")
    assert await app.get("/session") == []
    text = "word " * 400_000
    session = await app.create_session()
    sent = await app.prompt(session["id"], text, noReply=True)
    assert sent["parts"][0]["text"] == text, "a large one within the limit is taken"


async def test_an_internal_error_is_reported_without_its_details(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError(f"broken in {__file__}")

    monkeypatch.setattr(app.services.store._database, "read", broken)
    response = await app.client.get("/session/ses_1")
    assert response.status_code >= 500
    error = response.json()
    assert set(error) == {"name", "data"} and "Traceback" not in response.text and "/app/" not in response.text
