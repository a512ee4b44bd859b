"""What model calls took: a ledger beside the stored parts, which keeps what is deleted."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from older_database import downgrade_to
from running_app import RunningApp, running_app
from turns import bash, configured, priced, say, summarize, task, titled, tools, until_shown
from typer.testing import CliRunner
from user_logins import user

from app import cli
from app.record.engine import make_engine
from app.record.migrate import upgrade
from app.schema.session import UsageGroup

GROUPS = get_args(UsageGroup)
USED = {"usage": {"input": 700, "output": 50, "reasoning": 10, "cache_read": 400, "cache_write": 30}}
PRICED = priced(cost={"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75})


@pytest.fixture
async def app(tmp_path: Path, database: dict[str, str]) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path, workspace=configured(tmp_path, PRICED), **database) as running:
        yield running


def counted(total: dict[str, Any]) -> Counter[str]:
    tokens = total["tokens"]
    flat = {**{name: tokens[name] for name in ("input", "output", "reasoning")}, **tokens["cache"]}
    cost = round(total["cost"] * 1e9)
    return Counter({**flat, "cost": cost, **{name: total[name] for name in ("turns", "toolCalls") if name in total}})


async def totals(app: RunningApp, **wanted: Any) -> dict[str, Counter[str]]:
    """By group, each of which must add up to the same."""
    found = {group: await app.get("/usage", params={"group": group, **wanted}) for group in GROUPS}
    for group, report in found.items():
        summed = sum((counted(each) for each in report["groups"]), Counter[str]())
        assert +summed == +counted(report["total"]), group
    first = counted(found["model"]["total"])
    assert all(counted(report["total"]) == first for report in found.values())
    return {"total": first, **{each["key"]: counted(each) for each in found["agent"]["groups"]}}


async def stored(app: RunningApp, session: str) -> Counter[str]:
    """As the parts of a session and its children have it."""
    messages = await app.messages(session)
    parts = [part for message in messages for part in message["parts"]]
    used = sum((counted(part) for part in parts if part["type"] == "step-finish"), Counter[str]())
    used["toolCalls"] += len(tools(messages))
    for child in await app.get(f"/session/{session}/children"):
        used += await stored(app, child["id"])
    return used


async def without_titles(app: RunningApp) -> Counter[str]:
    used = await totals(app)
    found = used["total"].copy()
    found.subtract(used.get("title", Counter()))
    del found["turns"]
    return +found


async def test_the_ledger_says_what_the_stored_parts_say(app: RunningApp) -> None:
    """Of turns with tools, in child sessions, compacted, aborted and failed; forks and deleted sessions change nothing. A title
    is counted though no message has it."""
    app.provider.add([task("Look"), USED], [bash("echo a"), USED], [say("Seen."), USED], [say("Done."), USED])
    session = (await app.create_session())["id"]
    await app.prompt(session, "Go")
    await titled(app, session)
    title = (await totals(app))["title"]
    assert title["output"] > 0 and title["turns"] == 0
    assert await without_titles(app) == +await stored(app, session)
    assert (await totals(app))["total"]["turns"] == 2, "one of them in the child session"

    app.provider.add([say("A summary."), USED])
    await summarize(app, session)
    app.provider.add([bash("echo ready; sleep 60"), USED])
    await app.prompt_async(session, "Wait")
    await until_shown(app, session, "'output': 'ready")
    await app.post(f"/session/{session}/abort")
    used = await stored(app, session)
    assert used["toolCalls"] == 3 and await without_titles(app) == +used

    fork = (await app.post(f"/session/{session}/fork", {}))["id"]
    assert await without_titles(app) == +used and +await stored(app, fork)
    app.provider.add([say("Forked."), USED])
    before = await stored(app, fork)
    await app.prompt(fork, "On")
    own = await stored(app, fork)
    own.subtract(before)
    used += own
    for gone in (session, fork):
        await app.call("DELETE", f"/session/{gone}")
    assert await without_titles(app) == +used
    assert (await totals(app))["total"]["turns"] == 4, "two prompts of the session, one of its child, one of the fork"


async def test_a_database_from_before_the_ledger_gets_the_same(tmp_path: Path, database: dict[str, str]) -> None:
    """Its forks are not counted twice, and a fork whose original is gone is counted for it."""
    workspace = configured(tmp_path, PRICED)
    async with running_app(tmp_path, workspace=workspace, **database) as app:
        forks = []
        for _ in range(2):
            app.provider.add([bash("echo a"), USED], [say("Done."), USED], [say("A summary."), USED])
            session = (await app.create_session(title="Given"))["id"]
            await app.prompt(session, "Go")
            await summarize(app, session)
            forks.append((await app.post(f"/session/{session}/fork", {}))["id"])
        forks.append((await app.post(f"/session/{forks[-1]}/fork", {}))["id"])
        app.provider.add([say("Forked."), USED])
        await app.prompt(forks[0], "On")
        before = await totals(app)
        await app.call("DELETE", f"/session/{session}")
    await asyncio.to_thread(_write_the_ledger_anew, database.get("database_url") or f"sqlite:///{app.data_dir}/opensession.db")
    async with running_app(tmp_path, workspace=workspace, **database) as app:
        assert await totals(app) == before


def _write_the_ledger_anew(url: str) -> None:
    engine = make_engine(url)
    downgrade_to(engine, "0011")
    upgrade(engine)
    engine.dispose()


async def test_what_is_asked_for_is_a_span_of_time_and_a_group(app: RunningApp) -> None:
    app.provider.add([say("Hello."), USED])
    session = await app.create_session(title="Given")
    answer = await app.prompt(session["id"], "Hi")
    began, ended = answer["info"]["time"]["created"], answer["info"]["time"]["completed"]
    assert (await totals(app, since=began, until=ended + 1))["total"]["input"] == 700
    assert (await totals(app, until=began))["total"]["input"] == 0
    assert (await totals(app, since=ended + 1))["total"]["input"] == 0
    keys = {group: [each["key"] for each in (await app.get(f"/usage?group={group}"))["groups"]] for group in GROUPS}
    day = datetime.fromtimestamp(ended / 1000, UTC).date().isoformat()
    of_session = {"session": [session["id"]], "directory": [session["directory"]], "agent": ["build"]}
    assert keys == {"model": ["acme/big"], "provider": ["acme"], "day": [day], **of_session}
    await app.get("/usage?group=colour", expect=400)
    await app.get("/usage?since=yesterday", expect=400)


async def test_members_see_what_they_used_and_those_who_see_everything_all(app: RunningApp) -> None:
    async with user(app, "root", "admin") as root, user(app, "anna") as anna, user(app, "bert") as bert:
        for someone, times in ((anna, 1), (bert, 2)):
            session = (await someone.create_session(title="Given"))["id"]
            for _ in range(times):
                app.provider.add([say("Hello."), USED])
                await someone.prompt(session, "Hi")
        await root.call("PATCH", f"/session/{session}", {"owner": "anna"})
        assert [(await totals(each))["total"]["input"] for each in (anna, bert, root)] == [700, 1400, 2100]


def test_stats_shows_it_in_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with running_app(tmp_path, workspace=configured(tmp_path, PRICED), turns=[[say(), USED]]) as app:
            await app.prompt((await app.create_session(title="Given"))["id"], "Hi")

    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    before = CliRunner().invoke(cli.app, ["stats"])
    assert before.exit_code == 0 and before.output.split()[-8:] == ["0", "0", "0", "0", "0", "$0.0000", "0", "0"], before.output
    asyncio.run(work())
    shown = CliRunner().invoke(cli.app, ["stats", "--days", "1"])
    assert shown.exit_code == 0, shown.output
    assert [line.split() for line in shown.output.splitlines()][1:] == [
        [name, "700", "50", "10", "400", "30", "$0.0032", "1", "0"] for name in ("acme/big", "total")
    ]
