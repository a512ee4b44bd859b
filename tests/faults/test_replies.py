"""Answers to permission requests and questions: at one moment, beside an abort, on a full disk, and to a server that was killed
and started again. One is accepted, and what was acknowledged is what is stored."""

import asyncio
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from figures import Figure
from full_disk import fill_to_the_last_write, small_disk
from killable import Client, Servers
from long_form import LONG, SLACK
from turns import assert_finished, bash, call, say, texts, tools

TRIES = 30 if LONG else 5
AT_ONCE = 10
ABORTED_WITHIN = 2.0 * SLACK
ASKING = {"permission": {"bash": "ask"}, "experimental": {"continue_loop_on_deny": True}}
OPTIONS = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
QUESTION = call("question", questions=[{"question": "Which?", "header": "Which", "options": OPTIONS}])


def target(number: int) -> str:
    """A command that `always` approves alone."""
    return f"make t{number:03}"


def asking(base: Path, *steps: dict[str, Any]) -> Servers:
    servers = Servers(base)
    servers.configure(ASKING)
    servers.play([turn for step in steps for turn in ([step], [say("So be it.")])])
    return servers


async def asked(client: Client, kind: str = "permission") -> tuple[str, str]:
    """A new session whose turn waits, and the request that it waits for."""
    session = await client.session()
    await client.prompt(session, path="prompt_async")
    found = await client.condition(f"/{kind}", lambda found: any(one["sessionID"] == session for one in found))
    return session, next(one["id"] for one in found if one["sessionID"] == session)


async def status(client: Client, path: str, body: Any = None) -> int:
    return (await client.http.post(path, json=body or {})).status_code


async def reply(client: Client, request: str, answer: str) -> int:
    """To a permission request or a question."""
    if request.startswith("que"):
        return await status(client, f"/question/{request}/reply", {"answers": [[answer]]})
    return await status(client, f"/permission/{request}/reply", {"reply": answer})


async def last_call(client: Client, session: str) -> dict[str, Any]:
    await client.idle()
    messages = await client.get(f"/session/{session}/message")
    assert_finished(messages)
    return tools(messages)[-1]["state"]


def approved(servers: Servers, command: str) -> bool:
    with closing(sqlite3.connect(servers.data / "opensession.db")) as connection:
        found = connection.execute("SELECT count(*) FROM permission_approval WHERE pattern = ?", [f"{command} *"]).fetchone()
    return bool(found[0])


async def test_always_on_one_request_beside_reject_on_another(tmp_path: Path, figure: Figure) -> None:
    """Each answer decides the other request, too."""
    servers, counted = asking(tmp_path), Counter[str]()
    both = [[bash(f"{target(n)} a", "c1"), bash(f"{target(n)} b", "c2")] for n in range(TRIES)]
    servers.play([turn for step in both for turn in (step, [say()])])
    async with servers.start() as client:
        for number in range(TRIES):
            session, _ = await asked(client)
            one, other = await client.condition("/permission", lambda found: len(found) == 2)
            statuses = await asyncio.gather(reply(client, one["id"], "always"), reply(client, other["id"], "reject"))
            assert sorted(statuses) == [200, 404]
            await client.idle()
            states = {tool["state"]["status"] for tool in tools(await client.get(f"/session/{session}/message"))}
            assert states == ({"completed"} if statuses[0] == 200 else {"error"})
            assert approved(servers, target(number)) == (statuses[0] == 200)
            counted["always" if statuses[0] == 200 else "reject"] += 1
    figure(f"{TRIES} tries on two requests of a session: one accepted each ({dict(counted)}), both calls as it said")


@pytest.mark.parametrize("kind", ["permission", "question"])
async def test_ten_answers_at_one_moment(tmp_path: Path, figure: Figure, kind: str) -> None:
    steps = [bash(target(n)) if kind == "permission" else QUESTION for n in range(TRIES)]
    words = ["once", "always", "reject"] if kind == "permission" else ["A", "B"]
    servers = asking(tmp_path, *steps)
    async with servers.start() as client:
        for number in range(TRIES):
            session, request = await asked(client, kind)
            said = [words[n % len(words)] for n in range(AT_ONCE)]
            statuses = await asyncio.gather(*(reply(client, request, word) for word in said))
            assert sorted(statuses) == [200] + [404] * (AT_ONCE - 1)
            state, accepted = await last_call(client, session), said[statuses.index(200)]
            assert state["status"] == ("error" if accepted == "reject" else "completed")
            assert kind == "permission" or state["metadata"]["answers"] == [[accepted]]
            assert approved(servers, target(number)) == (accepted == "always")
    figure(f"{TRIES} times {AT_ONCE} answers to a {kind}: one accepted, the others 404")


async def test_always_beside_an_abort(tmp_path: Path, figure: Figure) -> None:
    servers, counted = asking(tmp_path), Counter[str]()
    servers.play([[bash(target(n))] for n in range(TRIES)])
    async with servers.start() as client:
        for number in range(TRIES):
            session, request = await asked(client)
            calls = [reply(client, request, "always"), status(client, f"/session/{session}/abort")]
            statuses = await asyncio.gather(*(calls if number % 2 else calls[::-1]))
            code, state = statuses[0 if number % 2 else 1], await last_call(client, session)
            assert code in (200, 404) and approved(servers, target(number)) == (code == 200)
            assert await client.get("/permission") == [] and "rejected" not in str(state)
            counted[f"{code}, {state['status']}"] += 1
    figure(f"{TRIES} tries: {dict(counted)}")


async def test_answers_while_the_disk_is_full(tmp_path: Path, figure: Figure) -> None:
    servers = asking(tmp_path)
    servers.play([[bash(target(0))], [QUESTION], [say()], [say()]])
    with small_disk(servers.data):
        async with servers.start() as client:
            permitting, permission = await asked(client)
            choosing, question = await asked(client, "question")
            filler = fill_to_the_last_write(servers.data)
            for _ in range(2):
                refused = [
                    await reply(client, permission, "always"),
                    await reply(client, permission, "reject"),
                    await reply(client, question, "A"),
                    await status(client, f"/question/{question}/reject"),
                ]
                assert refused == [503] * 4
                assert [one["id"] for one in await client.get("/permission")] == [permission]
                assert [one["id"] for one in await client.get("/question")] == [question]
            assert set(await client.get("/session/status")) == {permitting, choosing}
            assert not approved(servers, target(0))
            filler.unlink()
            assert await reply(client, permission, "always") == 200
            assert await reply(client, question, "B") == 200
            assert (await last_call(client, permitting))["status"] == "completed" and approved(servers, target(0))
            assert (await last_call(client, choosing))["metadata"]["answers"] == [["B"]]
            assert await client.get("/permission") == [] and await client.get("/question") == []
    figure("8 answers refused with 503, both requests listed and answered once there was space")


async def test_an_abort_while_the_disk_is_full(tmp_path: Path, figure: Figure) -> None:
    servers = asking(tmp_path, bash(target(0)))
    with small_disk(servers.data):
        async with servers.start() as client:
            session, request = await asked(client)
            filler = fill_to_the_last_write(servers.data)
            began = time.monotonic()
            await client.post(f"/session/{session}/abort")
            took = time.monotonic() - began
            assert took < ABORTED_WITHIN
            assert await client.get("/permission") == []
            assert await reply(client, request, "always") == 404
            filler.unlink()
            await client.condition(f"/session/{session}/message", lambda found: "error" in found[-1]["info"])
            await client.idle()
            assert texts(await client.prompt(session)) == ["So be it."]
            assert not approved(servers, target(0))
    figure(f"aborted in {took:.2f} s, the request withdrawn at once")


async def test_an_answer_to_what_a_killed_server_asked(tmp_path: Path, figure: Figure) -> None:
    """At the first moment that the next one answers, before the call has asked again."""
    servers = asking(tmp_path, bash(target(0)))
    async with servers.start() as client:
        session, request = await asked(client)
    servers.play([[say("Went on.")]])
    async with servers.start() as client:
        statuses = await asyncio.gather(*(reply(client, request, "once") for _ in range(AT_ONCE)))
        assert sorted(statuses) == [200] + [404] * (AT_ONCE - 1)
        assert (await last_call(client, session))["status"] == "completed"
        assert texts((await client.get(f"/session/{session}/message"))[-1]) == ["Went on."]
        assert await client.get("/permission") == []
    figure(f"{AT_ONCE} answers at once to the next server: one accepted and acted on")
