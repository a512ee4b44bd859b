"""Terminals: both faces, over real connections to real programs."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
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
from sse_reader import Received
from turns import until
from user_logins import add_user, bearer, user

from app.users import tokens
from app.users.principal import OPERATOR
from app.workspace.terminals.terminal import INPUT_BYTES
from app.workspace.terminals.terminals import MOST_EXITED

READY = "echo rea''dy\n"


async def create(app: RunningApp, *words: str, **fields: Any) -> str:
    """The id of a terminal of `words`, of a shell without."""
    command = {"command": words[0], "args": list(words[1:])} if words else {"command": "/bin/sh"}
    made: dict[str, str] = await app.post("/pty", {**command, **fields})
    return made["id"]


def login_of(app: RunningApp) -> dict[str, str]:
    return {"authorization": app.client.headers["authorization"]}


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def of_terminal(pty_id: str) -> Callable[[Received], bool]:
    return lambda event: pty_id in str(event.data) and event.type.startswith("pty.")


# Made, listed, changed, removed.


async def test_a_terminal_is_made_shown_changed_and_removed(app: RunningApp) -> None:
    async with app.events() as events:
        made = await app.post("/pty", {"command": "cat", "title": "Mine"})
        assert made == {
            "id": made["id"],
            "title": "Mine",
            "command": "cat",
            "args": [],
            "cwd": str(app.directory),
            "status": "running",
            "pid": made["pid"],
        }
        assert lives(made["pid"]) and (await events.until("pty.created")).properties == {"info": made}
        assert await app.get("/pty") == [made] and await app.get(f"/pty/{made['id']}") == made
        renamed = await app.call("PUT", f"/pty/{made['id']}", {"title": "Yours"})
        assert renamed == {**made, "title": "Yours"} == (await events.until("pty.updated")).properties["info"]
        assert await app.call("DELETE", f"/pty/{made['id']}") is True
        assert (await events.until("pty.deleted")).properties == {"id": made["id"]}
        assert not lives(made["pid"]) and await app.get("/pty") == []
        assert "pty.exited" not in events.types
        for method, body in (("GET", None), ("PUT", {"title": "x"}), ("DELETE", None)):
            gone = await app.call(method, f"/pty/{made['id']}", body, expect=404)
            assert gone["name"] == "NotFoundError" and gone["_tag"] == "PtyNotFoundError" and gone["ptyID"] == made["id"]


async def test_without_words_it_is_a_login_shell_that_the_configuration_may_name(app: RunningApp) -> None:
    made = await app.post("/pty")
    assert made["args"] == ["-l"] and made["title"] == f"Terminal {made['id'][-4:]}"
    await app.call("PATCH", "/config", {"shell": "/bin/sh"})
    named, other = await app.post("/pty"), await app.post("/pty", {"command": "cat"})
    assert (named["command"], named["args"], other["command"]) == ("/bin/sh", ["-l"], "cat")
    for size in ({"rows": 0, "cols": 1}, {"rows": 1}, {"rows": 1, "cols": 65536}, {"rows": -1, "cols": 1}):
        await app.call("PUT", f"/pty/{other['id']}", {"size": size}, expect=400)
    shells = {shell["path"]: shell for shell in await app.get("/pty/shells")}
    assert shells["/bin/sh"] == {"path": "/bin/sh", "name": "sh", "acceptable": True}


async def test_a_directory_lists_its_own(app: RunningApp) -> None:
    (app.directory / "part").mkdir()
    here, there = await create(app, "cat"), (await app.post(f"/pty?directory={app.directory}/part", {"command": "cat"}))["id"]
    assert [each["id"] for each in await app.get("/pty")] == [here]
    assert [each["id"] for each in await app.get(f"/pty?directory={app.directory}/part")] == [there]


async def test_as_many_as_the_setting_says(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_terminals=2) as app:
        first, _ = await create(app, "cat"), await create(app, "cat")
        refused = await app.call("POST", "/pty", {}, expect=429)
        assert refused["name"] == "TooManyTerminalsError" and "OPENSESSION_MAX_TERMINALS" in refused["data"]["message"]
        await app.call("DELETE", f"/pty/{first}")
        await create(app, "cat")


async def test_a_server_without_terminals_says_so(tmp_path: Path) -> None:
    async with running_app(tmp_path, terminals=False) as app, listening(app) as port:
        assert await app.get("/pty") == []
        for method, path in (("POST", "/pty"), ("GET", "/pty/pty_x"), ("POST", "/pty/pty_x/connect-token")):
            refused = await app.call(method, path, {} if method == "POST" else None, expect=403)
            assert "OPENSESSION_TERMINALS" in refused["data"]["message"]
        tagged = await app.call("POST", "/api/pty", {}, expect=403)
        assert tagged["_tag"] == "ForbiddenError" and "OPENSESSION_TERMINALS" in tagged["message"]
        assert await refusal(port, "pty_x") == 403


# Connections.


async def test_what_is_typed_runs_and_what_is_printed_is_sent(app: RunningApp) -> None:
    pty_id = await create(app, "/bin/sh", env={"MARK": "a b"})
    async with listening(app) as port, at_terminal(port, pty_id) as client:
        await client.type('echo "$MARK $TERM $((6*7))"\n')
        await client.until("a b xterm-256color 42\r\n")
        await app.call("PUT", f"/pty/{pty_id}", {"size": {"rows": 33, "cols": 101}})
        await client.type("stty size\n")
        await client.until("33 101")
        await client.socket.send("echo é😀\n".encode())
        await client.until("é😀\r\n")


async def test_interrupts_reach_the_program_alone(app: RunningApp) -> None:
    code = "import time\ntry:\n print('ready', flush=True); time.sleep(1000)\nexcept KeyboardInterrupt:\n print('caught')"
    async with listening(app) as port, at_terminal(port, await create(app, "python3", "-c", code)) as client:
        await client.until("ready")
        await client.type("\x03")
        await client.until("caught")
        assert await client.until_closed() == 1000


async def test_who_comes_back_goes_on_where_they_were(app: RunningApp) -> None:
    """The cursor counts UTF-16 units, so a browser adds up the lengths of what it was sent."""
    pty_id = await create(app)
    async with listening(app) as port:
        async with at_terminal(port, pty_id) as client:
            await client.type(f"stty -echo; printf 'first é😀\\n'; {READY}")
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


async def test_at_the_end_all_are_told_and_it_is_gone(app: RunningApp) -> None:
    pty_id = await create(app)
    async with listening(app) as port, app.events() as events, AsyncExitStack() as stack:
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


async def test_one_that_the_second_api_made_stays_until_it_is_removed(app: RunningApp) -> None:
    async with listening(app) as port, app.events() as events:
        made = await app.post("/api/pty", {"command": "sh", "args": ["-c", "exit 5"]})
        pty_id, place = made["data"]["id"], made["location"]
        assert place["directory"] == str(app.directory)
        await events.until(lambda event: event.type == "pty.exited")
        exited = {**made["data"], "status": "exited", "exitCode": 5}
        assert await app.get(f"/api/pty/{pty_id}") == {"location": place, "data": exited}
        assert (await app.get("/api/pty"))["data"] == [exited] and await app.get("/pty") == []
        async with at_terminal(port, pty_id, face="/api") as client:
            assert await client.until_closed() == 4404
        await app.call("PUT", f"/api/pty/{pty_id}", {"title": "x", "size": {"rows": 1, "cols": 1}})
        await app.call("DELETE", f"/api/pty/{pty_id}", expect=204)
        gone = await app.get(f"/api/pty/{pty_id}", expect=404)
        assert gone["_tag"] == "PtyNotFoundError" and gone["ptyID"] == pty_id


async def test_of_those_that_stay_the_oldest_go(app: RunningApp) -> None:
    async with app.events() as events:
        ids = [(await app.post("/api/pty", {"command": "true"}))["data"]["id"] for _ in range(MOST_EXITED + 2)]
        await events.until("pty.exited", count=len(ids))
        await events.until("pty.deleted", count=2)
        assert len((await app.get("/api/pty"))["data"]) == MOST_EXITED


async def test_a_client_that_reads_nothing_is_in_nobodys_way(app: RunningApp) -> None:
    pty_id = await create(app, "sh", "-c", "read go; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo do''ne; read go")
    async with listening(app) as port, at_terminal(port, pty_id), at_terminal(port, pty_id) as reader:
        await reader.type("\n")
        await reader.until("done")
        kept = app.services.terminals.get(OPERATOR, pty_id).scrollback
        assert kept.end - kept.start <= 1024 * 1024 < kept.end


async def test_input_that_nobody_reads_is_bounded(app: RunningApp) -> None:
    pty_id = await create(app, "sh", "-c", "stty raw -echo; echo ready; exec sleep 1000")
    async with listening(app) as port, at_terminal(port, pty_id) as other, at_terminal(port, pty_id) as client:
        await client.until("ready")
        for _ in range(3):
            await client.type("x" * (INPUT_BYTES // 2))
        assert await client.until_closed() == 1013
        await other.until("ready")
        async with at_terminal(port, pty_id) as large:
            await large.type("x" * (INPUT_BYTES + 1))
            assert await large.until_closed() == 1009


async def test_both_apis_show_the_same_terminals_and_tell_a_plain_request_what_to_do(app: RunningApp) -> None:
    async with listening(app) as port:
        pty_id = await create(app, "cat")
        assert (await app.get("/api/pty"))["data"] == await app.get("/pty")
        async with at_terminal(port, pty_id, face="/api") as client:
            await client.type("hello\n")
            await client.until("hello\r\nhello\r\n")
        assert "WebSocket" in (await app.get(f"/pty/{pty_id}/connect", expect=426))["data"]["message"]
        assert (await app.get(f"/api/pty/{pty_id}/connect", expect=426))["_tag"] == "UpgradeRequiredError"


# Who may.


async def test_pages_of_other_origins_and_other_hosts_are_refused(tmp_path: Path) -> None:
    async with running_app(tmp_path, cors_origins="https://app.example.com") as app, listening(app) as port:
        pty_id = await create(app, "cat")
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://localhost.evil.example", ""):
            assert await refusal(port, pty_id, headers={"Origin": origin}) == 403, origin
            assert await refusal(port, pty_id, headers={"Origin": origin}, face="/api") == 403, origin
        ticket = (await app.post(f"/pty/{pty_id}/connect-token"))["ticket"]
        assert await refusal(port, pty_id, headers={"Origin": "https://evil.example"}, ticket=ticket) == 403
        for origin in ("https://app.example.com", f"http://127.0.0.1:{port}"):
            assert await refusal(port, pty_id, headers={"Origin": origin}) == 101, origin
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example"):
            assert await refusal(port, pty_id, headers={"Host": host}) == 403, host


async def test_nothing_but_a_terminal_is_connected_to(app: RunningApp) -> None:
    paths = [
        "/event",
        "/session",
        "/pty",
        "/pty/x/y/connect",
        "/pty//connect",
        "/pty/../session/connect",
        "/pty/pty_none/connect",
    ]
    paths += ["/pty/pty_x%2F..%2F..%2Fconnect", "/api/api/pty/x/connect", "/pty/%00/connect", "/pty/" + "x" * 2000 + "/connect"]
    async with listening(app) as port:
        for path in paths:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            writer.write(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n\r\n".encode())
            status = int((await asyncio.wait_for(reader.readline(), 60)).split()[1])
            writer.close()
            assert status in (200, 400, 404), (path, status)


async def test_a_ticket_opens_one_terminal_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_app(tmp_path) as app, listening(app) as port, user(app, "anna") as anna:
        first, second = await create(anna, "cat"), await create(anna, "cat")

        async def ticket(pty_id: str) -> str:
            given = await anna.post(f"/pty/{pty_id}/connect-token")
            assert given["expires_in"] == 60
            return str(given["ticket"])

        opened = await ticket(first)
        async with at_terminal(port, first, ticket=opened) as client:
            await client.type("hello\n")
            await client.until("hello\r\nhello")
        assert await refusal(port, first, ticket=opened) == 403
        assert await refusal(port, second, ticket=(other := await ticket(first))) == 403
        assert await refusal(port, first, ticket=other) == 403
        old = await ticket(first)
        monkeypatch.setattr(tokens.clock, "now_ms", lambda: 2**60)
        assert await refusal(port, first, ticket=old) == 403


async def test_a_terminal_is_its_owners(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, listening(app) as port, AsyncExitStack() as stack:
        people = {
            name: await stack.enter_async_context(user(app, name, role))
            for name, role in (("anna", "member"), ("bert", "member"), ("vera", "viewer"), ("root", "admin"))
        }
        anna, bert, vera, root = people.values()
        heard = await stack.enter_async_context(bert.events())
        pty_id = await create(anna, "cat", title="secret")
        paths = [("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/connect-token"), ("GET", "/connect")]
        for method, path in paths:
            body = {"title": "x"} if method == "PUT" else None
            for face in ("", "/api"):
                await bert.call(method, f"{face}/pty/{pty_id}{path}", body, expect=404)
        assert await bert.get("/pty") == [] and (await bert.get("/api/pty"))["data"] == []
        statuses = {name: await refusal(port, pty_id, headers=login_of(each)) for name, each in people.items()}
        assert statuses == {"anna": 101, "bert": 404, "vera": 403, "root": 403}
        for each in (vera, root):
            assert [one["id"] for one in await each.get("/pty")] == [pty_id]
            await each.call("PUT", f"/pty/{pty_id}", {"title": "x"}, expect=403)
            await each.call("POST", f"/pty/{pty_id}/connect-token", expect=403)
        await vera.call("DELETE", f"/pty/{pty_id}", expect=403)
        await root.call("DELETE", f"/pty/{pty_id}")
        own = await create(bert, "cat")
        await heard.until(of_terminal(own))
        assert pty_id not in str([event.data for event in heard.seen]), "of others' terminals nobody hears"


async def test_a_member_opens_terminals_in_their_roots_alone(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "link").symlink_to(tmp_path)
    async with running_app(tmp_path) as app, user(app, "anna", roots=[own]) as anna:
        for outside in (app.directory, tmp_path, "/etc", own / "link", own / ".."):
            await anna.call("POST", f"/pty?directory={outside}", {}, expect=403)
            await anna.call("POST", f"/api/pty?location[directory]={outside}", {}, expect=403)
            await anna.call("POST", "/pty", {"cwd": str(outside)}, expect=403)
        assert (await anna.post("/pty", {"command": "cat"}))["cwd"] == str(own)


async def test_a_login_is_needed_and_a_connection_ends_with_it(tmp_path: Path) -> None:
    async with running_app(tmp_path, heartbeat_seconds=0.05) as app, listening(app) as port:
        token = await add_user(app, "anna")
        pty_id = (await app.call("POST", "/pty", {"command": "cat"}, headers=bearer(token)))["id"]
        assert [await refusal(port, pty_id, headers=headers) for headers in ({}, bearer("wrong"))] == [401, 401]
        async with at_terminal(port, pty_id, headers=bearer(token)) as client:
            await app.services.users.remove("anna")
            assert await client.until_closed() == 1008


async def test_who_opened_and_who_connected_stands_in_the_audit_log(app: RunningApp) -> None:
    pty_id = await create(app, "cat")
    async with listening(app) as port:
        assert await refusal(port, pty_id) == 101
        assert await refusal(port, "pty_none") == 404
    lines = [orjson.loads(line) for line in (app.data_dir / "audit.log").read_bytes().splitlines()]
    assert [(line["method"], line["path"], line["status"], line["created"]) for line in lines] == [
        ("POST", "/pty", 200, pty_id),
        ("GET", f"/pty/{pty_id}/connect", 101, None),
    ]


async def test_connections_count_as_the_servers(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_connections=2) as app, listening(app) as port:
        pty_id = await create(app, "cat")
        async with at_terminal(port, pty_id), at_terminal(port, pty_id):
            assert await refusal(port, pty_id) == 503


# What is left behind.


@asynccontextmanager
async def with_children(app: RunningApp) -> AsyncIterator[Sequence[int]]:
    """A terminal with children that heed no hangup; their pids and its own."""
    script = 'trap "" HUP TERM; (trap "" HUP TERM; setsid sleep 1000) & nohup sleep 1000 & sleep 1000'
    pty_id = await create(app, "bash", "-c", script)
    pid = (await app.get(f"/pty/{pty_id}"))["pid"]
    process = psutil.Process(pid)

    def sleeping() -> list[int]:
        return [child.pid for child in process.children(recursive=True) if child.name() == "sleep"]

    await until(lambda: len(sleeping()) == 3)
    yield [pid, *sleeping()]


@pytest.mark.parametrize("path", ["DELETE /pty/{id}", "POST /instance/dispose", "POST /global/dispose"])
async def test_what_was_started_in_it_ends_with_it(app: RunningApp, path: str) -> None:
    async with with_children(app) as pids:
        [listed] = await app.get("/pty")
        method, _, route = path.format(**listed).partition(" ")
        await app.call(method, route)
        assert not [pid for pid in pids if lives(pid)]
        assert await app.get("/pty") == []


async def test_when_the_server_stops_none_is_left(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, with_children(app) as pids:
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


async def test_what_goes_on_in_the_background_ends_with_the_program(app: RunningApp) -> None:
    async with app.events() as events:
        await create(app, "sh", "-c", "setsid sleep 1000 & echo $! > pid; sleep 0.1")
        await events.until("pty.exited")
    pid = int((app.directory / "pid").read_text())
    await until(lambda: not lives(pid) or psutil.Process(pid).name() != "sleep")


async def test_descriptors_are_given_back(app: RunningApp) -> None:
    async with listening(app) as port:
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
async def test_in_the_sandbox_the_servers_files_are_out_of_reach(app: RunningApp) -> None:
    script = f"cat {app.data_dir}/opensession.db; echo x > made; echo $A; echo do''ne; read wait"
    pty_id = await create(app, "sh", "-c", script, env={"A": "within", "LD_PRELOAD": "/none.so"})
    async with listening(app) as port, at_terminal(port, pty_id) as client:
        text = await client.until("done")
        assert "No such file" in text and "within" in text and (app.directory / "made").read_text() == "x\n"
