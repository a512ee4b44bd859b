"""Everything from anywhere: what a client asks of one replica holds for a session that another one works on."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import replica_turns
from figures import Figure
from journal_checks import not_heard
from killable import Client
from long_form import LONG, SLACK
from mcp_servers import over_http, plain, visit
from polling import until
from prompted_model import play
from replica_turns import asked, idle_everywhere, let_go, messages, new_session, ran, request, tool_running, waits
from replicas import Replicas
from turns import assert_finished, bash, call, say, task, texts, tools

from app.sessions.lease import DEAD_AFTER_MS

ROUNDS = 40 if LONG else 10
MAX_PROMPTS = 99
"""Of one session, without an answer yet: a hundredth is the last that is accepted (OPENSESSION_MAX_WAITING_PROMPTS)."""
ABORTED_WITHIN = 2.0 * SLACK
SEEN_WITHIN = 2.0 * SLACK
CONNECTED = {"status": "connected"}
SO_BE_IT = [say("Half of it, and the rest.")]


def prompt_at(at: str, name: str) -> str:
    """A prompt whose turn stays there, until `name` is let go or a person has answered."""
    first = {"tool": bash(waits(name)), "permission": bash("make it || true"), "question": replica_turns.QUESTION}
    return replica_turns.streaming(name) if at == "stream" else play([first[at]], SO_BE_IT)


async def begun(client: Client, session: str, at: str, name: str, **fields: Any) -> asyncio.Task[Any]:
    """The prompt's answer, when its turn is there."""
    answering = asyncio.create_task(client.prompt(session, prompt_at(at, name), **fields))
    if at in ("permission", "question"):
        await asked(client, session, at)
    else:
        await replica_turns.wait_until_stored(client, session, "Half" if at == "stream" else "began")
    return answering


@pytest.fixture(autouse=True)
async def tidy(replicas: Replicas, clients: list[Client]) -> AsyncIterator[None]:
    """What a test that fails leaves running is no other test's."""
    replicas.configure({"permission": {"bash": {"*": "allow", "make *": "ask"}}})
    yield
    for client in [client for client in clients if client.process.poll() is None]:
        for session in await client.get("/session/status"):
            await client.post(f"/session/{session}/abort")
    for process in replicas.left_running():
        os.kill(process, signal.SIGKILL)


async def test_a_prompt_to_another_replica_joins_the_turn(replicas: Replicas, clients: list[Client]) -> None:
    a, b, _ = clients
    async with tool_running(replicas, a, "joined") as (session, answering):
        joining = asyncio.create_task(b.prompt(session, play([say("Both are answered.")])))
        await a.condition(f"/session/{session}/message", lambda found: "Both are answered" in str(found))
        await asyncio.sleep(0.3)
        assert not joining.done() and list(await b.get("/session/status")) == [session]
        let_go(replicas, "joined")
        assert texts(await joining) == ["Both are answered."]
        assert "error" not in (await answering)["info"]
    assert_finished(await messages(b, session))
    assert ran(replicas, "joined") == 1


async def test_a_prompt_queued_on_all_replicas_gets_one_turn_of_its_own_and_a_removed_one_none(
    replicas: Replicas, clients: list[Client]
) -> None:
    a, b, c = clients
    async with tool_running(replicas, a, "ahead") as (session, answering):
        path, never = f"/session/{session}/message", {"messageID": "msg_removed", "parts": [{"type": "text", "text": "Never"}]}
        assert await request(c, "POST", path, {**never, "whenBusy": "reject"}) == 409
        prompt = play([bash("echo queued-once >> log.txt")], [say("After it.")])
        fields = {"whenBusy": "queue", "messageID": "msg_queued"}
        sent = [asyncio.create_task(client.prompt(session, prompt, **fields)) for client in clients]
        await a.condition(f"/session/{session}/queue", bool)
        body = {**never, "whenBusy": "queue"}
        removed = [asyncio.create_task(client.http.post(path, json=body)) for client in clients]
        _, queued = await a.condition(f"/session/{session}/queue", lambda found: len(found) == 2)
        await asyncio.wait([*sent, *removed], timeout=1)
        assert not any(task.done() for task in [*sent, *removed])
        assert await request(b, "DELETE", f"/session/{session}/queue/{queued['id']}") == 200
        let_go(replicas, "ahead")
        assert texts(await answering) == ["Done."]
        first, *others = await asyncio.gather(*sent)
        assert [answer.json()["name"] for answer in await asyncio.gather(*removed)] == ["NoAnswerError"] * 3
    assert texts(first) == ["After it."] and others == [first] * 2
    found = await messages(c, session)
    roles = ["user", "assistant", "assistant", "user", "assistant", "assistant"]
    assert [message["info"]["role"] for message in found] == roles and "Never" not in str(found)
    assert_finished(found)
    assert ran(replicas, "queued-once") == 1


async def test_prompts_without_ids_that_are_queued_on_several_replicas_have_their_answers(
    replicas: Replicas, clients: list[Client]
) -> None:
    """The replica that looks first begins them all."""
    async with tool_running(replicas, clients[0], "first") as (session, _):
        prompts = [play([say(f"Answer {number}.")]) for number in range(3)]
        sent = [
            asyncio.create_task(one.prompt(session, text, whenBusy="queue")) for one, text in zip(clients, prompts, strict=True)
        ]
        await clients[0].condition(f"/session/{session}/queue", lambda found: len(found) == 3)
        let_go(replicas, "first")
        answers = await asyncio.gather(*sent)
    assert [texts(answer) for answer in answers] == [[f"Answer {number}."] for number in range(3)]


async def test_a_prompt_that_a_killed_replica_had_queued_is_begun_by_another(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    async with tool_running(replicas, a, "outlived") as (session, answering):
        body = {"whenBusy": "queue", "parts": [{"type": "text", "text": play([say("Begun elsewhere.")])}]}
        assert await request(b, "POST", f"/session/{session}/prompt_async", body) == 204
        replicas.all[1].kill()
        let_go(replicas, "outlived")
        await answering
        await c.condition(f"/session/{session}/message", lambda found: "Begun elsewhere." in texts(found[-1]))
    await asyncio.to_thread(replicas.all[1].start)
    assert await c.get(f"/session/{session}/queue") == []


async def test_prompts_to_all_replicas_at_once_are_all_answered_one_call_at_a_time(
    replicas: Replicas, clients: list[Client], figure: Figure
) -> None:
    session = await new_session(clients[0])
    count = min(3 * ROUNDS, MAX_PROMPTS)
    sent = [clients[number % 3].prompt(session, f"Prompt {number}", "prompt_async") for number in range(count)]
    assert await asyncio.gather(*sent) == [True] * count
    await idle_everywhere(clients)
    found = await messages(clients[1], session)
    prompts = [message for message in found if message["info"]["role"] == "user"]
    answers = [message for message in found if message["info"]["role"] == "assistant"]
    assert len(prompts) == count and found[-1] == answers[-1]
    assert [answer["info"]["error"] for answer in answers if "error" in answer["info"]] == []
    spans = sorted((answer["info"]["time"]["created"], answer["info"]["time"]["completed"]) for answer in answers)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    figure(f"{count} prompts to three replicas: all stored, answered in {len(answers)} answers, one at a time")


@pytest.mark.parametrize("at", ["stream", "tool", "permission"])
async def test_a_prompt_sent_again_to_another_replica_waits_for_its_answer(
    replicas: Replicas, clients: list[Client], at: str
) -> None:
    name, session = f"again-{at}", await new_session(clients[0])
    sent = [await begun(clients[0], session, at, name, messageID="msg_again")]
    prompt = prompt_at(at, name)
    sent += [asyncio.create_task(client.prompt(session, prompt, messageID="msg_again")) for client in clients]
    await asyncio.wait(sent, timeout=1)
    assert not any(task.done() for task in sent), "nothing is answered yet"
    if at == "permission":
        wanted = await asked(clients[0], session)
        await clients[2].post(f"/permission/{wanted['id']}/reply", {"reply": "once"})
    replicas.model.release(name)
    let_go(replicas, name)
    first, *others = await asyncio.gather(*sent)
    assert texts(first) == ["Half of it, and the rest."] and others == [first] * 3
    found = await messages(clients[1], session)
    assert [message["info"]["role"] for message in found].count("user") == 1 and found[-1] == first
    assert ran(replicas, name) == (at == "tool")
    assert await clients[1].prompt(session, prompt, messageID="msg_again") == first, "it is answered already"
    await idle_everywhere(clients)


async def test_a_prompt_sent_again_when_its_replica_was_killed_waits_for_who_goes_on(
    replicas: Replicas, clients: list[Client]
) -> None:
    a, b, c = clients
    session = await new_session(a)
    first = await begun(a, session, "stream", "bereft", messageID="msg_bereft")
    replicas.all[0].kill()
    await asyncio.wait({first})
    prompt = prompt_at("stream", "bereft")
    again = [asyncio.create_task(client.prompt(session, prompt, messageID="msg_bereft")) for client in (b, c)]
    replicas.model.release("bereft")
    answers = await asyncio.gather(*again)
    assert [texts(answer) for answer in answers] == [["Half of it, and the rest."]] * 2
    assert all("completed" in answer["info"]["time"] for answer in answers)
    await asyncio.to_thread(replicas.all[0].start)


STALL_SECONDS = DEAD_AFTER_MS / 1000 + 3
STALL = f"""
import time

async def execute(args, context):
    with open("log.txt", "a") as log:
        log.write("stalled\\n")
    time.sleep({STALL_SECONDS})
    return "awake"

tool = {{"description": "Holds up the event loop", "execute": execute}}
"""


async def test_a_replica_whose_event_loop_stands_still_keeps_its_turns(replicas: Replicas, clients: list[Client]) -> None:
    tools_of_user = replicas.directory / "home" / ".config" / "opencode" / "tool"
    tools_of_user.mkdir(parents=True, exist_ok=True)
    (tools_of_user / "stall.py").write_text(STALL)
    a, b, _ = clients
    async with tool_running(replicas, a, "beside") as (beside, answering):
        session = await new_session(a)
        answer = await a.prompt(session, play([call("stall")], [say("So be it.")]))
        assert texts(answer) == ["So be it."] and "error" not in answer["info"]
        assert not answering.done() and list(await b.get("/session/status")) == [beside]
        let_go(replicas, "beside")
        assert "error" not in (await answering)["info"]
    for each in (session, beside):
        found = await messages(b, each)
        assert_finished(found)
        assert [tool["state"]["status"] for message in found for tool in tools(message)] == ["completed"]
    assert ran(replicas, "stalled") == 1 and ran(replicas, "beside") == 1
    (tools_of_user / "stall.py").unlink()


@pytest.mark.parametrize("at", ["stream", "tool", "permission", "question"])
async def test_an_abort_on_another_replica_ends_the_turn(
    replicas: Replicas, clients: list[Client], figure: Figure, at: str
) -> None:
    a, b, c = clients
    session = await new_session(a)
    answering = await begun(a, session, at, "aborted")
    began = time.monotonic()
    assert await b.post(f"/session/{session}/abort") is True
    took = time.monotonic() - began
    assert await c.get("/session/status") == {}
    assert [await c.get(f"/{kind}") for kind in ("permission", "question")] == [[], []]
    replicas.model.release("aborted")
    assert (await answering)["info"]["error"]["name"] == "MessageAbortedError"
    found = await messages(c, session)
    assert_finished(found)
    assert found[-1]["info"]["error"]["name"] == "MessageAbortedError"
    await until(lambda: not replicas.left_running(), seconds=5)
    assert took < ABORTED_WITHIN
    figure(f"idle {took:.2f} s after the request")


async def test_always_on_one_replica_answers_the_sessions_requests_and_holds_on_all(
    replicas: Replicas, clients: list[Client]
) -> None:
    a, b, c = clients
    step, then = bash("make always > /dev/null"), [say("So be it.")]
    first, waiting = await new_session(a), await new_session(c)
    answering = asyncio.create_task(a.prompt(first, play([step, step], then)))
    other = asyncio.create_task(c.prompt(waiting, play([step], then)))
    found = await b.condition("/permission", lambda found: len(found) == 3)
    wanted = next(one for one in found if one["sessionID"] == first)
    await b.post(f"/permission/{wanted['id']}/reply", {"reply": "always"})
    assert texts(await asyncio.wait_for(answering, 10)) == ["So be it."]
    left = [one for one in await a.get("/permission") if one["sessionID"] == waiting]
    if left:  # `always` answers the session's own requests; another session's goes on waiting
        await a.post(f"/permission/{left[0]['id']}/reply", {"reply": "once"})
    assert texts(await other) == ["So be it."]
    assert [await client.get("/permission") for client in clients] == [[]] * 3
    for client in clients:
        session = await new_session(client)
        assert texts(await asyncio.wait_for(client.prompt(session, play([step], then)), 10)) == ["So be it."]


@pytest.mark.parametrize("reply", ["reply", "reject"])
async def test_a_question_is_answered_on_another_replica(clients: list[Client], reply: str) -> None:
    a, b, c = clients
    session = await new_session(a)
    answering = asyncio.create_task(a.prompt(session, play([replica_turns.QUESTION], [say("So be it.")])))
    wanted = await asked(c, session, "question")
    assert await b.get("/question") == [wanted]
    body = {"answers": [["B"]]} if reply == "reply" else {}
    assert await c.post(f"/question/{wanted['id']}/{reply}", body) is True
    answer = await answering
    if reply == "reply":
        (answered,) = [part for message in await messages(b, session) for part in tools(message)]
        assert texts(answer) == ["So be it."] and answered["state"]["metadata"]["answers"] == [["B"]]
    assert await request(b, "POST", f"/question/{wanted['id']}/reply", {"answers": [["A"]]}) == 404


async def test_of_answers_to_one_request_on_all_replicas_one_is_accepted(
    replicas: Replicas, clients: list[Client], figure: Figure
) -> None:
    accepted = Counter[int]()
    for number in range(ROUNDS // 5):
        client, session = clients[number % 3], await new_session(clients[number % 3])
        prompt = play([bash(f"make > /dev/null; echo once{number} >> log.txt")], [say("So be it.")])
        answering = asyncio.create_task(client.prompt(session, prompt))
        wanted = await asked(clients[0], session)
        assert [await client.get("/permission") for client in clients] == [[wanted]] * 3
        path = f"/permission/{wanted['id']}/reply"
        statuses = await asyncio.gather(*(request(client, "POST", path, {"reply": "once"}) for client in clients * 3))
        accepted[sum(status == 200 for status in statuses)] += 1
        assert set(statuses) <= {200, 404, 409}
        assert texts(await answering) == ["So be it."] and ran(replicas, f"once{number}") == 1
        assert [await client.get("/permission") for client in clients] == [[]] * 3
        assert await request(clients[1], "POST", path, {"reply": "once"}) == 404
        await idle_everywhere(clients)
    figure(f"{sum(accepted.values())} requests answered 9 times at once on three replicas: {dict(accepted)} accepted by count")
    assert set(accepted) == {1}


async def test_what_excludes_a_turn_is_refused_on_every_replica(replicas: Replicas, clients: list[Client]) -> None:
    a, *others = clients
    session = await new_session(a)
    prompt = (await a.prompt(session, "Hi"))["info"]["parentID"]
    before = await messages(a, session)
    part = before[0]["parts"][0]
    excluded: list[tuple[str, str, Any]] = [
        ("POST", "shell", {"agent": "build", "command": "true"}),
        ("POST", "summarize", {"providerID": "fake", "modelID": "summary"}),
        ("POST", "revert", {"messageID": prompt}),
        ("POST", "unrevert", {}),
        ("DELETE", f"message/{prompt}", None),
        ("DELETE", f"message/{prompt}/part/{part['id']}", None),
        ("PATCH", f"message/{prompt}/part/{part['id']}", {**part, "text": "changed"}),
    ]
    async with tool_running(replicas, a, "excluded", session):
        for method, path, body in excluded:
            asking = [request(one, method, f"/session/{session}/{path}", body) for one in others]
            assert await asyncio.wait_for(asyncio.gather(*asking), 10) == [409, 409], path
    await idle_everywhere(clients)
    found = await messages(others[0], session)
    assert found[:2] == before and texts(found[-1]) == ["Done."]
    assert_finished(found)


async def test_a_fork_on_another_replica_copies_what_is_finished(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    session = await new_session(a)
    await a.prompt(session, "Hi")
    answering = await begun(a, session, "tool", "forked")
    fork = (await b.post(f"/session/{session}/fork"))["id"]
    copied = await messages(c, fork)
    assert_finished(copied)
    assert [texts(message) for message in copied[:2]] == [["Hi"], ["ok"]]
    assert texts(await c.prompt(fork, play([say("In the fork.")]))) == ["In the fork."]
    let_go(replicas, "forked")
    assert texts(await answering) == ["Half of it, and the rest."]


async def test_a_session_with_a_subagent_is_deleted_with_what_is_below_it(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    session = await new_session(a)
    await a.prompt(session, play([task(play([bash(waits("below"))]))]), "prompt_async")
    await until(lambda: ran(replicas, "below"))
    (child,) = await c.get(f"/session/{session}/children")
    assert set(await b.get("/session/status")) == {session, child["id"]}
    assert await b.delete(f"/session/{session}")
    await until(lambda: not replicas.left_running(), seconds=5)
    for client in clients:
        assert [await request(client, "GET", f"/session/{one}") for one in (session, child["id"])] == [404, 404]


async def test_a_session_with_a_queue_on_one_replica_is_deleted_on_another(replicas: Replicas, clients: list[Client]) -> None:
    """The next prompt's turn begins when the first is aborted."""
    a, b, _ = clients
    session = await new_session(a)
    for number in range(3):
        await a.prompt(session, play([bash(waits(f"queued-{number}"))]), "prompt_async", whenBusy="queue")
    await until(lambda: ran(replicas, "queued-0"))
    async with asyncio.timeout(10 * SLACK):
        assert await b.delete(f"/session/{session}")
    assert await request(a, "GET", f"/session/{session}") == 404


async def test_a_turn_of_one_replica_is_reverted_on_another(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    file = replicas.workspace / "reverted.txt"
    file.write_text("one\n")
    session = await new_session(a)
    prompt = (await a.prompt(session, play([bash("echo two > reverted.txt")], [say("Done.")])))["info"]["parentID"]
    assert (await b.post(f"/session/{session}/revert", {"messageID": prompt}))["revert"]["messageID"] == prompt
    assert file.read_text() == "one\n" and "revert" in await c.get(f"/session/{session}")
    assert "revert" not in await c.post(f"/session/{session}/unrevert")
    assert file.read_text() == "two\n"
    await a.post(f"/session/{session}/revert", {"messageID": prompt})
    assert texts(await b.prompt(session, play([say("Anew.")]))) == ["Anew."]
    assert [texts(message)[-1] for message in await messages(c, session)][1:] == ["Anew."]


async def test_a_shell_line_of_one_replica_is_aborted_on_another(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    session = await new_session(a)
    line = {"agent": "build", "command": waits("line")}
    running = asyncio.create_task(a.post(f"/session/{session}/shell", line))
    await until(lambda: ran(replicas, "line"))
    assert await request(c, "POST", f"/session/{session}/shell", line) == 409
    assert await b.post(f"/session/{session}/abort") is True
    assert await running and ran(replicas, "line") == 1
    await idle_everywhere(clients)
    assert_finished(await messages(c, session))


async def test_changes_of_different_fields_on_all_replicas_are_all_kept(clients: list[Client], figure: Figure) -> None:
    session, lost = await new_session(clients[0]), 0
    for number in range(ROUNDS):
        fields: list[dict[str, Any]] = [
            {"title": f"Title {number}"},
            {"metadata": {"number": number}},
            {"time": {"archived": float(number)}},
        ]
        path = f"/session/{session}"
        statuses = await asyncio.gather(*(request(one, "PATCH", path, body) for one, body in zip(clients, fields, strict=True)))
        assert statuses == [200] * 3
        found = [await client.get(path) for client in clients]
        kept = (found[0]["title"], found[0].get("metadata"), found[0]["time"].get("archived"))
        lost += kept != (f"Title {number}", {"number": number}, number) or found != [found[0]] * 3
    figure(f"{3 * ROUNDS} changes, three at a time: {lost} rounds with a change lost or unseen")
    assert lost == 0


async def test_what_is_shared_is_shown_on_all_replicas_as_it_grows_until_it_is_shared_no_more(
    replicas: Replicas, clients: list[Client]
) -> None:
    a, b, c = clients
    session = await new_session(a)
    path = "/s/" + (await b.post(f"/session/{session}/share"))["share"]["url"].rpartition("/s/")[2] + "/session"
    assert [await request(client, "GET", path) for client in clients] == [200] * 3
    answering = await begun(a, session, "stream", "growing")
    await b.condition(path, lambda found: "Half of it," in str(found))
    replicas.model.release("growing")
    (part,) = [part for part in (await answering)["parts"] if part["type"] == "text"]
    await b.condition(path, lambda found: "Half of it, and the rest." in str(found))
    edited = f"/session/{session}/message/{part['messageID']}/part/{part['id']}"
    assert await request(a, "PATCH", edited, {**part, "text": "Edited."}) == 200
    assert "Edited." in str(await b.get(path))
    await c.delete(f"/session/{session}/share")
    assert [await request(client, "GET", path) for client in clients] == [404] * 3


async def test_an_edit_that_waits_for_its_answer_holds_back_another_replicas(replicas: Replicas, clients: list[Client]) -> None:
    """As on one server: the second is told that the file has changed, and does not ask with a diff that is outdated."""
    replicas.configure({"permission": {"edit": "ask"}})
    a, b, c = clients
    file = replicas.workspace / "edited.txt"
    file.write_text("one two\n")

    def edit(old: str, new: str) -> str:
        change = call("edit", filePath=str(file), oldString=old, newString=new)
        return play([call("read", filePath=str(file))], [change], [say("Done.")])

    first, second = await new_session(a), await new_session(b)
    answering = [asyncio.create_task(a.prompt(first, edit("one", "1")))]
    wanted = await asked(c, first)
    answering.append(asyncio.create_task(b.prompt(second, edit("two", "2"))))
    await c.condition(f"/session/{second}/message", lambda found: "'newString': '2'" in str(found) and "running" in str(found))
    await asyncio.sleep(0.3)
    assert await b.get("/permission") == [wanted]
    await c.post(f"/permission/{wanted['id']}/reply", {"reply": "once"})
    assert [texts(answer) for answer in await asyncio.gather(*answering)] == [["Done."]] * 2
    assert file.read_text() == "1 two\n" and "has been modified since" in str(await messages(c, second))


async def test_a_replica_that_starts_ends_what_it_left_and_nothing_of_others(replicas: Replicas, clients: list[Client]) -> None:
    """And knows what was chosen while it was away."""
    a, b, c = clients
    await b.post("/mcp", {"name": "plain", "config": plain(enabled=False)})
    async with tool_running(replicas, a, "others"):
        own = await new_session(c)
        await c.prompt(own, play([bash(waits("left"))]), "prompt_async")
        await until(lambda: ran(replicas, "left"))
        others = {process for process in replicas.left_running() if b"echo others" in _command(process)}
        replicas.all[2].kill()
        await asyncio.to_thread(replicas.all[2].start)
        await until(lambda: not [process for process in replicas.left_running() if b"echo left" in _command(process)])
        assert others and others <= set(replicas.left_running())
    await _mcp_is(clients, {"plain": {"status": "disabled"}})
    await b.post("/instance/dispose")
    assert ran(replicas, "others") == 1


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_a_disposal_is_announced_on_all_replicas(replicas: Replicas, clients: list[Client]) -> None:
    async with replicas.followers() as followers:
        listening = [asyncio.Event() for _ in clients]
        seen = [asyncio.create_task(hears_disposal(*each)) for each in zip(clients, listening, strict=True)]
        for event in listening:
            await event.wait()
        await clients[1].post("/instance/dispose")
        assert await asyncio.gather(*seen) == [True] * 3
        session = await new_session(clients[0])
        assert texts(await clients[0].prompt(session, play([say("Anew.")]))) == ["Anew."]
        assert await not_heard(replicas, followers) == []


async def hears_disposal(client: Client, listening: asyncio.Event) -> bool:
    async with asyncio.timeout(10), client.http.stream("GET", "/global/event") as response:
        async for line in response.aiter_lines():
            listening.set()
            if "server.instance.disposed" in line:
                return True
    return False


async def test_a_disposal_ends_what_other_replicas_run_there(replicas: Replicas, clients: list[Client]) -> None:
    """Turns, and terminals: those are of the replica that made them, which the others say."""
    a, b, c = clients
    made = await a.post("/pty", {"command": "cat"})
    assert [each["id"] for each in await a.get("/pty")] == [made["id"]] and await b.get("/pty") == []
    assert "the server that made it" in (await b.get(f"/pty/{made['id']}", expect=404))["data"]["message"]
    async with tool_running(replicas, a, "disposed") as (session, answering):
        assert await b.post("/instance/dispose") is True
        assert [await client.get("/session/status") for client in clients] == [{}] * 3
        assert (await answering)["info"]["error"]["name"] == "MessageAbortedError"
    assert_finished(await messages(c, session))
    await a.condition("/pty", lambda found: not found)
    await until(lambda: not Path(f"/proc/{made['pid']}").exists())


async def test_what_is_chosen_for_an_mcp_server_on_one_replica_holds_on_all(replicas: Replicas, clients: list[Client]) -> None:
    a, b, c = clients
    await _mcp_is(clients, {})
    await a.post("/mcp", {"name": "plain", "config": plain()})
    await _mcp_is(clients, {"plain": CONNECTED})
    await b.post("/mcp/plain/disconnect")
    await _mcp_is(clients, {"plain": {"status": "disabled"}})
    before = replicas.head()
    await c.post("/mcp/plain/connect")
    await _mcp_is(clients, {"plain": CONNECTED})
    await _write_through(clients)
    assert _announced(replicas, "mcp.tools.changed", before) == [{"server": "plain"}]
    await b.post("/instance/dispose")
    await _mcp_is(clients, {})


async def _mcp_is(clients: list[Client], expected: dict[str, Any]) -> None:
    for client in clients:
        await client.condition("/mcp", lambda found: found == expected)


async def _write_through(clients: list[Client]) -> None:
    """What the replicas have announced before is in the journal then."""
    for client in clients:
        await new_session(client)


def _announced(replicas: Replicas, kind: str, after: int) -> list[dict[str, Any]]:
    return [event["properties"] for _, event in replicas.journal(after) if event["type"] == kind]


async def test_a_sign_in_is_finished_on_another_replica_and_holds_on_all(clients: list[Client]) -> None:
    a, b, c = clients
    try:
        with over_http("oauth") as url:
            await a.post("/mcp", {"name": "web", "config": {"type": "remote", "url": url}})
            await _mcp_is(clients, {"web": {"status": "needs_auth"}})
            back = urlsplit(await visit((await a.post("/mcp/web/auth"))["authorizationUrl"]))
            assert "Signed in" in (await b.http.get(f"{back.path}?{back.query}")).text
            await _mcp_is(clients, {"web": CONNECTED})
            assert await c.delete("/mcp/web/auth")
            await _mcp_is(clients, {"web": {"status": "needs_auth"}})
            back = urlsplit(await visit((await b.post("/mcp/web/auth"))["authorizationUrl"]))
            assert await c.post("/mcp/web/auth/callback", {"code": parse_qs(back.query)["code"][0]}) == CONNECTED
            await _mcp_is(clients, {"web": CONNECTED})
            assert await request(c, "POST", "/mcp/web/auth/callback", {"code": "x"}) == 400
    finally:
        await a.post("/instance/dispose")


async def test_a_branch_that_all_replicas_see_is_announced_once(replicas: Replicas, clients: list[Client]) -> None:
    first = [await client.get("/vcs") for client in clients]
    for number, name in enumerate(("one", "two", first[0]["branch"])):
        before = replicas.head()
        new = ["-b"] if number < 2 else []
        subprocess.run(["git", "checkout", "-q", *new, name], cwd=replicas.workspace, check=True)
        seen = await asyncio.gather(*(client.get("/vcs") for client in clients))
        assert [each["branch"] for each in seen] == [name] * 3
        await _write_through(clients)
        assert _announced(replicas, "vcs.branch.updated", before) == [{"branch": name}]


async def test_each_replica_has_an_audit_log_of_its_own(replicas: Replicas, clients: list[Client]) -> None:
    session = await new_session(clients[0])
    for number, client in enumerate(clients):
        await client.http.patch(f"/session/{session}", json={"title": str(number)})
    for replica in replicas.all:
        (log,) = (replicas.directory / "data").glob(f"audit-*-{replica.port}.log")
        line = json.loads(log.read_text().splitlines()[-1])
        assert (line["method"], line["session"]) == ("PATCH", session)
    assert not (replicas.directory / "data" / "audit.log").exists()


async def test_a_key_that_is_stored_on_one_replica_and_a_changed_configuration_are_seen_by_all(clients: list[Client]) -> None:
    async def knows_the_key() -> list[bool]:
        return ["anthropic" in (await client.get("/provider"))["connected"] for client in clients]

    assert await knows_the_key() == [False] * 3
    assert (await clients[0].http.put("/auth/anthropic", json={"type": "api", "key": "sk-none"})).status_code == 200
    assert await knows_the_key() == [True] * 3
    assert await clients[1].delete("/auth/anthropic")
    assert await knows_the_key() == [False] * 3
    for number, client in enumerate(clients):
        name = f"someone {number}"
        assert (await client.http.patch("/config", json={"username": name})).status_code == 200
        async with asyncio.timeout(SEEN_WITHIN):
            for other in clients:
                await other.condition("/config", lambda found, name=name: found.get("username") == name)
