"""Every route wants a login, but for those that are open; guessing is slow; what is refused is refused in the same time."""

import base64
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
from every_route import WRITING, every_route, unknown
from long_form import LONG
from running_app import RunningApp, running_app

from app.users.login import FAILURES, Login, LoginDenied, RateLimits, Throttle
from app.users.tokens import TokenStore

PASSWORD = "a password that nobody guesses"
OPEN = ("/global/health", "/s/", "/page/")
ROUNDS = 4000 if LONG else 400


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"opencode:{password}".encode()).decode()


async def refused_logins(app: RunningApp) -> dict[str, dict[str, str]]:
    """Headers, and a query, that let nobody in."""
    tokens = TokenStore(app.data_dir)
    revoked, expired = tokens.create("revoked"), tokens.create("expired", lifetime_ms=1)
    tokens.revoke("revoked")
    used = (await app.services.login.event_tokens.issue())[0]
    assert await app.services.login.event_tokens.redeem(used)
    return {
        "": {},
        f"?token={used}": {},
        f"?token={PASSWORD}": {},
        "?wrong": {"authorization": basic("wrong")},
        "?nearly": {"authorization": basic(PASSWORD[:-1])},
        "?bearer": {"authorization": f"Bearer {PASSWORD}"},
        "?revoked": {"authorization": f"Bearer {revoked}"},
        "?expired": {"authorization": f"Bearer {expired}"},
    }


async def test_every_route_wants_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Any) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", PASSWORD)
    tried, served, throttled = 0, [], 0
    async with running_app(tmp_path) as app:
        logins = await refused_logins(app)
        for method, path in every_route(app.fastapi):
            for query, headers in logins.items():
                body = {} if method in WRITING else None
                async with app.client.stream(method, unknown(path) + query, headers=headers, json=body) as response:
                    tried += 1
                    throttled += response.status_code == 429
                    served += [path] if response.status_code not in (401, 429) else []
        assert not (app.data_dir / "audit.log").exists()
    open_routes = {path for path in served if path == "/" or path.startswith(OPEN)}
    figure(
        f"{tried} requests without a valid login: {len(set(served) - open_routes)} routes served, "
        f"{throttled} answers 429; open are {', '.join(sorted(open_routes))}"
    )
    assert set(served) == open_routes and throttled


class NoThrottle(Throttle):
    async def wait(self, address: str) -> int:
        return 0


async def test_guessing_is_slow_and_tells_nothing_by_its_time(tmp_path: Path, figure: Any) -> None:
    """First without a throttle, then with one."""
    patient = Login("opencode", PASSWORD, TokenStore(tmp_path), NoThrottle(RateLimits()))
    taken: dict[str, list[float]] = {"first letter wrong": [], "last letter wrong": [], "much longer": []}
    guesses = {"first letter wrong": "X" + PASSWORD[1:], "last letter wrong": PASSWORD[:-1] + "X", "much longer": PASSWORD * 2}
    for _ in range(ROUNDS):
        for kind, guess in guesses.items():
            began = time.perf_counter_ns()
            assert isinstance(await patient.check(visit(), basic(guess)), LoginDenied)
            taken[kind].append(time.perf_counter_ns() - began)
    medians = {kind: statistics.median(times) / 1000 for kind, times in taken.items()}
    strict = Login("opencode", PASSWORD, TokenStore(tmp_path))
    compared = sum([await strict.check(visit(), basic("guess")) == LoginDenied() for _ in range(ROUNDS)])
    figure(
        ", ".join(f"{kind}: {median:.1f} µs" for kind, median in medians.items())
        + f"; of {ROUNDS} guesses in a minute {compared + 1} were compared"
    )
    assert compared == FAILURES - 1


def visit() -> dict[str, Any]:
    return {"method": "GET", "path": "/session", "query_string": b"", "client": ("1.2.3.4", 1)}
