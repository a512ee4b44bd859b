"""The matrix: every route, as every kind of user, on what is theirs and what is another's."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import isasyncgenfunction
from pathlib import Path
from typing import Any

import pytest
from every_route import Route, api_routes
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from identity_provider import AUDIENCE, IdentityProvider, identity_provider
from route_roles import ROLES, operation_of, roles_of
from running_app import RunningApp, running_app, text_part
from turns import until
from user_logins import add_user, bearer, logged_in, user

from app.api.json_route import router
from app.api.roles import Permitted
from app.main import create_app
from app.settings import Settings
from app.users.principal import Role
from app.users.tokens import TokenStore
from app.users.users import User
from app.util import clock

SECRET = "marked-secret-of-anna"
NEVER_CALLED = "http://127.0.0.1:1/"
STREAMS = ("/event", "/global/event", "/api/event", "/api/session/{sessionID}/event")
STREAMS += ("/tui/control/next", "/session/{sessionID}/editor")
"""They do not end, and steering and files are waited for: test_api_users.py and test_api_steering.py have what is in them."""
LAST = """
webhook.delete session.dequeue session.abort session.deleteMessage part.delete session.revert v2.session.interrupt
v2.session.wait v2.session.revert.stage v2.session.compact session.delete pty.update pty.connectToken pty.connect
v2.pty.update v2.pty.connectToken v2.pty.connect v2.pty.remove pty.remove
"""
"""What takes from the others what they are to see: all ask for it of something unknown, the owner in the end of what is there."""
SHOWING = ("session.list", "session.get", "session.messages", "session.message", "session.export", "find.messages")
SHOWING += ("v2.session.list", "v2.session.get", "v2.session.messages", "v2.session.message", "v2.session.context")
SHOWING += ("v2.session.history",)
"""What has the secret in it, for whoever may see it."""

_EVENT = {"id": "evt_1", "aggregateID": "a", "seq": 0, "type": "t", "data": {}}
_BODIES: tuple[tuple[str, Any], ...] = (
    ("session.create", {"title": "made"}),
    ("session.update pty.update v2.pty.update", {"title": SECRET}),
    ("session.prompt session.prompt_async", {"noReply": True, "parts": [text_part("Hi")]}),
    ("session.command", {"command": "no-such-command", "arguments": ""}),
    ("session.shell", {"agent": "build", "command": "true"}),
    ("session.init", {"messageID": "msg_none", "providerID": "scripted", "modelID": "no-such-model"}),
    ("session.summarize", {"providerID": "scripted", "modelID": "no-such-model"}),
    ("session.revert v2.session.revert.stage", {"messageID": "msg_none"}),
    ("v2.session.switchAgent", {"agent": "build"}),
    ("v2.session.switchModel", {"model": {"id": "rules", "providerID": "scripted"}}),
    ("v2.session.prompt", {"prompt": {"text": "Hi"}, "resume": False}),
    ("permission.reply v2.session.permission.reply", {"reply": "once"}),
    ("permission.respond", {"response": "once"}),
    ("question.reply v2.session.question.reply", {"answers": [["x"]]}),
    ("v2.integration.connect.key", {"key": "sk-0123456789"}),
    ("v2.integration.connect.oauth", {"methodID": "browser", "inputs": {}}),
    ("v2.credential.update", {"label": "x"}),
    ("v2.session.permission.create", {"action": "bash", "resources": ["x"]}),
    ("session.editorText", {"id": "none"}),
    ("app.log", {"service": "test", "level": "info", "message": "x"}),
    ("auth.set", {"type": "api", "key": "sk-0123456789"}),
    ("config.update global.config.update", {"username": "x"}),
    ("project.update", {"name": "x"}),
    ("mcp.add", {"name": "none", "config": {"type": "local", "command": ["true"], "enabled": False}}),
    ("mcp.auth.callback", {"code": "x"}),
    ("webhook.create", {"url": NEVER_CALLED, "events": ["webhook.disabled"]}),
    ("webhook.update", {"events": ["webhook.disabled"]}),
    ("vcs.apply", {"patch": "none"}),
    ("worktree.remove worktree.reset", {"directory": "/none"}),
    ("global.upgrade", {"target": "1.0.0"}),
    ("experimental.console.switchOrg", {"accountID": "a", "orgID": "o"}),
    ("experimental.workspace.create", {"type": "worktree"}),
    ("experimental.workspace.warp", {"id": None, "sessionID": "ses_unknown"}),
    ("experimental.controlPlane.moveSession", {"sessionID": "ses_unknown", "destination": {"directory": "/"}}),
    ("v2.projectCopy.create", {"strategy": "git_worktree", "directory": "/"}),
    ("v2.projectCopy.remove", {"directory": "/", "force": False}),
    ("sync.replay", {"directory": "/", "events": [_EVENT]}),
    ("sync.steal", {"sessionID": "ses_unknown"}),
    ("provider.oauth.authorize", {"method": 0}),
    ("provider.oauth.callback", {"method": 0, "code": "x"}),
    ("pty.create v2.pty.create", {"command": "true"}),
)
BODIES = {operation: body for operations, body in _BODIES for operation in operations.split()}
QUERIES: dict[str, dict[str, str]] = {
    "tool.list": {"provider": "scripted", "model": "rules"},
    "find.text": {"pattern": "hello"},
    "find.files": {"query": "a"},
    "find.messages": {"query": SECRET},
    "find.symbols": {"query": "a"},
    "file.list": {"path": "."},
    "vcs.diff": {"mode": "git"},
    "file.read": {"path": "a.txt"},
    "/mcp/oauth/callback": {"state": "none"},
    "v2.fs.find": {"query": "a"},
}


@dataclass
class Desk:
    """A server with what anna has: `objects` fill the paths' parameters."""

    app: RunningApp
    logins: dict[str, dict[str, str]]
    objects: dict[str, str]

    async def ask(self, route: Route, operation: str, who: str, objects: dict[str, str]) -> tuple[int, str]:
        (method, path), query = route, QUERIES.get(operation)
        body = BODIES.get(operation, {} if method in ("POST", "PUT", "PATCH") else None)
        request = self.app.client.request(method, path.format(**objects), headers=self.logins[who], params=query, json=body)
        response = await request
        return response.status_code, response.text

    async def stored(self) -> Any:
        """All that is stored of anna's session, and of what it waits for."""
        path = f"/session/{self.objects['sessionID']}"
        parts = [path, *(f"{path}/{below}" for below in ("message", "todo", "children"))]
        parts += ["/permission", "/session", "/session/status", "/webhook", "/pty"]
        return [(await self.app.client.get(part, headers=self.logins["owner"])).json() for part in parts]


_UNKNOWN = """
sessionID=ses_unknown messageID=msg_unknown partID=prt_unknown queuedID=qpr_unknown requestID=per_unknown
permissionID=per_unknown projectID=unknown providerID=anthropic name=unknown webhookID=whk_unknown id=wrk_unknown
ptyID=pty_unknown path=a.txt integrationID=anthropic attemptID=unknown credentialID=unknown
"""
UNKNOWN = {"shareID": "0" * 40, **dict(pair.split("=") for pair in _UNKNOWN.split())}


@asynccontextmanager
async def desk(base: Path) -> AsyncIterator[Desk]:
    """anna has a session with a prompt of hers, and a permission request that waits."""
    asks = [{"tool": "bash", "args": {"command": "echo x", "description": SECRET}}]
    with identity_provider() as issuer:
        oidc = {"oidc_issuer": issuer.issuer, "oidc_audience": AUDIENCE, "oidc_role_claim": "role"}
        async with (
            running_app(base, turns=[asks], patience=900, webhook_private_addresses=True, **oidc) as app,
            user(app, "anna") as anna,
        ):
            ask = [{"permission": "bash", "pattern": "*", "action": "ask"}]
            session = await anna.create_session(title=SECRET, permission=ask)
            async with anna.events() as events:
                await anna.prompt_async(session["id"], SECRET)
                request = (await events.until("permission.asked")).properties
            [prompt, *_] = await anna.messages(session["id"])
            await anna.prompt_async(session["id"], SECRET, whenBusy="queue")
            [queued] = await anna.get(f"/session/{session['id']}/queue")
            objects = {
                **UNKNOWN,
                "sessionID": session["id"],
                "messageID": prompt["info"]["id"],
                "partID": prompt["parts"][0]["id"],
                "requestID": request["id"],
                "permissionID": request["id"],
                "webhookID": (await anna.post("/webhook", {**BODIES["webhook.create"], "url": NEVER_CALLED + SECRET}))["id"],
                "queuedID": queued["id"],
                "ptyID": (await anna.post("/pty", {"title": SECRET}))["id"],
            }
            yield Desk(app, {**await _logins(app, issuer), "owner": dict(anna.client.headers)}, objects)


async def _logins(app: RunningApp, issuer: IdentityProvider) -> dict[str, dict[str, str]]:
    store = TokenStore(app.data_dir)
    member, viewer, admin = [await add_user(app, *who) for who in (("bert", "member"), ("vera", "viewer"), ("root", "admin"))]
    expired, made = store.create("expired", lifetime_ms=1, user="root"), clock.now_ms()
    while clock.now_ms() <= made + 1:
        pass
    tokens = {
        "other member": member,
        "viewer": viewer,
        "admin": admin,
        "expired": expired,
        "read-only": store.create("reader", user="bert", read_only=True),
        "JWT": issuer.token("carl", role="member"),
        "JWT of an admin": issuer.token("carl", role="admin"),
        "JWT without a role": issuer.token("carl"),
        "JWT, wrong issuer": issuer.token("carl", role="admin", iss="https://elsewhere.example"),
        "JWT, wrong audience": issuer.token("carl", role="admin", aud="other"),
        "JWT, expired": issuer.token("carl", role="admin", exp=1),
        "JWT, alg none": issuer.unsigned("carl"),
        "JWT, HS256 with the public key": issuer.signed_with_public_key("carl"),
    }
    return {"nobody": {}, **{who: bearer(token) for who, token in tokens.items()}}


REFUSED = ("nobody", "expired", "JWT without a role", "JWT, wrong issuer", "JWT, wrong audience", "JWT, expired", "JWT, alg none")
REFUSED += ("JWT, HS256 with the public key",)
MAY_SEE = ("owner", "viewer", "admin", "JWT of an admin")
FOR_ADMINS = (Permitted.ADMIN, Permitted.ADMIN_READER)
OPEN = ("global.health", "share.session", "/", "/page/{name}", "/s/{shareID}")
HIDDEN_OBJECTS = ("sessionID", "requestID", "permissionID", "webhookID", "ptyID")


def names_what_is_hidden(path: str) -> bool:
    return any(f"{{{name}}}" in path for name in HIDDEN_OBJECTS)


def test_every_route_says_who_may_use_it(tmp_path: Path) -> None:
    """A route that is new stands in this table, in docs/security.md, and in the tests below by itself. One that does not say so
    is for admins. None depends on what is to be ended, which would cost each request a context of its own."""
    app = create_app(Settings(data_dir=tmp_path / "data"), workspace=tmp_path)
    assert roles_of(app) == {operation: [role] for operation, role in ROLES.items()}
    assert [route.path for route in api_routes(app) if any(map(isasyncgenfunction, needed(route.dependant)))] == []
    routes, new = router("/new"), FastAPI()
    routes.get("")(lambda: None)
    new.include_router(routes)
    assert list(roles_of(new).values()) == [[Permitted.ADMIN]]


def needed(dependant: Dependant) -> Iterator[Any]:
    for each in dependant.dependencies:
        yield each.call
        yield from needed(each)


async def test_the_matrix(tmp_path: Path, figure: Any) -> None:
    """Whoever may not see a session gets the very answer that an unknown id gets; nobody hears of the secrets in it."""
    async with desk(tmp_path) as at:
        every = {
            (method, route.path_format): operation_of(route) for route in api_routes(at.app.fastapi) for method in route.methods
        }
        routes = {route: name for route, name in every.items() if route[1] not in STREAMS}
        before = await at.stored()
        for route, operation in routes.items():
            await refuses(at, route, operation)
            for who in ("other member", "JWT"):
                await hides(at, route, operation, who)
        assert await at.stored() == before, "nothing of anna's was changed"
        for who in ("owner", "admin", "JWT of an admin"):
            for route, operation in routes.items():
                status, body = await at.ask(route, operation, who, UNKNOWN if operation in LAST.split() else at.objects)
                allowed = who != "owner" or ROLES[operation] not in FOR_ADMINS
                assert (status not in (401, 403)) == allowed, (who, route, status, body)
                assert SECRET in body or operation not in SHOWING, (who, route)
        for (method, path), operation in every.items():
            if method == "GET" and path in STREAMS:
                await opens(at, path, ROLES[operation] is Permitted.WRITER)
        for who in ("owner", "admin"):  # the keys that routes have stored: without one the scripted model answers
            await at.ask(("DELETE", "/auth/{providerID}"), "auth.remove", who, UNKNOWN)
        for operation in LAST.split():
            [route] = [route for route, name in routes.items() if name == operation]
            status, body = await at.ask(route, operation, "owner", at.objects)
            # With the keys that the owner has stored by now, the model of the prompt is not offered any more.
            assert status in (200, 204, 404, 426) or "There is no model" in body, (route, status, body)
    figure(f"{len(every)} routes × {len(at.logins)} kinds of login, on anna's objects and unknown ones; 0 wrong")


async def refuses(at: Desk, route: Route, operation: str) -> None:
    """Whoever has no login, and whoever may only read."""
    for who in REFUSED:
        status, body = await at.ask(route, operation, who, at.objects)
        assert (status in (401, 429) or operation in OPEN) and SECRET not in body, (who, route, status)
    for who in ("read-only", "viewer"):
        status, body = await at.ask(route, operation, who, at.objects)
        assert (status == 403) == (ROLES[operation] is not Permitted.ANYONE), (who, route, status, body)
        assert (SECRET in body) if who == "viewer" and operation in SHOWING else who == "viewer" or SECRET not in body


async def opens(at: Desk, path: str, writes: bool) -> None:
    """A stream, as everybody."""
    for who, headers in at.logins.items():
        async with at.app.client.stream("GET", path.format(**at.objects), headers=headers) as response:
            assert (response.status_code in (401, 429)) == (who in REFUSED), (who, path, response.status_code)
            forbidden = writes and who in ("read-only", "viewer")
            assert (response.status_code == 403) == forbidden, (who, path, response.status_code)
            hidden = names_what_is_hidden(path) and not forbidden and who not in (*REFUSED, *MAY_SEE)
            assert (response.status_code == 404) == hidden, (who, path, response.status_code)


async def hides(at: Desk, route: Route, operation: str, who: str) -> None:
    status, body = await at.ask(route, operation, who, at.objects)
    named = route[1] if names_what_is_hidden(route[1]) else ""
    assert SECRET not in body and (named or at.objects["sessionID"] not in body), (who, route, body)
    if ROLES[operation] in FOR_ADMINS:
        assert status == 403, (who, route, status)
    elif names_what_is_hidden(route[1]):
        unknown, told = await at.ask(route, operation, who, UNKNOWN)
        assert status == unknown == 404, (who, route, status, body)
        for name in HIDDEN_OBJECTS:
            body = body.replace(at.objects[name], UNKNOWN[name])
        assert told == body, (who, route)
    else:
        assert status not in (401, 403), (who, route, status, body)


async def test_a_member_works_in_their_roots_alone(app: RunningApp, tmp_path: Path) -> None:
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    for directory in (own, foreign):
        directory.mkdir()
        (directory / "note.txt").write_text(f"a note in {directory.name}")
    (own / "link").symlink_to(foreign)
    async with user(app, "anna", roots=[own]) as anna, user(app, "bert", roots=[foreign]) as bert:
        assert (await anna.get("/path"))["directory"] == (await anna.create_session())["directory"] == str(own)
        for outside in (foreign, app.directory, tmp_path / "none", "/etc", own / ".." / "foreign", own / "link", own / "\0"):
            query = {"directory": str(outside), "path": ".", "pattern": "note"}
            for path in ("session", "file", "find", "event", "config", "agent", "permission", "mcp", "path"):
                assert (await anna.get(f"/{path}", expect=403, params=query))["name"] == "DirectoryForbiddenError", (path, query)
        await anna.post(f"/session?directory={foreign}", {}, expect=403)
        for path in (f"{foreign}/note.txt", "link/note.txt"):
            await anna.get(f"/file/content?path={path}", expect=403)
        for who, note in ((anna, "a note in own"), (bert, "a note in foreign")):
            assert (await who.get("/file/content?path=note.txt"))["content"] == note
        assert str(foreign) not in str(await anna.get("/project"))


async def test_one_server_notices_what_another_stores_of_a_user(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here another object of the same database; what is read is kept for a second."""
    users = app.services.users
    assert await users.get("anna") is None
    await type(users)(users._database).add(User("anna", Role.VIEWER))
    monkeypatch.setattr("app.users.users.FRESH_SECONDS", 0.0)
    found = await users.get("anna")
    assert found is not None and found.role is Role.VIEWER


async def test_prompts_have_a_rate(tmp_path: Path) -> None:
    async with running_app(tmp_path, prompt_rate="2/hour") as app, user(app, "anna") as anna, user(app, "bert") as bert:
        mine, other = await anna.create_session(), await bert.create_session()
        path, body = f"/session/{mine['id']}/prompt_async", BODIES["session.prompt"]
        assert [(await anna.client.post(path, json=body)).status_code for _ in range(3)] == [204, 204, 429]
        refused = await anna.client.post(path, json=body)
        assert refused.json()["name"] == "RateLimitedError" and 0 < int(refused.headers["retry-after"]) <= 3600
        second = TokenStore(app.data_dir).create("second", user="anna")
        assert (await app.client.post(path, json=body, headers=bearer(second))).status_code == 429, "it is the user's rate too"
        assert len(await anna.messages(mine["id"])) == 2
        await bert.post(f"/session/{other['id']}/prompt_async", body, expect=204)


@pytest.mark.parametrize("path", ["/event", "/global/event", "/api/event"])
async def test_a_stream_ends_with_the_login_that_it_was_opened_with(tmp_path: Path, path: str) -> None:
    """One whose login could not be read for a while goes on until it is revoked."""
    async with running_app(tmp_path, heartbeat_seconds=0.05) as app:
        store, file, aside = TokenStore(app.data_dir), app.data_dir / "tokens.json", app.data_dir / "aside.json"
        async with user(app, "anna") as anna, user(app, "bert") as bert, logged_in(app, store.create("operator")) as operator:
            token = (await bert.post("/auth/event-token"))["token"]
            async with anna.events(path) as of_anna, app.events(path, token=token) as of_bert, operator.events(path) as own:
                file.rename(aside)
                file.mkdir()  # what reads it gets an OSError, as with too many open files
                came = own.characters
                await until(lambda: own.characters > came + 200)  # some heartbeats
                file.rmdir()
                aside.rename(file)
                assert not own.ended and not of_anna.ended and not of_bert.ended
                store.revoke("anna")
                await of_anna.until_ended()
                await app.services.users.remove("bert")
                await of_bert.until_ended()
                store.revoke("operator")
                await own.until_ended()


async def test_a_stream_by_an_event_token_ends_with_the_token_that_asked_for_it(tmp_path: Path) -> None:
    async with running_app(tmp_path, heartbeat_seconds=0.05) as app:
        store = TokenStore(app.data_dir)
        async with user(app, "anna") as anna, logged_in(app, store.create("operator")) as operator:
            for name, login in (("operator", operator), ("anna", anna)):
                token = (await login.post("/auth/event-token"))["token"]
                async with app.events(token=token) as stream:
                    await until(lambda stream=stream: stream.characters > 200)  # some heartbeats
                    assert not stream.ended
                    store.revoke(name)
                    await stream.until_ended()


async def test_a_stream_whose_login_can_be_watched_no_more_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: object) -> bool:
        raise RuntimeError("it broke")

    async with running_app(tmp_path, heartbeat_seconds=0.05) as app, logged_in(app, TokenStore(app.data_dir).create("a")) as a:
        async with a.events() as stream:
            monkeypatch.setattr(app.services.login, "still_holds", breaks)
            await stream.until_ended()
