"""What a server counts, after turns that end in every way, as Prometheus' own parser reads it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp
from scrape import parsed, scrape
from turns import bash, call, pending, priced, reply, say, talking, titled, until
from user_logins import add_user, bearer

from app.events.bus import listener as listening
from app.events.telemetry import metrics as counting
from app.record.engine import StorageError
from app.users.tokens import TokenStore

MODEL = {"provider": "acme", "model": "big"}
PRICE = {"input": 3.0, "output": 15.0}
PLAIN: Mapping[str, Any] = {}


@asynccontextmanager
async def counted(
    base: Path, *turns: Any, config: Mapping[str, Any] = PLAIN, title: str | None = "named", **settings: Any
) -> AsyncIterator[tuple[RunningApp, str]]:
    wanted = {**priced(cost=PRICE), **config}
    async with talking(base, config=wanted, turns=turns, title=title, metrics=True, **settings) as (app, session):
        yield app, session


async def test_an_answered_turn(tmp_path: Path, database: dict[str, Any]) -> None:
    usage = {"usage": {"input": 1000, "output": 200, "reasoning": 50, "cache_read": 30, "cache_write": 20}}
    turns = [bash("echo one"), usage], [say("Done."), usage]
    async with counted(tmp_path, *turns, title=None, **database) as (app, session):
        await app.prompt(session, "Go")
        await titled(app, session)
        found = await scrape(app)
        stored = await app.messages(session)
    ends = {"answered": 1, "failed": 0, "rejected": 0, "aborted": 0, "handed_over": 0}
    assert {end: found("turns_total", outcome=end) for end in ends} == ends
    assert found("turn_seconds_count") == 1 and 0 < found("turn_seconds_sum") < 60
    assert found("tool_calls_total", tool="bash", outcome="completed") == 1
    assert found("model_calls_total", **MODEL, outcome="answered") == 2
    assert found("model_calls_total", provider="acme", model="title", outcome="answered") == 1
    assert found("first_token_seconds_count", **MODEL) == 2
    kinds = {"input": 2000, "output": 400, "reasoning": 100, "cache_read": 60, "cache_write": 40}
    assert {kind: found("tokens_total", **MODEL, kind=kind) for kind in kinds} == kinds
    assert found("cost_dollars_total", **MODEL) == pytest.approx(sum(message["info"].get("cost", 0) for message in stored))
    assert found("cost_dollars_total", **MODEL) > 0
    assert found("turns_running") == found("turns_waiting") == 0


async def test_tools_and_providers_that_fail_and_calls_that_are_denied(tmp_path: Path) -> None:
    calls = [call("read", filePath="missing.txt"), bash("rm x"), call("nonsense")]
    turns = [{"status": 400, "message": "no"}], [{"cut": True}], [say()], calls, [say()]
    config = {"permission": {"bash": {"*": "allow", "rm *": "deny"}}}
    async with counted(tmp_path, *turns, config=config) as (app, session):
        await app.prompt(session, "Go")
        failed = await scrape(app)
        await app.prompt(session, "Go on")
        cut = await scrape(app)
        await app.prompt(session, "Try these")
        found = await scrape(app)
    assert failed("turns_total", outcome="failed") == 1 and failed("model_calls_total", **MODEL, outcome="failed") == 1
    assert failed("tokens_total", **MODEL, kind="input") == 0
    assert cut("model_calls_total", **MODEL, outcome="cut_short") == 1
    assert cut("turns_total", outcome="answered") == 1 and cut("turns_total", outcome="failed") == 1
    assert found("tool_calls_total", tool="read", outcome="failed") == 1
    assert found("tool_calls_total", tool="bash", outcome="denied") == 1
    assert found("tool_calls_total", tool="invalid", outcome="completed") == 1
    assert found("turns_total", outcome="answered") == 2


async def test_a_turn_that_runs_waits_and_is_aborted(tmp_path: Path, database: dict[str, Any]) -> None:
    turns = [say("So", chunks=1), {"wait": asyncio.Event()}], [say()]
    async with counted(tmp_path, *turns, max_running_sessions=1, **database) as (app, first), app.events() as events:
        await app.prompt_async(first, "Go")
        await until(lambda: len(app.provider.requests) == 1)
        await app.prompt_async((await app.create_session(title="two"))["id"], "Go too")
        both = await scrape(app)
        await app.post(f"/session/{first}/abort")
        await events.until("session.idle", count=2)
        after = await scrape(app)
    assert (both("turns_running"), both("turns_waiting")) == (1, 1)
    assert (after("turns_running"), after("turns_waiting")) == (0, 0)
    assert after("turns_total", outcome="aborted") == after("turns_total", outcome="answered") == 1
    assert after("model_calls_total", **MODEL, outcome="aborted") == 1
    assert after("sse_clients") == 1 and after("sse_bytes_total") > both("sse_bytes_total") > 0


async def test_a_turn_that_another_server_is_to_go_on_with(tmp_path: Path, database: dict[str, Any]) -> None:
    async with counted(tmp_path, [say("So", chunks=1), {"sleep": 60}], **database) as (app, session):
        await app.prompt_async(session, "Go")
        await until(lambda: len(app.provider.requests) == 1)
        await app.services.live.hand_over()
        found = await scrape(app)
    assert found("turns_total", outcome="handed_over") == 1 and found("turns_total", outcome="aborted") == 0


async def test_a_permission_that_waits_and_is_rejected(tmp_path: Path) -> None:
    async with counted(tmp_path, [bash("echo one")], config={"permission": {"bash": "ask"}}) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        request = await pending(app)
        asking = await scrape(app)
        await reply(app, request, "reject")
        await prompt
        found = await scrape(app)
    assert asking("waits", kind="permission") == 1 and asking("waits", kind="question") == 0
    assert found("waits", kind="permission") == 0 and found("wait_seconds_count", kind="permission") == 1
    assert found("tool_calls_total", tool="bash", outcome="denied") == found("turns_total", outcome="rejected") == 1


async def test_commits_and_the_journal(tmp_path: Path, database: dict[str, Any]) -> None:
    async with counted(tmp_path, **database) as (app, _):
        before = await scrape(app)
        await app.create_session()
        after = await scrape(app)
        head = await app.services.replay.head()

        async def unavailable() -> int:
            raise StorageError("the database is away")

        assert app.services.metrics is not None
        app.services.metrics.read("broken", "Cannot be read", unavailable)
        without = await scrape(app)
    assert after("journal_head") == head > before("journal_head")
    assert after("commit_seconds_count") > before("commit_seconds_count")
    assert after("commit_changes_sum") >= after("commit_changes_count") == after("commit_seconds_count")
    assert without("broken") != without("broken"), "what cannot be read is NaN, and the others are there"
    assert without("journal_head") == head


async def test_requests_by_route_and_status(tmp_path: Path) -> None:
    async with counted(tmp_path) as (app, session):
        for path in (f"/session/{session}", "/session/ses_unknown", "/none/1", "/none/2"):
            await app.client.get(path)
        await app.client.request("BREW", "/session")
        await app.client.get("/session", headers={"host": "elsewhere.example"})
        found = await scrape(app)
        again = await scrape(app)
    requests = {(each["method"], each["route"], each["status"]) for each in found.labels_of("http_requests_total")}
    assert requests == {
        ("POST", "/session", "200"),
        ("GET", "/session/{sessionID}", "200"),
        ("GET", "/session/{sessionID}", "404"),
        ("GET", "none", "404"),
        ("GET", "none", "403"),
        ("other", "/session", "405"),
    }
    assert found("http_requests_total", method="GET", route="none", status="404") == 2
    assert again("http_requests_total", method="GET", route="/metrics", status="200") == 1


async def test_a_client_that_reads_too_slowly_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MERGE_ABOVE", 10_000)
    monkeypatch.setattr(listening, "DISCONNECT_ABOVE", 20_000)
    async with counted(tmp_path) as (app, _):
        async with app.client.stream("GET", "/event") as response:
            assert response.status_code == 200
            [listener] = [each for group in app.services.bus._listeners.values() for each in group]
            listener.cut_off()
        await until(lambda: app.services.bus.listeners() == 0)
        found = await scrape(app)
    assert found("sse_cut_off_total") == 1 and found("sse_clients") == 0


async def test_what_people_name_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX_MODELS", 2)
    monkeypatch.setattr(counting, "MAX_TOOLS", 1)
    long = "n" * 300
    models = {name: {"name": name, "limit": {"context": 9000, "output": 900}} for name in ("one", "two", "three", long)}
    acme = {"model": "acme/one", "provider": {"acme": {"npm": "scripted", "models": models}}}
    calls = [call("read", filePath="a.txt"), call("glob", pattern="*")]
    async with counted(tmp_path, calls, config=acme) as (app, session):
        for model in models:
            await app.prompt(session, "Go", model={"providerID": "acme", "modelID": model})
        found = await scrape(app)
    counts = {
        name: found("model_calls_total", provider=provider, model=name, outcome="answered")
        for provider, name in (("acme", "one"), ("acme", "two"), ("acme", "three"), ("other", "other"))
    }
    assert counts == {"one": 2, "two": 1, "three": 0, "other": 2}
    assert {each["tool"] for each in found.labels_of("tool_calls_total")} == {"read", "other"}
    assert found("tool_calls_total", tool="other", outcome="completed") == 1


async def test_the_event_loop_and_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "LAG_SECONDS", 0.01)
    async with counted(tmp_path) as (app, _):
        await until(lambda: parsed_lag(app) > 2)
        found = parsed((await app.client.get("/metrics")).text)
    assert found.values[("process_resident_memory_bytes", frozenset())] > 10_000_000
    assert found("info", version=app.fastapi.version) == 1


def parsed_lag(app: RunningApp) -> float:
    metrics = app.services.metrics
    assert metrics is not None
    return next(sample.value for sample in metrics._lag.collect()[0].samples if sample.name.endswith("_count"))


async def test_off_by_default(app: RunningApp) -> None:
    refused = await app.client.get("/metrics")
    assert refused.status_code == 404 and "OPENSESSION_METRICS=true" in refused.json()["data"]["message"]


async def test_only_administrators_read_them(tmp_path: Path) -> None:
    """A scraper needs to write nothing: a read-only token of an admin, or of the server, will do."""
    async with counted(tmp_path) as (app, _):
        store = TokenStore(app.data_dir)
        logins = {role: await add_user(app, f"{role}s-name", role) for role in ("member", "viewer", "admin")}
        logins["reader of an admin"] = store.create("reader", user="admins-name", read_only=True)
        logins["reader of the server"] = store.create("scraper", read_only=True)
        found = {who: (await app.client.get("/metrics", headers=bearer(token))).status_code for who, token in logins.items()}
        found["nobody"] = (await app.client.get("/metrics")).status_code
    readers = {"admin": 200, "reader of an admin": 200, "reader of the server": 200}
    assert found == {"member": 403, "viewer": 403, "nobody": 401, **readers}
