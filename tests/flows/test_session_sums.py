"""A session's `cost` and `tokens` are the sums over the step-finish parts that it has, in every answer and event, whatever was
done to its messages."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from older_database import downgrade_to
from running_app import NO_TOKENS, RunningApp, running_app
from sqlalchemy import text
from turns import BIG, bash, configured, priced, say, summarize, task

from app.record.engine import make_engine
from app.record.migrate import upgrade

USED = {"usage": {"input": 700, "output": 50, "reasoning": 10, "cache_read": 400, "cache_write": 30}}
LESS = {"usage": {"input": 7, "output": 3, "reasoning": 0, "cache_read": 1, "cache_write": 0}}
PRICED = priced(cost={"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75})
Sums = dict[str, Any]


@pytest.fixture
async def session(app: RunningApp) -> str:
    return str((await app.create_session(title="Given"))["id"])


@pytest.fixture
async def app(tmp_path: Path, database: dict[str, str]) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path, workspace=configured(tmp_path, PRICED), **database) as running:
        yield running


def flat(of: Sums) -> Sums:
    tokens = of["tokens"]
    counts = {name: tokens[name] for name in ("input", "output", "reasoning")}
    return {"cost": round(of["cost"], 9), **counts, **tokens["cache"]}


def summed(messages: list[dict[str, Any]]) -> Sums:
    """As the parts say it."""
    steps = [flat(part) for message in messages for part in message["parts"] if part["type"] == "step-finish"]
    total = {name: sum(step[name] for step in steps) for name in ("cost", "input", "output", "reasoning", "read", "write")}
    return {**total, "cost": round(total["cost"], 9)}


async def checked(app: RunningApp, session: str) -> Sums:
    """What every answer says of the session, which must be what its parts say."""
    expected = summed(await app.messages(session))
    shown = await app.get(f"/session/{session}")
    listed = [each for each in await app.get("/session") if each["id"] == session]
    exported = (await app.get(f"/session/{session}/export"))["info"]
    assert [flat(each) for each in (shown, *listed, exported)] == [expected] * 3
    return expected


async def turn(app: RunningApp, session: str, *steps: list[Any]) -> dict[str, Any]:
    app.provider.add(*steps)
    return await app.prompt(session, "Go")


async def test_a_session_sums_up_its_steps_and_clients_hear_of_each(app: RunningApp, session: str) -> None:
    nothing = await app.get(f"/session/{session}")
    assert (nothing["cost"], nothing["tokens"]) == (0, NO_TOKENS)
    async with app.events() as events:
        await turn(app, session, [bash("echo a"), USED], [say(), LESS])
        await events.until("session.idle")
    told = [flat(event.properties["info"])["input"] for event in events.of_type("session.updated")]
    assert told == sorted(told) and {0, 700, 707} == set(told)
    once = await checked(app, session)
    assert (once["input"], once["read"], once["write"]) == (707, 401, 30) and once["cost"] > 0
    await turn(app, session, [say(), USED])
    assert (await checked(app, session))["input"] == 1407
    app.provider.add([say("A summary."), USED])
    await summarize(app, session)
    assert (await checked(app, session))["input"] == 2107
    await turn(app, session, [task("Look"), USED], [say("Seen."), LESS], [say(), USED])
    [child] = await app.get(f"/session/{session}/children")
    assert (await checked(app, session))["input"] == 3507
    assert (await checked(app, child["id"]))["input"] == 7, "a subagent's steps count for its own session"


async def test_a_fork_has_what_it_copies(app: RunningApp, session: str) -> None:
    await turn(app, session, [say(), USED])
    await turn(app, session, [say(), LESS])
    second = (await app.messages(session))[2]["info"]["id"]
    async with app.events() as events:
        whole = await app.post(f"/session/{session}/fork", {})
        created = await events.until("session.created")
    assert flat(created.properties["info"]) == flat(whole) == await checked(app, whole["id"])
    assert whole["tokens"]["input"] == 707
    some = await app.post(f"/session/{session}/fork", {"messageID": second})
    assert (await checked(app, some["id"]))["input"] == 700
    await turn(app, some["id"], [say(), LESS])
    assert (await checked(app, some["id"]))["input"] == 707
    assert (await checked(app, session))["input"] == 707


async def test_what_is_deleted_or_changed_counts_as_it_is_then(app: RunningApp, session: str) -> None:
    for used in (USED, LESS, USED):
        await turn(app, session, [say(), used])
    *_, first, _, second, _, third = await app.messages(session)
    await app.call("DELETE", f"/session/{session}/message/{third['info']['id']}")
    assert (await checked(app, session))["input"] == 707
    finish = second["parts"][-1]
    at = f"/session/{session}/message/{second['info']['id']}/part/{finish['id']}"
    await app.call("PATCH", at, {**finish, "cost": 5, "tokens": {**finish["tokens"], "input": 1000}})
    assert await checked(app, session) == {**await checked(app, session), "cost": round(5 + first["parts"][-1]["cost"], 9)}
    assert (await app.get(f"/session/{session}"))["tokens"]["input"] == 1700
    await app.call("PATCH", at, {**finish, "cost": 1e300, "tokens": {**finish["tokens"], "input": 10**18}})
    assert (await app.get(f"/session/{session}"))["tokens"]["input"] == 10**12 + 700, "what is counted beyond measure fits"
    async with app.events() as events:
        await app.call("DELETE", at)
        told = await events.until("session.updated")
    assert flat(told.properties["info"]) == await checked(app, session)
    assert (await app.get(f"/session/{session}"))["tokens"]["input"] == 700
    await app.call("DELETE", f"/session/{session}/message/{first['info']['id']}")
    assert (await checked(app, session)) == dict.fromkeys(("cost", "input", "output", "reasoning", "read", "write"), 0)


async def test_what_is_reverted_counts_until_it_is_gone(app: RunningApp, session: str) -> None:
    await turn(app, session, [say(), USED])
    await turn(app, session, [bash("echo a"), LESS], [say(), LESS])
    second = (await app.messages(session))[2]["info"]["id"]
    await app.post(f"/session/{session}/revert", {"messageID": second})
    assert (await checked(app, session))["input"] == 714
    await turn(app, session, [say(), USED])
    assert (await checked(app, session))["input"] == 1400


async def test_an_import_sums_up_what_it_brings(app: RunningApp, session: str) -> None:
    await turn(app, session, [say(), USED])
    document = await app.get(f"/session/{session}/export")
    for step in document["messages"][1]["parts"]:
        if step["type"] == "step-finish":
            step["tokens"]["total"] = 1180
    del document["info"]["cost"], document["info"]["tokens"]
    imported = (await app.post("/session/import", document, params={"ids": "new"}))["sessions"][0]
    assert (await checked(app, imported))["input"] == 700
    [step] = [part for part in (await app.messages(imported))[1]["parts"] if part["type"] == "step-finish"]
    assert step["tokens"]["total"] == 1180


async def test_a_session_names_agent_and_model_of_its_newest_prompt(app: RunningApp, session: str) -> None:
    await turn(app, session, [say()])
    shown = await app.get(f"/session/{session}")
    assert (shown["agent"], shown["model"]) == ("build", {"id": "big", "providerID": "acme", "variant": "default"})
    await app.prompt(session, "Go", agent="plan", model={**BIG, "modelID": "other"}, variant="high")
    shown = await app.get(f"/session/{session}")
    assert (shown["agent"], shown["model"]) == ("plan", {"id": "other", "providerID": "acme", "variant": "high"})


async def test_a_database_from_before_the_sums_gets_the_same(tmp_path: Path, database: dict[str, str]) -> None:
    workspace = configured(tmp_path, PRICED)
    (workspace / "below").mkdir()
    async with running_app(tmp_path, workspace=workspace, **database) as app:
        session = (await app.create_session(title="Given"))["id"]
        await turn(app, session, [bash("echo a"), USED], [say(), LESS])
        await app.post(f"/session/{session}/fork", {})
        await app.call("PATCH", f"/session/{session}", {"time": {"archived": 5.0}})
        await app.post("/session", {"title": "Ünder"}, params={"directory": str(workspace / "below")})
        before = await app.get("/session")
    engine = make_engine(database.get("database_url") or f"sqlite:///{app.data_dir / 'opensession.db'}")
    downgrade_to(engine, "0016")
    upgrade(engine)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT path, archived FROM session ORDER BY seq")).all()
    engine.dispose()
    assert [(path, bool(archived)) for path, archived in rows] == [("", True), ("", False), ("below", False)]
    async with running_app(tmp_path, workspace=workspace, **database) as app:
        assert await app.get("/session") == before
        await checked(app, session)
