"""What is wrong with a request is refused by its field, in both APIs, and changes nothing."""

from typing import Any

import pytest
from running_app import RunningApp, text_part

Row = tuple[str, Any, int, str]
"""Method and path, body, status, and what the answer names: the field, else the kind of error. `SESSION` is one that is there."""

MAYBE = [{"permission": "x", "pattern": "*", "action": "maybe"}]
NOWHERE = {"type": "file", "mime": "text/plain", "url": "file:///nowhere/at/all.txt"}
LOCAL = {"type": "local", "command": ["x"]}
_ADDRESSES = """
ftp://example.com https:// https://user:password@93.184.216.34/ http://127.0.0.1:4096/ http://[::1]/ http://192.88.99.1/hook
http://169.254.169.254/latest http://0xc0586301/hook http://192.88.25345/hook http://[3fff::1]/hook http://[3fff:0fff::5]/hook
http://[::ffff:192.88.99.7]/hook http://localhost:9/ http://localhost.:9/ http://LOCALHOST:9/
"""
NO_ADDRESSES = [*_ADDRESSES.split(), "https://93.184.216.34:99999/hook", "no address", "https://93.184.216.34/" + "x" * 2000]
NO_SECRETS = ["", "whsec_", "whsec_short", "whsec_c2hvcnQ=", "QUFB" * 8, "whsec_***", "whsec_" + "QUFB" * 40]
NO_EVENTS = ["", "session", "session.gone", "nothing.*", "ses*", "*.idle", "session.idle*", "server.heartbeat"]
WRONG_VARIABLES = [("A", 5), ("A", "x\0y"), *((name, "x") for name in ("", "A=B", "-S", "A\0", "1A"))]
HOOK = {"url": "https://93.184.216.34/hook", "events": ["session.idle"]}
EVENT = {"id": "evt_1", "aggregateID": "ses_1", "seq": 0, "type": "session.created.1", "data": {}}
KEY = "sk-marked-secret-0123456789"
CONNECT = "POST /api/integration/anthropic/connect"
TWENTY_ONE_WORDS = "+".join(f"w{number}" for number in range(21))


def prompt(**fields: Any) -> dict[str, Any]:
    return {"parts": [text_part("hi")], **fields}


def each(request: str, name: str, *bodies: Any, status: int = 400) -> list[Row]:
    return [(request, body, status, name) for body in bodies]


def asked(path: str, name: str, *queries: str, status: int = 400) -> list[Row]:
    return [(f"GET {path}?{query}", None, status, name) for query in queries]


def wrong(request: str, others: dict[str, Any], /, **fields: Any) -> list[Row]:
    """Each field by itself, beside the others, is refused by its name."""
    return [(request, {**others, field: value}, 400, field) for field, value in fields.items()]


def refused(status: int, name: str, *requests: str, body: Any = None) -> list[Row]:
    return [(request, body, status, name) for request in requests]


NO_PARTS_OF_A_PROMPT = [
    *({"type": kind, "text": "x"} for kind in ("picture", "reasoning", "compaction", "step-start", "snapshot", "retry")),
    {"type": "tool", "callID": "c", "tool": "t", "state": {"status": "pending", "input": {}, "raw": ""}},
    {"type": "patch", "hash": "abc", "files": []},
    {"text": "no type"},
]
WRONG_PROMPTS = [
    (prompt(agent="nobody"), "agent"),
    (prompt(model={"providerID": "scripted"}), "model.modelID"),
    (prompt(model={"providerID": "scripted", "modelID": "nope"}), "ProviderModelNotFoundError"),
    (prompt(messageID="ses_1"), "messageID"),
    (prompt(noReply="yes"), "noReply"),
    (prompt(noReply=True, tools={"bash": 0}), "tools.bash"),
    ({"parts": [NOWHERE]}, "parts"),
    ({"parts": [{**NOWHERE, "url": "not an address"}]}, "parts.url"),
    *((body, "parts") for body in ({}, {"parts": None}, {"parts": "text"})),
    ({"parts": [{**text_part("x"), "id": "prt_1"}, {**text_part("y"), "id": "prt_1"}]}, "parts.1.id"),
    *(({"parts": [part]}, "parts.0") for part in NO_PARTS_OF_A_PROMPT),
    ({"parts": [{**text_part("x"), "synthetic": "true"}]}, "parts.0.text.synthetic"),
]

FIRST: list[Row] = [
    *wrong("POST /session", {}, title=1, parentID="msg_1", agent="nobody", workspaceID="wrk_1", metadata=1),
    *each("POST /session", "permission.0.action", {"permission": MAYBE}),
    *each("POST /session", "BadRequest", [], "x"),
    *each("POST /session", "ProviderModelNotFoundError", {"model": {"providerID": "nobody", "id": "x"}}),
    *each("PATCH /session/SESSION", "permission.0.action", {"permission": MAYBE}),
    *each("PATCH /session/SESSION", "time.archived", {"time": {"archived": "5"}}),
    *asked("/session", "limit", "limit=x", "limit=-1", "limit=nan"),
    *asked("/session", "start", "start=x", "start=1;2"),
    *asked("/session", "cursor", "cursor=x", "cursor=-1", f"cursor={'1' * 30}", "cursor=%C3%A9"),
    *asked("/session", "search", f"search={'x' * 60_000}"),
    *asked("/session", "scope", "scope=all"),
    *asked("/experimental/session", "roots", "roots=perhaps"),
    *refused(404, "NotFoundError", "GET /session/ses_nope", "PATCH /session/ses_nope", "DELETE /session/ses_nope", body={}),
    *refused(404, "NotFoundError", *(f"GET /session/ses_nope/{below}" for below in ("message", "message/msg_1", "children"))),
    *refused(404, "NotFoundError", *(f"GET /session/ses_nope/{below}" for below in ("todo", "diff"))),
    *refused(404, "NotFoundError", *(f"POST /session/ses_nope/{verb}" for verb in ("message", "prompt_async")), body=prompt()),
    *refused(404, "NotFoundError", *(f"POST /session/ses_nope/{verb}" for verb in ("fork", "share")), body={}),
    *refused(404, "NotFoundError", "DELETE /session/ses_nope/message/msg_1", "DELETE /session/ses_nope/share"),
    *refused(404, "NotFoundError", "DELETE /session/ses_nope/message/msg_1/part/prt_1"),
    *refused(400, "sessionID", *(f"GET /session/foo{below}" for below in ("", "/message", "/children", "/todo", "/diff"))),
    *each("POST /session/SESSION/fork", "NotFoundError", {"messageID": "msg_nope"}, status=404),
    *each("POST /session/SESSION/fork", "messageID", {"messageID": "foo"}),
    *each("POST /session/SESSION/summarize", "auto", {"providerID": "scripted", "modelID": "x", "auto": "no"}),
    *each("POST /session/SESSION/revert", "dryRun", {"messageID": "msg_x", "dryRun": 1}),
    *asked("/session/SESSION/diff", "messageID", "messageID=foo"),
    *asked("/session/SESSION/diff", "NotFoundError", "messageID=msg_nope", status=404),
    *asked("/session/SESSION/message", "limit", "limit=x", "limit=-1"),
    *asked("/session/SESSION/message", "before", "before=x", "before=-1", f"before={'9' * 40}"),
    *refused(400, "messageID", "GET /session/SESSION/message/foo"),
    *refused(404, "NotFoundError", *(f"{verb} /session/SESSION/message/msg_nope" for verb in ("GET", "DELETE"))),
    *refused(404, "NotFoundError", "DELETE /session/SESSION/message/msg_nope/part/prt_1"),
    *[(f"POST /session/SESSION/{way}", body, 400, name) for way in ("message", "prompt_async") for body, name in WRONG_PROMPTS],
    # Requests to the user.
    *each("POST /permission/per_nope/reply", "NotFoundError", {"reply": "once"}, status=404),
    *each("POST /permission/foo/reply", "requestID", {"reply": "once"}),
    *each("POST /permission/per_nope/reply", "reply", {"reply": "maybe"}, {}),
    *each("POST /session/ses_nope/permissions/per_nope", "NotFoundError", {"response": "once"}, status=404),
    *each("POST /session/ses_nope/permissions/per_nope", "response", {"response": "x"}),
    *each("POST /question/que_nope/reply", "NotFoundError", {"answers": [["A"]]}, status=404),
    *each("POST /question/que_nope/reply", "answers", {"answers": "A"}),
    *each("POST /question/foo/reply", "requestID", {"answers": []}),
    *each("POST /question/que_nope/reject", "NotFoundError", None, status=404),
    # Configuration and keys.
    *each("PATCH /config", "model", {"model": 1}),
    *each("PATCH /config", "permission.bash", {"permission": {"bash": "maybe"}}),
    *each("PATCH /config", "server.port", {"server": {"port": "x"}}),
    *each("PATCH /config", "agent", {"agent": []}),
    *[("PATCH /config", {"plugin": [name]}, 400, "plugin.0") for name in ("./a\0.py", "file:///a%00.py", "file://[a.py")],
    *each("PATCH /config", "skills.paths.1", {"skills": {"paths": ["b", "a\0"]}}),
    *each("PATCH /config", "instructions.0", {"instructions": ["a\0"]}),
    *each("PATCH /config", "sandbox.read.0", {"sandbox": {"read": ["/a\0"]}}),
    *each("PATCH /config", "formatter.x.environment.A", {"formatter": {"x": {"environment": {"A": "\0"}}}}),
    *each("PATCH /config", "BadRequest", [], "x", {"nope": 1}),
    *each("PATCH /global/config", "model", {"model": 1}),
    *each("PATCH /global/config", "BadRequest", {"unknown": 1}),
    *each("PATCH /global/config", "BadRequest", [], "x"),
    *each("PUT /auth/anthropic", "BadRequest", {}, {"type": "other", "key": "x"}),
    *each("PUT /auth/anthropic", "api.key", {"type": "api"}, {"type": "api", "key": 1}),
    # Files, directories and projects.
    *asked("/find", "pattern", "pattern=(", "pattern=a%00b", "pattern=a%0Ab"),
    *asked("/find/file", "limit", "query=x&limit=0", "query=x&limit=201"),
    *asked("/find/file", "type", "query=x&type=link"),
    *asked("/find/file", "dirs", "query=x&dirs=maybe"),
    ("GET /find/symbol", None, 400, "query"),
    *refused(400, "path", "GET /file?path=a%00b", "GET /file/content?path=a%00b"),
    *refused(403, "FileForbiddenError", "GET /file?path=..", "GET /file/content?path=.."),
    *[
        (f"GET /{route}?path=x&query=x&pattern=x&directory=/etc", None, 403, "DirectoryForbiddenError")
        for route in ("find", "find/file", "find/symbol", "file", "file/content", "file/status", "experimental/capabilities")
    ],
    *asked("/path", "directory", *(f"directory={name}" for name in ("relative/path", ".", "nul%00", "~"))),
    *asked("/path", "directory", "directory=DIRECTORY/a.txt", "directory=DIRECTORY/missing"),
    *each("PATCH /project/none", "NotFoundError", {"name": "x"}, status=404),
    *each("POST /log", "level", {"service": "tui", "level": "loud", "message": "x"}),
    *each("POST /log", "service", {}),
    ("GET /experimental/tool", None, 400, "provider"),
    *asked("/experimental/tool", "ProviderModelNotFoundError", "provider=scripted&model=none"),
    *asked("/vcs/diff", "context", "mode=git&context=-1"),
    *asked("/vcs/diff", "mode", "mode=other", ""),
    *each("POST /vcs/apply", "patch", {}),
    *each("POST /experimental/worktree", "name", {"name": 5}),
    # What is searched for in messages.
    *asked("/find/message", "query", "", "query=", "query=%20%0A", f"query={'x' * 1001}", f"query={TWENTY_ONE_WORDS}"),
    *asked("/find/message", "sessionID", "query=x&sessionID=msg_1"),
    *asked("/find/message", "role", "query=x&role=system"),
    *asked("/find/message", "in", "query=x&in=file"),
    *asked("/find/message", "since", "query=x&since=yesterday", "query=x&since=inf"),
    *asked("/find/message", "until", "query=x&until=nan"),
    *asked("/find/message", "limit", "query=x&limit=0", "query=x&limit=101"),
    *asked("/find/message", "cursor", *(f"query=x&cursor={wrong}" for wrong in ("", "-1", "%D9%A1", "9" * 19))),
    # MCP servers, terminals, steering.
    *each("POST /mcp", "config", {"name": "x"}),
    *each("POST /mcp", "name", {"name": "", "config": LOCAL}),
    *each("POST /mcp", "config.local.command", {"name": "x", "config": {"type": "local", "command": []}}),
    *each("POST /mcp", "config", {"name": "x", "config": {"type": "other"}}),
    *each("POST /mcp", "config.remote.more", {"name": "x", "config": {"type": "remote", "url": "http://x", "more": 1}}),
    *refused(404, "NotFoundError", *(f"POST /mcp/nobody/{verb}" for verb in ("connect", "disconnect", "auth"))),
    *refused(404, "NotFoundError", "POST /mcp/nobody/auth/authenticate", "DELETE /mcp/nobody/auth"),
    *refused(
        404, "NotFoundError", "POST /mcp/nobody/auth/callback", "GET /mcp/oauth/callback?code=x&state=y", body={"code": "x"}
    ),
    *wrong("POST /pty", {}, title=5, args="x"),
    *wrong("POST /pty", {}, args=["a\0b"]),
    *each("POST /pty", "cwd", *({"cwd": directory} for directory in ("none", "a.txt", "x\0y", 300 * "x"))),
    *[("POST /pty", {"env": {name: value}}, 400, f"env.{name}") for name, value in WRONG_VARIABLES],
    *[("POST /pty", {"cwd": outside}, 403, "DirectoryForbiddenError") for outside in ("/", "/etc", "..", "../..", "/etc/../etc")],
    *each("POST /tui/append-prompt", "text", {}),
    *wrong("POST /tui/execute-command", {}, command=3),
    *wrong("POST /tui/show-toast", {"message": "m", "variant": "info"}, variant="pink", duration=-1),
    *wrong("POST /tui/select-session", {}, sessionID="msg_1"),
    *each("POST /tui/select-session", "NotFoundError", {"sessionID": "ses_gone"}, status=404),
    *each("POST /tui/publish", "BadRequest", {"type": "session.idle", "properties": {"sessionID": "ses_1"}}),
    *each("POST /tui/publish", "tui.prompt.append.properties.text", {"type": "tui.prompt.append", "properties": {}}),
    # Webhooks.
    *[("POST /webhook", {**HOOK, "url": url}, 400, "url") for url in NO_ADDRESSES],
    *wrong("POST /webhook", HOOK, events=[], sessionID="no session"),
    *[("POST /webhook", {**HOOK, "secret": secret}, 400, "secret") for secret in NO_SECRETS],
    *[("POST /webhook", {**HOOK, "events": [pattern]}, 400, "events.0") for pattern in NO_EVENTS],
    *each("POST /webhook", "events.1", {**HOOK, "events": ["session.idle", "message.part.delta"]}),
    *each("POST /webhook", "NotFoundError", {**HOOK, "sessionID": "ses_unknown"}, status=404),
    *each("POST /webhook", "DirectoryForbiddenError", {**HOOK, "directory": "/etc"}, status=403),
    *refused(404, "NotFoundError", *(f"{verb} /webhook/whk_none" for verb in ("GET", "PATCH", "DELETE")), body={}),
    *refused(404, "NotFoundError", "GET /webhook/whk_none/deliveries", "POST /webhook/whk_none/test"),
    # What OpenCode has and is not here.
    *each("POST /experimental/console/switch", "accountID", {"accountID": "a", "orgID": "o"}),
    *each("POST /experimental/workspace", "WorkspaceCreateError", {"type": "worktree"}),
    *each("DELETE /experimental/workspace/wrk_1", "NotFoundError", None, status=404),
    *each("POST /experimental/project/p/copy", "ProjectCopyError", {"strategy": "git_worktree", "directory": "/x"}),
    *each("DELETE /experimental/project/p/copy", "ProjectCopyError", {"directory": "/x", "force": True}),
    *each("POST /sync/replay", "events", {"directory": "/x", "events": [EVENT]}),
    *each("POST /sync/steal", "sessionID", {"sessionID": "ses_1"}),
    *each("POST /provider/openai/oauth/authorize", "ProviderAuthOauthMissing", {"method": 0}),
    *each("POST /provider/openai/oauth/callback", "ProviderAuthOauthMissing", {"method": 0, "code": "c"}),
    *each("POST /experimental/console/switch", "accountID", {}),
    *each("POST /experimental/workspace", "type", {}),
    *each("POST /experimental/project/p/copy", "strategy", {}),
    *each("DELETE /experimental/project/p/copy", "directory", {}),
    *each("POST /sync/replay", "directory", {}),
    *each("POST /sync/steal", "sessionID", {}),
    *each("POST /provider/openai/oauth/authorize", "method", {}),
    *each("POST /provider/openai/oauth/callback", "method", {}),
    *each("POST /global/upgrade", "target", {}),
]

SECOND_BODIES: dict[str, Any] = {
    "prompt": {"prompt": {"text": "x"}},
    "agent": {"agent": "build"},
    "model": {"model": {"id": "rules", "providerID": "scripted"}},
    "revert/stage": {"messageID": "msg_1"},
}
SECOND: list[Row] = [
    *each("POST /api/session", "id", {"id": "bad"}),
    *each("POST /api/session", "location.directory", {"location": {}}),
    *each("POST /api/session", "location.workspaceID", {"location": {"directory": "DIRECTORY", "workspaceID": "wrk_1"}}),
    *asked("/api/session", "order", "order=up"),
    *asked("/api/session", "InvalidCursorError", "cursor=zzz"),
    ("GET /api/session/xyz", None, 400, "sessionID"),
    *each("POST /api/session/SESSION/prompt", "prompt.text", {"prompt": {}}),
    *wrong("POST /api/session/SESSION/prompt", {"prompt": {"text": "x"}}, delivery="x", id="x"),
    *[
        ("POST /api/session/SESSION/prompt", {"prompt": {"text": "x", "files": [{"uri": uri}]}}, 400, "prompt.files")
        for uri in ("file:///none.txt", "none.txt", "http://[", "data:text/plain;base64,x")
    ],
    *each("POST /api/session/SESSION/agent", "agent", {"agent": "nobody"}),
    *each("POST /api/session/SESSION/model", "model.providerID", {"model": {"id": "x"}}),
    *each("POST /api/session/SESSION/model", "model", {"model": {"id": "none", "providerID": "scripted"}}),
    *each("POST /api/session/SESSION/revert/stage", "messageID", {}),
    *asked("/api/session/SESSION/message", "limit", "limit=201"),
    *asked("/api/session/SESSION/message", "InvalidCursorError", "cursor=zzz"),
    *asked("/api/session/SESSION/history", "after", "after=-1"),
    *asked("/api/session/SESSION/event", "after", "after=x"),
    *refused(404, "SessionNotFoundError", *(f"GET /api/session/ses_none{below}" for below in ("", "/message", "/context"))),
    *refused(
        404, "SessionNotFoundError", *(f"GET /api/session/ses_none/{below}" for below in ("history", "event", "permission"))
    ),
    *refused(404, "SessionNotFoundError", "GET /api/session/ses_none/message/msg_1", "GET /api/session/ses_none/question"),
    *refused(404, "SessionNotFoundError", *(f"POST /api/session/ses_none/{verb}" for verb in ("compact", "wait", "interrupt"))),
    *refused(404, "SessionNotFoundError", *(f"POST /api/session/ses_none/revert/{verb}" for verb in ("clear", "commit"))),
    *[(f"POST /api/session/ses_none/{verb}", body, 404, "SessionNotFoundError") for verb, body in SECOND_BODIES.items()],
    *refused(404, "MessageNotFoundError", "GET /api/session/SESSION/message/msg_1"),
    *refused(
        400, "sessionID", *(f"GET /api/session/none/{below}" for below in ("permission", "question", "permission/per_none"))
    ),
    # Requests to the user.
    ("GET /api/session/SESSION/permission/per_none", None, 404, "PermissionNotFoundError"),
    ("GET /api/session/SESSION/permission/none", None, 400, "requestID"),
    *each("POST /api/session/SESSION/permission/per_none/reply", "PermissionNotFoundError", {"reply": "once"}, status=404),
    *each("POST /api/session/SESSION/permission/per_none/reply", "reply", {"reply": "maybe"}, {}),
    *each("POST /api/session/SESSION/permission", "action", {"resources": []}),
    *each("POST /api/session/SESSION/permission", "agent", {"action": "bash", "resources": ["x"], "agent": "none"}),
    *each("POST /api/session/SESSION/question/que_none/reply", "QuestionNotFoundError", {"answers": [["A"]]}, status=404),
    *each("POST /api/session/SESSION/question/que_none/reply", "answers.0", {"answers": [1]}),
    *each("POST /api/session/SESSION/question/que_none/reject", "QuestionNotFoundError", {}, status=404),
    # Places, files, providers.
    *asked("/api/location", "directory", "location[directory]=below", "location[directory]=/a%00b"),
    *asked("/api/location", "location.workspace", "location[workspace]=wrk_1"),
    *asked("/api/location", "location", 'location={"directory": "/"}'),
    *asked("/api/location", "ForbiddenError", "location[directory]=/", status=403),
    *asked("/api/fs/list", "path", "path=none", "path=a.txt", f"path={'x' * 300}"),
    *asked("/api/fs/list", "ForbiddenError", "path=/etc", "path=..", status=403),
    *asked("/api/fs/find", "query", ""),
    *asked("/api/fs/find", "type", "query=a&type=link"),
    *asked("/api/fs/find", "limit", "query=a&limit=0", "query=a&limit=x"),
    *[(f"GET /api/fs/read/{path}", None, 404, "FileNotFoundError") for path in ("none.txt", "inside", "inside/")],
    ("GET /api/fs/read/..%2F..%2Fetc%2Fhostname", None, 403, "ForbiddenError"),
    ("GET /api/provider/anthropic", None, 404, "ProviderNotFoundError"),
    *each(f"{CONNECT}/key", "key", {}, {"key": ""}),
    *each("POST /api/integration/none/connect/key", "integrationID", {"key": KEY}),
    *each(f"{CONNECT}/oauth", "methodID", {"methodID": "browser", "inputs": {}}, {}),
    ("GET /api/integration/attempt/none", None, 400, "attemptID"),
    *each("POST /api/integration/attempt/none/complete", "attemptID", {}),
    *each("PATCH /api/credential/none", "label", {"label": 5}),
]


def named(error: dict[str, Any]) -> str:
    if "errors" in error:
        return ".".join(map(str, error["errors"][0]["path"])) or error["name"]
    return str(error["name"] if "name" in error else error.get("field", error["_tag"]))


async def everything(app: RunningApp, session_id: str) -> list[Any]:
    """What one of the refused requests could have changed."""
    paths = ("/session", f"/session/{session_id}/message", "/config", "/global/config", "/mcp", "/pty", "/webhook", "/provider")
    return [await app.get(path) for path in paths]


@pytest.mark.parametrize("rows", [FIRST, SECOND], ids=["first API", "second API"])
async def test_what_is_wrong_is_refused_by_its_field_and_changes_nothing(app: RunningApp, rows: list[Row]) -> None:
    (app.directory / "inside").mkdir()
    session = (await app.create_session())["id"]
    await app.prompt(session, "Kept", noReply=True)
    before, otherwise = await everything(app, session), []
    for request, body, status, name in rows:
        method, _, path = request.replace("SESSION", session).replace("DIRECTORY", str(app.directory)).partition(" ")
        response = await app.client.request(method, path, **({} if body is None else {"json": body}))
        found = (response.status_code, named(response.json()) if response.status_code >= 400 else "")
        assert KEY not in response.text, request
        otherwise += [(request[:100], str(body)[:100], found)] if found != (status, name) else []
    assert otherwise == []
    assert await everything(app, session) == before and app.provider.requests == []
