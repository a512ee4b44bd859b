"""`/mcp-server`: the sessions as tools and resources, by the official SDK's client. What a login may not do elsewhere it may not
do here."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_clients import ERAS, called, mcp_client, refused, said
from running_app import RunningApp, running_app
from turns import bash, call, pending, requests, say, task, tools, until
from user_logins import bearer, logged_in, user

from app.providers.scripted import Fail, Say, Wait
from app.users.tokens import TokenStore

ASK = [{"permission": "bash", "pattern": "*", "action": "ask"}]
MESSAGE = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
READING = "wait_for_session list_requests list_sessions search_messages list_messages read_session diff_session preview_revert"
DESTRUCTIVE = "prompt_session answer_permission answer_question revert_session unrevert_session"
WRITES = [[say("I write it."), call("write", filePath="b.txt", content="new\n")], [say("It is written.")]]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def client(app: RunningApp) -> AsyncIterator[Client]:
    """In a task of its own: it is to be closed by the one that opened it."""
    opened: asyncio.Future[Client] = asyncio.Future()
    over = asyncio.Event()

    async def hold() -> None:
        async with mcp_client(app) as client:
            opened.set_result(client)
            await over.wait()

    holding = asyncio.create_task(hold())
    yield await opened
    over.set()
    await holding


async def prompt(client: Client, session: str, text: str = "Go", **fields: Any) -> dict[str, Any]:
    return await called(client, "prompt_session", sessionID=session, text=text, **fields)


async def waited(client: Client, session: str, **fields: Any) -> dict[str, Any]:
    return await called(client, "wait_for_session", sessionID=session, **fields)


async def create(app: RunningApp, *turns: list[Any], **fields: Any) -> str:
    """A session, in which the model answers with these turns."""
    app.provider.add(*turns)
    return str((await app.create_session(**fields))["id"])


# What there is.


async def test_tools_say_what_they_may_change(app: RunningApp, era: str) -> None:
    async with mcp_client(app, era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    hints = {name: tool.annotations for name, tool in listed.items() if tool.annotations}
    assert {name for name, hint in hints.items() if hint.read_only_hint} == set(READING.split())
    assert {name for name, hint in hints.items() if hint.destructive_hint} == set(DESTRUCTIVE.split())
    for tool in listed.values():
        assert tool.description and tool.input_schema["additionalProperties"] is False
        assert all(field["type"] for field in tool.input_schema["properties"].values())


async def test_a_session_from_its_first_prompt_to_its_transcript_as_tools_and_resources(app: RunningApp, era: str) -> None:
    app.provider.add(*WRITES)
    await app.call("PATCH", "/config", {"permission": {"edit": "allow"}})
    told: list[tuple[float, str | None]] = []

    async def progress(count: float, total: float | None, message: str | None) -> None:
        told.append((count, message))

    async with mcp_client(app, era) as client:
        session = (await called(client, "create_session", title="By another agent"))["id"]
        given = {"sessionID": session, "text": "Write b.txt"}
        result = await client.call_tool("prompt_session", given, progress_callback=progress)
        answer: dict[str, Any] = result.structured_content
        assert (answer["state"], answer["text"]) == ("idle", "It is written.") and "It is written." in said(result)
        assert [count for count, _ in told] == sorted({count for count, _ in told})
        assert any("write (completed)" in (message or "") for _, message in told)
        assert "I write it." in [message for _, message in told]
        assert (app.directory / "b.txt").read_text() == "new\n"
        (listed,) = (await called(client, "list_sessions"))["sessions"]
        assert (listed["id"], listed["title"]) == (session, "By another agent")
        assert "+new" in (await called(client, "diff_session", sessionID=session))["text"]
        transcript = (await called(client, "read_session", sessionID=session))["text"]
        assert "Write b.txt" in transcript and "It is written." in transcript
        found = await called(client, "search_messages", query="written")
        assert [each["sessionID"] for each in found["results"]] == [session]
        messages = (await called(client, "list_messages", sessionID=session))["messages"]
        assert (messages[0]["role"], messages[0]["text"]) == ("user", "Write b.txt")
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        assert uris == [f"opensession://session/{session}/{kind}" for kind in ("transcript", "diff")]
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [uri.replace(session, "{sessionID}") for uri in uris]
        texts = [(await client.read_resource(uri)).contents[0] for uri in uris]
        assert [each.mime_type for each in texts] == ["text/markdown", "text/x-diff"]
        assert "It is written." in texts[0].text and "+new" in texts[1].text


async def test_resources_come_in_pages_and_a_long_transcript_in_pieces(app: RunningApp, client: Client) -> None:
    session = await create(app, [say("é" * 3000 + " the end")])
    await app.prompt(session, "Much")
    last = await called(client, "read_session", sessionID=session, limit=100)
    size = last["size"]
    assert len(last["text"]) == 100 and last["offset"] == size - 100 and "the end" in last["text"]
    starts = range(0, size, 1000)
    pieces = [await called(client, "read_session", sessionID=session, offset=offset, limit=1000) for offset in starts]
    whole = "".join(piece["text"] for piece in pieces)
    assert len(whole) == size and "é" * 3000 in whole
    made = {session, *[await create(app) for _ in range(59)]}
    first = await client.list_resources()
    second = await client.list_resources(cursor=first.next_cursor)
    listed = {resource.uri.split("/")[3] for page in (first, second) for resource in page.resources}
    assert listed == made and second.next_cursor is None


async def test_a_directory_is_named_as_elsewhere_and_refused_where_it_is_not_theirs(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with running_app(tmp_path, roots=str(other)) as app:
        async with mcp_client(app, query=f"?directory={other}") as client:
            for named, directory in (({}, other), ({"directory": str(app.directory)}, app.directory)):
                assert (await called(client, "create_session", **named))["directory"] == str(directory)
            assert len((await called(client, "list_sessions", directory=str(other)))["sessions"]) == 1
        async with user(app, "anna", roots=[other]) as anna, mcp_client(anna) as client:
            text = await refused(client, "create_session", directory=str(app.directory))
            assert "is not a directory that you may work in" in text
            assert (await called(client, "create_session"))["directory"] == str(other)


# Turns that ask, and that end otherwise.


async def test_a_permission_is_answered(app: RunningApp, era: str) -> None:
    async with mcp_client(app, era) as client:
        for reply, status in (("once", "completed"), ("reject", "error")):
            session = await create(app, [bash("echo one")], [say()], permission=ASK, title="T")
            asking = await prompt(client, session)
            (request,) = asking["permissions"]
            assert asking["state"] == "asking" and request["patterns"] == ["echo one"]
            assert (await called(client, "list_requests"))["permissions"] == [request]
            assert (await waited(client, session))["state"] == "asking"
            await called(client, "answer_permission", requestID=request["id"], reply=reply)
            assert (await waited(client, session))["state"] == "idle"
            assert [each["state"]["status"] for each in tools(await app.messages(session))] == [status]
            assert "answered already" in await refused(client, "answer_permission", requestID=request["id"], reply=reply)


async def test_what_a_subagent_asks_is_shown_and_what_other_sessions_ask_is_not(app: RunningApp, client: Client) -> None:
    turns = [[bash("echo other")], [task()], [bash("echo one")], [say("Child.")], [say("Done.")]]
    await app.call("PATCH", "/config", {"permission": {"bash": "ask"}})
    other, session = await create(app, *turns), await create(app)
    assert (await prompt(client, other))["state"] == "asking"
    (request,) = (await prompt(client, session, "Delegate"))["permissions"]
    assert request["patterns"] == ["echo one"] and request["sessionID"] not in (session, other)
    await called(client, "answer_permission", requestID=request["id"], reply="once")
    assert (await waited(client, session))["text"] == "Done."
    await called(client, "abort_session", sessionID=other)


async def test_a_question_is_answered_or_not(app: RunningApp, client: Client) -> None:
    question = call("question", questions=[{"question": "?", "header": "W", "options": [{"label": "A", "description": "a"}]}])
    session = await create(app, [question], [say("So be it.")], [question], [say()], title="T")
    for given in ({"answers": [["A"]]}, {}):
        (request,) = (await prompt(client, session))["questions"]
        await called(client, "answer_question", requestID=request["id"], **given)
        await waited(client, session)
    assert [part["state"]["status"] for part in tools(await app.messages(session))] == ["completed", "error"]


async def test_a_call_that_waits_no_longer_leaves_the_turn_alone(app: RunningApp, client: Client) -> None:
    session = await create(app, [Wait(gate := asyncio.Event()), Say("At last.")])
    assert (await prompt(client, session, seconds=0.1))["state"] == "running"
    assert (await waited(client, session, seconds=0.1))["state"] == "running"
    gate.set()
    assert (await waited(client, session))["text"] == "At last."


async def test_a_cancelled_call_aborts_the_turn(app: RunningApp, era: str) -> None:
    """Over HTTP a call is cancelled by its end: the request is closed."""
    session = await create(app, [Say("Begun"), Wait(asyncio.Event())])
    async with mcp_client(app, era) as client:
        prompting = asyncio.create_task(prompt(client, session))
        await until(lambda: requests(app), "the request to the model")
        if era == "auto":
            prompting.cancel()
            await asyncio.wait([prompting])
    prompting.cancel()
    await until(lambda: not app.services.live.is_running(session), "the end of the turn")
    assert (await app.messages(session))[-1]["info"]["error"]["name"] == "MessageAbortedError"


async def test_a_turn_is_aborted_by_the_tool_too_and_a_failed_one_is_an_error_that_says_why(
    app: RunningApp, client: Client
) -> None:
    session = await create(app, [Say("Begun"), Wait(asyncio.Event())], [Fail(400, message="no such luck")], title="T")
    prompting = asyncio.create_task(prompt(client, session))
    await until(lambda: requests(app), "the request to the model")
    await called(client, "abort_session", sessionID=session)
    assert (await prompting)["state"] == "aborted"
    assert "no such luck" in await refused(client, "prompt_session", sessionID=session, text="Go")


async def test_a_server_that_stops_ends_the_call_and_aborts_nothing(app: RunningApp, client: Client) -> None:
    session = await create(app, [Wait(gate := asyncio.Event()), Say("Done.")])
    prompting = asyncio.create_task(client.call_tool("prompt_session", {"sessionID": session, "text": "Go"}))
    await until(lambda: requests(app), "the request to the model")
    app.services.bus.close()
    assert (await prompting).is_error
    assert app.services.live.is_running(session)
    gate.set()
    await until(lambda: not app.services.live.is_running(session))
    assert "error" not in (await app.messages(session))[-1]["info"]


# Going back.


async def test_a_revert_is_looked_at_before_it_is_done_and_undone(app: RunningApp, client: Client) -> None:
    session, file = await create(app, *WRITES), app.directory / "b.txt"
    await app.call("PATCH", "/config", {"permission": {"edit": "allow"}})
    named = {"sessionID": session, "messageID": (await prompt(client, session, "Write"))["messageID"]}
    assert "-new" in (await called(client, "preview_revert", **named))["revert"]["diff"]
    assert file.exists() and "revert" not in await app.get(f"/session/{session}")
    assert "-new" in (await called(client, "revert_session", **named))["revert"]["diff"]
    assert not file.exists()
    await called(client, "unrevert_session", sessionID=session)
    assert file.read_text() == "new\n"


async def test_a_fork_ends_where_it_is_told_to(app: RunningApp, client: Client) -> None:
    session = await create(app)
    for text in ("first", "second"):
        await prompt(client, session, text)
    messages = (await called(client, "list_messages", sessionID=session))["messages"]
    forks = [await called(client, "fork_session", sessionID=session, **at) for at in ({}, {"messageID": messages[2]["id"]})]
    assert [len(await app.messages(each["id"])) for each in forks] == [4, 2]


# Who may do what.


@pytest.fixture
async def names(app: RunningApp, anna: RunningApp) -> dict[str, str]:
    """Of anna's session, which has a message, and waits for a permission."""
    session = await create(anna, [Say("Anna's secret")], [bash("echo one")], permission=ASK, title="T")
    answer = await anna.prompt(session, "Hello")
    await anna.prompt_async(session, "Go")
    return {"sessionID": session, "messageID": answer["info"]["id"], "requestID": (await pending(anna))["id"]}


def calls_about(names: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Each tool that names a session or a request."""
    session, place = {"sessionID": names["sessionID"]}, {key: names[key] for key in ("sessionID", "messageID")}
    of_session = "wait_for_session abort_session list_messages read_session diff_session fork_session unrevert_session"
    return [
        ("prompt_session", {**session, "text": "Steal"}),
        ("answer_permission", {"requestID": names["requestID"], "reply": "once"}),
        *((tool, session) for tool in of_session.split()),
        *((tool, place) for tool in ("preview_revert", "revert_session")),
    ]


async def test_another_users_session_is_not_there(names: dict[str, str], anna: RunningApp, bert: RunningApp, era: str) -> None:
    async with mcp_client(bert, era) as client:
        assert (await called(client, "list_sessions"))["sessions"] == []
        assert (await called(client, "search_messages", query="secret"))["results"] == []
        assert (await called(client, "list_requests")) == {"permissions": [], "questions": []}
        assert (await client.list_resources()).resources == []
        for tool, arguments in calls_about(names):
            text = await refused(client, tool, **arguments)
            assert ("not found" in text or "No request" in text) and "secret" not in text, tool
        for kind in ("transcript", "diff"):
            with pytest.raises(MCPError):
                await client.read_resource(f"opensession://session/{names['sessionID']}/{kind}")
    assert [waiting["id"] for waiting in await anna.get("/permission")] == [names["requestID"]]


async def test_who_may_only_read_changes_nothing(names: dict[str, str], app: RunningApp, vera: RunningApp) -> None:
    read_only = TokenStore(app.data_dir).create("reads", user="anna", read_only=True)
    async with logged_in(app, read_only) as annas:
        for reader in (vera, annas):
            async with mcp_client(reader) as client:
                assert "secret" in (await called(client, "read_session", sessionID=names["sessionID"]))["text"]
                assert (await waited(client, names["sessionID"]))["state"] == "asking"
                for tool, arguments in [("create_session", {}), *calls_about(names)]:
                    if tool not in READING.split() or tool == "preview_revert":
                        assert "may read and change nothing" in await refused(client, tool, **arguments), tool
    for headers in ({}, bearer("wrong")):
        await app.post("/mcp-server", {}, expect=401, headers={**MESSAGE, **headers})


async def test_a_call_ends_with_its_login_and_the_audit_log_says_what_was_done_by_whom(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[Wait(asyncio.Event())]], heartbeat_seconds=0.05) as app, user(app, "anna") as anna:
        async with mcp_client(anna) as client:
            session = (await called(client, "create_session"))["id"]
            prompting = asyncio.create_task(client.call_tool("prompt_session", {"sessionID": session, "text": "Go"}))
            await until(lambda: requests(app), "the request to the model")
            TokenStore(app.data_dir).revoke("anna")
            assert (await prompting).is_error
            with pytest.raises(MCPError):
                await client.call_tool("list_sessions", {})
    lines = [json.loads(line) for line in (app.data_dir / "audit.log").read_text().splitlines()]
    created = [(line["route"], line["created"], line["who"]) for line in lines if line["created"]]
    assert created == [("/session", session, "user anna, token anna")]
    assert {line["route"] for line in lines} >= {"/session", "/mcp-server"}


async def test_prompts_have_their_rate_and_event_streams_of_waiting_calls_count(tmp_path: Path) -> None:
    async with running_app(tmp_path, prompt_rate="2/hour", max_event_streams=1) as app, mcp_client(app) as client:
        session = await create(app)
        async with app.events():
            text = await refused(client, "prompt_session", sessionID=session, text="One")
        assert "OPENSESSION_MAX_EVENT_STREAMS" in text and await app.messages(session) == []
        for _ in range(2):
            await prompt(client, session)
        assert "OPENSESSION_PROMPT_RATE" in await refused(client, "prompt_session", sessionID=session, text="Two")


# What clients send.


PROMPT = {"sessionID": "ses_1", "text": "x"}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("prompt_session", {"text": "x"}, "sessionID"),
    ("prompt_session", {"sessionID": "ses_1"}, "text"),
    ("prompt_session", {**PROMPT, "text": ""}, "text"),
    ("prompt_session", {**PROMPT, "model": "none"}, "model"),
    ("prompt_session", {**PROMPT, "seconds": -1}, "seconds"),
    ("prompt_session", {**PROMPT, "seconds": "nan"}, "seconds"),
    ("prompt_session", {**PROMPT, "tools": {}}, "tools"),
    *(("read_session", {"sessionID": wrong}, "sessionID") for wrong in ("ses/../../config", "ses_1?directory=/etc", "ses_1\n")),
    ("read_session", {"sessionID": ["ses_1"]}, "sessionID"),
    ("read_session", {"sessionID": "ses_1", "limit": 10**9}, "limit"),
    ("read_session", {"sessionID": "ses_1", "offset": -1}, "offset"),
    ("answer_permission", {"requestID": "per/../x", "reply": "once"}, "requestID"),
    ("answer_permission", {"requestID": "per_1", "reply": "forever"}, "reply"),
    ("answer_question", {"requestID": "que_1", "answers": "A"}, "answers"),
    ("revert_session", {"sessionID": "ses_1", "messageID": 7}, "messageID"),
    ("list_sessions", {"limit": 0}, "limit"),
    ("search_messages", {"query": ""}, "query"),
    ("search_messages", {"query": "   "}, "query"),
    ("search_messages", {"query": "x", "cursor": "none"}, "cursor"),
    ("create_session", {"title": "x" * 1001}, "title"),
    ("create_session", {"owner": "root"}, "owner"),
]


async def test_an_error_names_the_field_and_what_is_unknown(client: Client) -> None:
    for tool, arguments, field in WRONG:
        assert field in await refused(client, tool, **arguments), (tool, arguments)
    of_session = "opensession://session/ses_1"
    for uri in ("file:///etc/passwd", f"{of_session}/../transcript", f"{of_session}/secret", "opensession://", "x"):
        with pytest.raises(MCPError, match="uri"):
            await client.read_resource(uri)
    with pytest.raises(MCPError, match="no tool"):
        await client.call_tool("delete_everything", {})
    assert "ses_1" in await refused(client, "read_session", sessionID="ses_1")
    with pytest.raises(MCPError, match="cursor"):
        await client.list_resources(cursor="none")


async def test_bodies_have_the_bounds_of_every_route(tmp_path: Path) -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + b'{"a":' * 300 + b"1" + b"}" * 301
    bodies = ((b"x" * 100_001, 413), (deep, 400), (b"{", 400), (b"", 400), (b"[" + b"1," * 30_000 + b"1]", 400))
    async with running_app(tmp_path, max_body_bytes=100_000) as app:
        for content, status in bodies:
            await app.call("POST", "/mcp-server", headers=MESSAGE, content=content, expect=status)
        await app.post("/mcp-server?workspace=wrk_1", {}, headers=MESSAGE, expect=404)
        for method in ("GET", "DELETE", "PUT"):
            await app.call(method, "/mcp-server", headers=MESSAGE, expect=405)
        await app.post("/mcp-server", {}, headers={**MESSAGE, "content-type": "text/plain"}, expect=415)
