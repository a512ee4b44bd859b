"""Every route against every kind of Host, Origin and content type: no foreign host is served, no page of an unlisted origin may
write or read, no request that a page may send without asking changes anything. Every write leaves one line in the audit log."""

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
from every_route import WRITING, every_route, unknown
from long_form import LONG
from running_app import RunningApp, running_app

LISTED = "https://app.example.com"
HOSTS = {
    "127.0.0.1:4096": True,
    "localhost": True,
    "[::1]:80": True,
    "evil.example": False,
    "127.0.0.1.evil.example": False,
    "localhost.evil.example:4096": False,
    "192.168.1.7": False,
    "0.0.0.0": False,
    "user@localhost@evil.example": False,
}
ORIGINS = {
    None: True,
    LISTED: True,
    "https://evil.example": False,
    LISTED + ".evil.example": False,
    "http://app.example.com": False,
    "null": False,
    "http://localhost:9999": False,
}
CONTENT_TYPES = {
    "application/json": True,
    "application/json; charset=utf-8": True,
    None: False,
    "text/plain": False,
    "text/plain; application/json": False,
    "application/x-www-form-urlencoded": False,
    "multipart/form-data; boundary=x": False,
}
Case = tuple[str, str, str, str | None, str | None]
"""Method, path, Host, Origin, content type."""


def cases(routes: list[tuple[str, str]]) -> list[Case]:
    """The short form takes some of each route's."""
    found = []
    chosen = random.Random(1)
    for method, path in routes:
        everything = [(method, unknown(path), *rest) for rest in product(HOSTS, ORIGINS, CONTENT_TYPES)]
        found += everything if LONG else chosen.sample(everything, 40)
    return found


def refusal(case: Case) -> set[int] | None:
    """The status that such a request must get; None: it may be served."""
    method, _, host, origin, content_type = case
    if not HOSTS[host]:
        return {403}
    if method in WRITING and not ORIGINS[origin]:
        return {403}
    return {415} if method in WRITING and not CONTENT_TYPES[content_type] else None


async def test_host_origin_and_content_type_on_every_route(tmp_path: Path, figure: Any) -> None:
    served = shown = tried = 0
    async with running_app(tmp_path, cors_origins=LISTED) as app:
        await app.get("/project/current")  # a project is noted when it is first seen, by whatever reads
        head = await app.services.replay.head()
        for case in cases(every_route(app.fastapi)):
            expected = refusal(case)
            if case[0] in WRITING and expected is None:
                continue
            tried += 1
            response = await send(app, case)
            served += expected is not None and response.status_code not in expected
            foreign = not HOSTS[case[2]] or not ORIGINS[case[3]]
            shown += foreign and case[3] != LISTED and "access-control-allow-origin" in response.headers
        assert await app.services.replay.head() == head, "something was written"
        assert not (app.data_dir / "audit.log").exists()
    figure(f"{tried} requests: {served} served that must not be, {shown} told a foreign origin that it may read, 0 writes")
    assert (served, shown) == (0, 0)


async def send(app: RunningApp, case: Case) -> httpx2.Response:
    """A stream is left as soon as it answers."""
    method, path, host, origin, content_type = case
    headers = {"host": host, "origin": origin, "content-type": content_type}
    sent = {name: value for name, value in headers.items() if value is not None}
    body = b"{" if method in WRITING else None
    async with app.client.stream(method, path, headers=sent, content=body) as response:
        return response


async def test_every_write_leaves_one_line(tmp_path: Path, figure: Any) -> None:
    """Whatever becomes of it: here every route is asked for what is not there."""
    missing, doubled, routes = [], [], []
    async with running_app(tmp_path) as app:
        log = app.data_dir / "audit.log"
        lines: list[str] = []
        for method, path in every_route(app.fastapi):
            async with app.client.stream(method, unknown(path), json={} if method in WRITING else None) as response:
                pass
            new = log.read_text().splitlines()[len(lines) :] if log.exists() else []
            lines += new
            if method in WRITING:
                routes.append((method, path))
                entry = json.loads(new[0]) if new else {}
                missing += [(method, path)] if (entry.get("route"), entry.get("status")) != (path, response.status_code) else []
            doubled += [(method, path)] if len(new) > (method in WRITING) else []
    figure(f"{len(routes)} routes that write: {len(missing)} without their line, {len(doubled)} with one too many")
    assert (missing, doubled) == ([], [])
