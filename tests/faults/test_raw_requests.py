"""What no HTTP library would send: mangled requests, ways out of a directory, bodies of 20 MB, hundreds of connections."""

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from long_form import LONG
from over_sockets import listening
from polling import until
from real_server import MIB, RealServer, forget_peak, peak_memory, real_server
from running_app import RunningApp, running_app

REQUESTS = 6_000 if LONG else 300
AT_ONCE = 50
BODY = 20 * MIB
BODIES = 40 if LONG else 8
CONNECTIONS = 500
PATIENCE = 1.0

HEAD = b"Host: 127.0.0.1\r\nConnection: close\r\n"
JSON = HEAD + b"Content-Type: application/json\r\n"
SEEDS = [
    b"GET /session?search=a&limit=3 HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"GET /file/content?path=a.txt HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"GET /session/ses_x/message?limit=2 HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"GET /event HTTP/1.1\r\n" + HEAD + b"Last-Event-ID: 1\r\n\r\n",
    b"DELETE /session/ses_x HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"POST /session HTTP/1.1\r\n" + JSON + b'Content-Length: 13\r\n\r\n{"title":"x"}',
    b"POST /session HTTP/1.1\r\n" + JSON + b'Transfer-Encoding: chunked\r\n\r\nd\r\n{"title":"x"}\r\n0\r\n\r\n',
    b"PUT /auth/x HTTP/1.1\r\n" + JSON + b'Content-Length: 26\r\n\r\n{"type":"api","key":"abc"}',
]
NASTY = [
    b"\x00",
    b"\xff\xfe",
    b"%00",
    b"%ff",
    b"\r\n",
    b"\r\n\r\n",
    b"\\ud800",
    b"../" * 8,
    b"%2e%2e%2f" * 8,
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"ffffffffffffffff\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
    b"Host: evil.example\r\n",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"1e999",
    b"NaN",
    b"A" * 70_000,
]
WAYS_OUT = [
    "/../../../../etc/passwd",
    "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/page/../../../../etc/passwd",
    "/page/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/page/%2e%2e/%2e%2e/settings.py",
    "/page//etc/passwd",
    "/s/../session",
    "/s/..%2f..%2fetc/passwd/session",
    "/file/content?path=/etc/passwd",
    "/file/content?path=../../../../../../../../etc/passwd",
    "/file/content?path=..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/file/content?path=a.txt%00/../../etc/passwd",
    "/file/content?path=file:///etc/passwd",
    "/file?path=/etc",
    "/file?path=../../../../..",
    "/find/file?query=passwd&directory=/etc",
    "/session?directory=/etc",
    "/file/content?path=passwd&directory=/etc",
    "/file/content?path=passwd&directory=/proc/self/root/etc",
    "/%c0%ae%c0%ae/%c0%af/etc/passwd",
    "//etc/passwd",
    "/session/ses_..%2f..%2f/message",
    "/experimental/tool?provider=..&model=..%2f..",
]


def mangled(chosen: random.Random) -> bytes:
    sent = bytearray(chosen.choice(SEEDS))
    for _ in range(chosen.randint(1, 4)):
        at = chosen.randrange(len(sent) + 1)
        match chosen.randrange(5):
            case 0:
                sent[at:at] = chosen.choice(NASTY)
            case 1:
                del sent[at : at + chosen.randint(1, 20)]
            case 2:
                sent[at : at + 1] = bytes([chosen.randrange(256)])
            case 3:
                sent[at:at] = sent[at : at + chosen.randint(1, 60)]
            case _:
                sent += chosen.choice(SEEDS)
    return bytes(sent)


async def answer(port: int, sent: bytes) -> bytes:
    """What comes until the server has nothing more to say for a moment."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    said = b""
    try:
        writer.write(sent)
        while came := await asyncio.wait_for(reader.read(2**20), PATIENCE):
            said += came
    except (ConnectionError, TimeoutError):
        pass  # it was cut off, or waits for more of the request
    finally:
        writer.close()
    return said


def statuses(said: bytes) -> list[int]:
    """Of all answers that came; the connection may also just be closed."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d\d\d) ", said)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with real_server(tmp_path_factory.mktemp("mangled")) as running:
        yield running


async def test_mangled_requests(server: RealServer, figure: Any) -> None:
    chosen = random.Random() if LONG else random.Random(7)
    before, opened = server.memory, server.descriptors
    found: list[int] = []
    for _ in range(REQUESTS // AT_ONCE):
        said = await asyncio.gather(*(answer(server.port, mangled(chosen)) for _ in range(AT_ONCE)))
        found += [status for each in said for status in statuses(each)]
    await until_closed(server, opened)
    errors = [status for status in found if status >= 500]
    figure(
        f"{REQUESTS} mangled requests: {len(errors)} 5xx, {len(server.tracebacks())} tracebacks, "
        f"+{(server.memory - before) / MIB:.0f} MiB, +{server.descriptors - opened} open files"
    )
    assert errors == [] and server.tracebacks() == [] and {200, 400, 404} <= set(found)
    assert server.memory - before < 100 * MIB


async def until_closed(server: RealServer, opened: int) -> None:
    """The database and the directories' instances may hold a few more than before."""
    await until(lambda: server.descriptors <= opened + 20)


async def test_no_way_out_of_the_directory(server: RealServer, figure: Any) -> None:
    leaks = []
    for way in WAYS_OUT:
        said = await answer(server.port, b"GET %b HTTP/1.1\r\n%b\r\n" % (way.encode(), HEAD))
        assert statuses(said)[0] < 500, way
        leaks += [way] if b"root:" in said or b"cm9vd" in said or b"class Settings" in said or b'"passwd"' in said else []
    figure(f"{len(WAYS_OUT)} ways out of a directory: {len(leaks)} lead out")
    assert leaks == []


async def test_bodies_of_20_megabytes_at_once(server: RealServer, figure: Any) -> None:
    bodies = [
        ("/session", b'{"title":"' + b"x" * BODY + b'"}'),
        ("/session/SESSION/message", b'{"noReply":true,"parts":[{"type":"text","text":"' + b"x" * BODY + b'"}]}'),
        ("/session", b"[" * BODY),
        ("/log", b'{"service":"x","level":"info","message":"' + b"y" * BODY + b'"}'),
        ("/session/SESSION/fork", b'{"a":' * 2000 + b"1" + b"}" * 2000),
        ("/session/SESSION/message", b'{"parts":[' + b"[]," * (BODY // 3) + b"[]]}"),
        ("/session", b'{"title":"' + b"\xff" * BODY + b'"}'),
        ("/session", b"x" * (2 * BODY)),
    ]
    before = server.memory
    forget_peak(server.process)
    async with httpx2.AsyncClient(base_url=server.url, timeout=120) as client:
        session = (await client.post("/session", json={})).json()["id"]
        sent = [
            client.post(path.replace("SESSION", session), content=body, headers={"content-type": "application/json"})
            for path, body in (bodies * BODIES)[:BODIES]
        ]
        answers = [response.status_code for response in await asyncio.gather(*sent)]
    peak, after = ((memory - before) / MIB for memory in (peak_memory(server.process), server.memory))
    figure(f"{BODIES} bodies of 20 MB at once: {sorted(set(answers))}, +{peak:.0f} MiB at most, +{after:.0f} MiB after")
    assert max(answers) < 500 and 413 in answers and 400 in answers and server.tracebacks() == []
    assert peak < 500 and after < 200


async def test_five_hundred_connections(server: RealServer, figure: Any) -> None:
    before, opened = server.memory, server.descriptors
    health = b"GET /global/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(CONNECTIONS)]
    for _, writer in held:
        writer.write(health)
    heads = await asyncio.gather(*(reader.readuntil(b"\r\n\r\n") for reader, _ in held))
    served = sum(head.startswith(b"HTTP/1.1 200") for head in heads)
    more = await asyncio.gather(*(answer(server.port, health) for _ in range(250)))
    for _, writer in held:
        writer.close()
    await until_closed(server, opened)
    refused = sum(statuses(said) == [503] for said in more)
    figure(
        f"{CONNECTIONS} connections: {served} served, of 250 more {refused} told that there are too many; "
        f"after them +{(server.memory - before) / MIB:.0f} MiB, +{server.descriptors - opened} open files"
    )
    assert served == CONNECTIONS and refused > 0
    assert httpx2.get(f"{server.url}/global/health").status_code == 200


async def test_clients_that_break_off_leave_nothing_behind(tmp_path: Path, figure: Any) -> None:
    """Within this process, where tasks and listeners can be counted."""
    async with running_app(tmp_path, patience=300) as app, listening(app) as port:
        session = await app.create_session(title="T")
        await broken_off(port, session["id"], 60)
        tasks, files = await open_resources(app)
        for _ in range(20 if LONG else 3):
            await broken_off(port, session["id"], 60)
        tasks_after, files_after = await open_resources(app)
    figure(f"tasks {tasks} → {tasks_after}, open files {files} → {files_after}, listeners 0")
    assert tasks_after <= tasks + 2 and files_after <= files + 5


async def broken_off(port: int, session_id: str, count: int) -> None:
    body = b'{"parts":[{"type":"text","text":"long 5"}]}'
    post = b"POST /session/%b/message HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    cut_off = [
        b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /global/event?parts=delta HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: 1\r\n\r\n",
        post % (session_id.encode(), 10 * len(body)) + body,
        post % (session_id.encode(), len(body)) + body,
    ]
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for number, (reader, writer) in enumerate(connections):
        writer.write(cut_off[number % 4])
        if number % 4 != 2:
            await reader.readuntil(b"\r\n\r\n")
    for _, writer in connections:
        writer.close()


async def open_resources(app: RunningApp) -> tuple[int, int]:
    """(tasks, open files) when nothing is under way any more."""
    await until(lambda: not (app.services.bus.listeners() or app.services.live.directories()))
    await asyncio.sleep(0.3)
    return len(asyncio.all_tasks()), psutil.Process().num_fds()
