"""Terminals: both faces, over real connections to real programs."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from at_terminal import at_terminal, refusal
from over_sockets import listening
from running_app import RunningApp, running_app
from sandboxed import needs_sandbox
from turns import until
from user_logins import add_user, bearer, user

from app.users import tokens
from app.users.principal import OPERATOR
from app.workspace.terminals.terminal import INPUT_BYTES
from app.workspace.terminals.terminals import MAX_EXITED


@pytest.fixture
async def port(app: RunningApp) -> AsyncIterator[int]:
    async with listening(app) as port:
        yield port


async def create(app: RunningApp, *words: str, **fields: Any) -> str:
    """The id of a terminal of `words`, of a shell without."""
    command = {"command": words[0], "args": list(words[1:])} if words else {"command": "/bin/sh"}
    made: dict[str, str] = await app.post("/pty", {**command, **fields})
    return made["id"]


async def ids(app: RunningApp, **query: str) -> list[str]:
    return [each["id"] for each in await app.get("/pty", params=query)]


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# Made, listed, changed, removed.


async def test_a_terminal_is_made_shown_changed_and_removed(app: RunningApp) -> None:
    async with app.events() as events:
        made = await app.post("/pty", {"command": "cat", "title": "Mine"})
        fields = {"title": "Mine", "command": "cat", "args": [], "cwd": str(app.directory), "status": "running"}
        assert made == {"id": made["id"], "pid": made["pid"], **fields}
        assert lives(made["pid"]) and (await events.until("pty.created")).properties == {"info": made}
        assert await app.get("/pty") == [made] and await app.get(f"/pty/{made['id']}") == made
        renamed = await app.call("PUT", f"/pty/{made['id']}", {"title": "Yours"})
        assert renamed == {**made, "title": "Yours"} == (await events.until("pty.updated")).properties["info"]
        for size in ({"rows": 0, "cols": 1}, {"rows": 1}, {"rows": 1, "cols": 65536}, {"rows": -1, "cols": 1}):
            await app.call("PUT", f"/pty/{made['id']}", {"size": size}, expect=400)
        assert await app.call("DELETE", f"/pty/{made['id']}") is True
        assert (await events.until("pty.deleted")).properties == {"id": made["id"]}
        assert not lives(made["pid"]) and await app.get("/pty") == []
        assert "pty.exited" not in events.types
        for method, body in (("GET", None), ("PUT", {"title": "x"}), ("DELETE", None)):
            gone = await app.call(method, f"/pty/{made['id']}", body, expect=404)
            assert (gone["name"], gone["_tag"], gone["ptyID"]) == ("NotFoundError", "PtyNotFoundError", made["id"])


async def test_without_words_it_is_a_login_shell_and_a_directory_lists_its_own(app: RunningApp) -> None:
    made = await app.post("/pty")
    assert made["args"] == ["-l"] and made["title"] == f"Terminal {made['id'][-4:]}"
    await app.call("DELETE", f"/pty/{made['id']}")
    await app.call("PATCH", "/config", {"shell": "/bin/sh"})
    named = await app.post("/pty")
    assert (named["command"], named["args"]) == ("/bin/sh", ["-l"]), "the configuration names one"
    shells = {shell["path"]: shell for shell in await app.get("/pty/shells")}
    assert shells["/bin/sh"] == {"path": "/bin/sh", "name": "sh", "acceptable": True}
    part = {"directory": f"{app.directory}/part"}
    (app.directory / "part").mkdir()
    there = await app.post("/pty", {"command": "cat"}, params=part)
    assert (await ids(app), await ids(app, **part)) == ([named["id"]], [there["id"]])


async def test_there_are_as_many_terminals_and_connections_as_the_settings_say(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_terminals=2, max_connections=2) as app, listening(app) as port:
        first, second = await create(app, "cat"), await create(app, "cat")
        refused = await app.post("/pty", {}, expect=429)
        assert refused["name"] == "TooManyTerminalsError" and "OPENSESSION_MAX_TERMINALS" in refused["data"]["message"]
        await app.call("DELETE", f"/pty/{first}")
        await create(app, "cat")
        async with at_terminal(port, second), at_terminal(port, second):
            assert await refusal(port, second) == 503


async def test_a_server_without_terminals_says_so(tmp_path: Path) -> None:
    async with running_app(tmp_path, terminals=False) as app, listening(app) as port:
        assert await app.get("/pty") == []
        for method, path in (("POST", "/pty"), ("GET", "/pty/pty_x"), ("POST", "/pty/pty_x/connect-token")):
            refused = await app.call(method, path, {} if method == "POST" else None, expect=403)
            assert "OPENSESSION_TERMINALS" in refused["data"]["message"]
        tagged = await app.post("/api/pty", {}, expect=403)
        assert tagged["_tag"] == "ForbiddenError" and "OPENSESSION_TERMINALS" in tagged["message"]
        assert await refusal(port, "pty_x") == 403


# Connections.


async def test_what_is_typed_runs_and_what_is_printed_is_sent(app: RunningApp, port: int) -> None:
    pty_id = await create(app, "/bin/sh", env={"MARK": "a b"})
    async with at_terminal(port, pty_id) as client:
        await client.type('echo "$MARK $TERM $((6*7))"\n')
        await client.until("a b xterm-256color 42\r\n")
        await app.call("PUT", f"/pty/{pty_id}", {"size": {"rows": 33, "cols": 101}})
        await client.type("stty size\n")
        await client.until("33 101")
        await client.socket.send("echo é😀\n".encode())
        await client.until("é😀\r\n")


async def test_interrupts_reach_the_program_alone(app: RunningApp, port: int) -> None:
    code = "import time\ntry:\n print('ready', flush=True); time.sleep(1000)\nexcept KeyboardInterrupt:\n print('caught')"
    async with at_terminal(port, await create(app, "python3", "-c", code)) as client:
        await client.until("ready")
        await client.type("\x03")
        await client.until("caught")
        assert await client.until_closed() == 1000


async def test_who_comes_back_goes_on_where_they_were(app: RunningApp, port: int) -> None:
    """The cursor counts UTF-16 units, so a browser adds up the lengths of what it was sent."""
    pty_id = await create(app)
    async with at_terminal(port, pty_id) as client:
        await client.type("stty -echo; printf 'first é😀\\n'; echo rea''dy\n")
        first = await client.until("ready\r\n")
        cursor = await client.until_told()
    async with at_terminal(port, pty_id, cursor="0") as watcher:
        await watcher.until("ready\r\n")
        assert await watcher.until_told() == len(watcher.text.encode("utf-16-le")) // 2 >= cursor
        cursor = watcher.positions[-1]
        async with at_terminal(port, pty_id, cursor="-1") as late:
            assert await late.until_told() >= cursor and first not in late.text
            await late.type("printf 'second\\n'\n")
            await late.until("second\r\n")
            await watcher.until("second\r\n")
    async with at_terminal(port, pty_id, cursor=str(cursor)) as back:
        await back.until_told()
        assert watcher.text.endswith(back.text) and "second\r\n" in back.text and "first" not in back.text
    for wrong in ("abc", "-5", "", "9" * 40):
        async with at_terminal(port, pty_id, cursor=wrong) as again:
            await again.until("second\r\n")
    async with at_terminal(port, pty_id, cursor="99999999") as ahead:
        assert await ahead.until_told() < 99999999 and ahead.text == ""


async def test_at_the_end_all_are_told_and_it_is_gone(app: RunningApp, port: int) -> None:
    pty_id = await create(app)
    async with app.events() as events, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(at_terminal(port, pty_id)) for _ in range(3)]
        await clients[0].type("echo la''st; exit 3\n")
        for client in clients:
            assert await client.until_closed() == 1000 and "last\r\n" in client.text
        assert (await events.until("pty.exited")).properties == {"id": pty_id, "exitCode": 3}
        assert await app.get("/pty") == []
        await app.get(f"/pty/{pty_id}", expect=404)
        assert await refusal(port, pty_id) == 404
        await create(app, "sh", "-c", "kill -9 $$")
        killed = await events.until("pty.exited", count=2)
        assert killed.properties["exitCode"] == 137, "as a shell gives it"


async def test_one_that_the_second_api_made_stays_until_it_is_removed_or_many_others_ended(app: RunningApp, port: int) -> None:
    async with app.events() as events:
        made = await app.post("/api/pty", {"command": "sh", "args": ["-c", "exit 5"]})
        pty_id, place = made["data"]["id"], made["location"]
        assert place["directory"] == str(app.directory)
        await events.until("pty.exited")
        exited = {**made["data"], "status": "exited", "exitCode": 5}
        assert await app.get(f"/api/pty/{pty_id}") == {"location": place, "data": exited}
        assert (await app.get("/api/pty"))["data"] == [exited] and await app.get("/pty") == []
        async with at_terminal(port, pty_id, face="/api") as client:
            assert await client.until_closed() == 4404
        await app.call("PUT", f"/api/pty/{pty_id}", {"title": "x", "size": {"rows": 1, "cols": 1}})
        await app.call("DELETE", f"/api/pty/{pty_id}", expect=204)
        gone = await app.get(f"/api/pty/{pty_id}", expect=404)
        assert gone["_tag"] == "PtyNotFoundError" and gone["ptyID"] == pty_id
        for _ in range(MAX_EXITED + 2):
            await app.post("/api/pty", {"command": "true"})
        await events.until("pty.exited", count=MAX_EXITED + 3)
        await events.until("pty.deleted", count=3)
        assert len((await app.get("/api/pty"))["data"]) == MAX_EXITED


async def test_a_client_that_reads_nothing_is_in_nobodys_way(app: RunningApp, port: int) -> None:
    pty_id = await create(app, "sh", "-c", "read go; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo do''ne; read go")
    async with at_terminal(port, pty_id), at_terminal(port, pty_id) as reader:
        await reader.type("\n")
        await reader.until("done")
        kept = app.services.terminals.get(OPERATOR, pty_id).scrollback
        assert kept.end - kept.start <= 1024 * 1024 < kept.end


async def test_input_that_nobody_reads_is_bounded(app: RunningApp, port: int) -> None:
    pty_id = await create(app, "sh", "-c", "stty raw -echo; echo ready; exec sleep 1000")
    async with at_terminal(port, pty_id) as other, at_terminal(port, pty_id) as client:
        await client.until("ready")
        for _ in range(3):
            await client.type("x" * (INPUT_BYTES // 2))
        assert await client.until_closed() == 1013
        await other.until("ready")
        async with at_terminal(port, pty_id) as large:
            await large.type("x" * (INPUT_BYTES + 1))
            assert await large.until_closed() == 1009


async def test_both_apis_show_the_same_terminals_and_the_audit_log_who_connected(app: RunningApp, port: int) -> None:
    pty_id = await create(app, "cat")
    assert (await app.get("/api/pty"))["data"] == await app.get("/pty")
    async with at_terminal(port, pty_id, face="/api") as client:
        await client.type("hello\n")
        await client.until("hello\r\nhello\r\n")
    assert await refusal(port, "pty_none") == 404
    assert "WebSocket" in (await app.get(f"/pty/{pty_id}/connect", expect=426))["data"]["message"]
    assert (await app.get(f"/api/pty/{pty_id}/connect", expect=426))["_tag"] == "UpgradeRequiredError"
    lines = [orjson.loads(line) for line in (app.data_dir / "audit.log").read_bytes().splitlines()]
    assert [(line["method"], line["path"], line["status"], line["created"]) for line in lines] == [
        ("POST", "/pty", 200, pty_id),
        ("GET", f"/api/pty/{pty_id}/connect", 101, None),
    ]


# Who may.


async def test_pages_of_other_origins_and_other_hosts_are_refused(tmp_path: Path) -> None:
    async with running_app(tmp_path, cors_origins="https://app.example.com") as app, listening(app) as port:
        pty_id = await create(app, "cat")
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://localhost.evil.example", ""):
            for face in ("", "/api"):
                assert await refusal(port, pty_id, headers={"Origin": origin}, face=face) == 403, origin
        ticket = (await app.post(f"/pty/{pty_id}/connect-token"))["ticket"]
        assert await refusal(port, pty_id, headers={"Origin": "https://evil.example"}, ticket=ticket) == 403
        for origin in ("https://app.example.com", f"http://127.0.0.1:{port}"):
            assert await refusal(port, pty_id, headers={"Origin": origin}) == 101, origin
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example"):
            assert await refusal(port, pty_id, headers={"Host": host}) == 403, host


NO_TERMINALS = ["/event", "/session", "/pty", "/pty/x/y/connect", "/pty//connect", "/pty/../session/connect"]
NO_TERMINALS += ["/pty/pty_none/connect", "/pty/pty_x%2F..%2F..%2Fconnect", "/api/api/pty/x/connect", "/pty/%00/connect"]
NO_TERMINALS += ["/pty/" + "x" * 2000 + "/connect"]


async def test_nothing_but_a_terminal_is_connected_to(port: int) -> None:
    for path in NO_TERMINALS:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        writer.write(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n\r\n".encode())
        status = int((await asyncio.wait_for(reader.readline(), 60)).split()[1])
        writer.close()
        assert status in (200, 400, 404), (path, status)


async def test_a_ticket_opens_one_terminal_once(port: int, anna: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await create(anna, "cat"), await create(anna, "cat")

    async def ticket() -> str:
        given = await anna.post(f"/pty/{first}/connect-token")
        assert given["expires_in"] == 60
        return str(given["ticket"])

    opened, other, old = [await ticket() for _ in range(3)]
    async with at_terminal(port, first, ticket=opened) as client:
        await client.type("hello\n")
        await client.until("hello\r\nhello")
    line = orjson.loads((anna.data_dir / "audit.log").read_bytes().splitlines()[-1])
    assert (line["who"], line["path"]) == ("user anna, connect ticket", f"/pty/{first}/connect")
    for pty_id, used in ((first, opened), (second, other), (first, other)):
        assert await refusal(port, pty_id, ticket=used) == 403
    monkeypatch.setattr(tokens.clock, "now_ms", lambda: 2**60)
    assert await refusal(port, first, ticket=old) == 403


async def test_a_terminal_is_its_owners(
    port: int, anna: RunningApp, bert: RunningApp, vera: RunningApp, root: RunningApp
) -> None:
    async with bert.events() as heard:
        pty_id = await create(anna, "cat", title="secret")
        for method, path in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/connect-token"), ("GET", "/connect")):
            for face in ("", "/api"):
                await bert.call(method, f"{face}/pty/{pty_id}{path}", {"title": "x"} if method == "PUT" else None, expect=404)
        assert await bert.get("/pty") == [] and (await bert.get("/api/pty"))["data"] == []
        for who, status in ((anna, 101), (bert, 404), (vera, 403), (root, 403)):
            assert await refusal(port, pty_id, headers={"authorization": who.client.headers["authorization"]}) == status
        for each in (vera, root):
            assert await ids(each) == [pty_id]
            await each.call("PUT", f"/pty/{pty_id}", {"title": "x"}, expect=403)
            await each.post(f"/pty/{pty_id}/connect-token", expect=403)
        await vera.call("DELETE", f"/pty/{pty_id}", expect=403)
        await root.call("DELETE", f"/pty/{pty_id}")
        own = await create(bert, "cat")
        await heard.until(lambda event: event.type.startswith("pty.") and own in str(event.data))
        assert pty_id not in str([event.data for event in heard.seen]), "of others' terminals nobody hears"


async def test_a_member_opens_terminals_in_their_roots_alone(app: RunningApp, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "link").symlink_to(tmp_path)
    async with user(app, "anna", roots=[own]) as anna:
        for outside in (app.directory, tmp_path, "/etc", own / "link", own / ".."):
            await anna.post(f"/pty?directory={outside}", {}, expect=403)
            await anna.post(f"/api/pty?location[directory]={outside}", {}, expect=403)
            await anna.post("/pty", {"cwd": str(outside)}, expect=403)
        assert (await anna.post("/pty", {"command": "cat"}))["cwd"] == str(own)


async def test_a_login_is_needed_and_a_connection_ends_with_it(tmp_path: Path) -> None:
    async with running_app(tmp_path, heartbeat_seconds=0.05) as app, listening(app) as port:
        login = bearer(await add_user(app, "anna"))
        pty_id = (await app.post("/pty", {"command": "cat"}, headers=login))["id"]
        assert [await refusal(port, pty_id, headers=headers) for headers in ({}, bearer("wrong"))] == [401, 401]
        async with at_terminal(port, pty_id, headers=login) as client:
            ticket = (await app.post(f"/pty/{pty_id}/connect-token", headers=login))["ticket"]
            async with at_terminal(port, pty_id, ticket=ticket) as by_ticket:
                tokens.TokenStore(app.data_dir).revoke("anna")
                assert await by_ticket.until_closed() == await client.until_closed() == 1008
        login = bearer(tokens.TokenStore(app.data_dir).create("again", user="anna"))
        async with at_terminal(port, pty_id, headers=login) as client:
            await app.services.users.remove("anna")
            assert await client.until_closed() == 1008


# What is left behind.


@asynccontextmanager
async def with_children(app: RunningApp) -> AsyncIterator[Sequence[int]]:
    """A terminal with children that heed no hangup; their pids and its own."""
    script = 'trap "" HUP TERM; (trap "" HUP TERM; setsid sleep 1000) & nohup sleep 1000 & sleep 1000'
    pid = (await app.get(f"/pty/{await create(app, 'bash', '-c', script)}"))["pid"]
    process = psutil.Process(pid)

    def sleeping() -> list[int]:
        return [child.pid for child in process.children(recursive=True) if child.name() == "sleep"]

    await until(lambda: len(sleeping()) == 3)
    yield [pid, *sleeping()]


async def test_what_was_started_in_it_ends_with_it_and_with_the_server(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        for request in ("DELETE /pty/{id}", "POST /instance/dispose", "POST /global/dispose"):
            async with with_children(app) as pids:
                [listed] = await app.get("/pty")
                await app.call(*request.format(**listed).split())
                assert not [pid for pid in pids if lives(pid)], request
                assert await app.get("/pty") == []
        async with app.events() as events:
            await create(app, "sh", "-c", "setsid sleep 1000 & echo $! > pid; sleep 0.1")
            await events.until("pty.exited")
        pid = int((app.directory / "pid").read_text())
        await until(lambda: not lives(pid) or psutil.Process(pid).name() != "sleep")
        async with with_children(app) as pids:
            pass
    assert not [pid for pid in pids if lives(pid)]


async def test_a_server_that_stops_waits_for_one_that_is_being_removed(app: RunningApp) -> None:
    pty_id = await create(app, "/bin/sh", "-c", "trap '' TERM HUP; echo ready; while :; do sleep 1; done")
    terminal = app.services.terminals.get(OPERATOR, pty_id)
    await until(lambda: "ready" in terminal.scrollback.read(0)[0])
    removing = asyncio.create_task(app.services.terminals.remove(OPERATOR, pty_id))
    await asyncio.sleep(0)
    await app.services.terminals.close()
    assert not lives(terminal.info.pid)
    await removing


async def test_descriptors_are_given_back(app: RunningApp, port: int) -> None:
    await app.get("/path")  # opens the directory, which is held from then on
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        pty_id = await create(app, "cat")
        async with at_terminal(port, pty_id) as client:
            await client.until_told()
            await app.call("DELETE", f"/pty/{pty_id}")
            assert await client.until_closed() == 1000
    # The audit log, and readers of the database that are opened when others are busy, are not given back.
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before + 6)


@needs_sandbox
async def test_in_the_sandbox_the_servers_files_are_out_of_reach(app: RunningApp, port: int) -> None:
    script = f"cat {app.data_dir}/opensession.db; echo x > made; echo $A; echo do''ne; read wait"
    pty_id = await create(app, "sh", "-c", script, env={"A": "within", "LD_PRELOAD": "/none.so"})
    async with at_terminal(port, pty_id) as client:
        text = await client.until("done")
        assert "No such file" in text and "within" in text and (app.directory / "made").read_text() == "x\n"
