"""`/mcp-server`: the sessions as tools and resources, by the official SDK's client. What a login may not do elsewhere it may not
do here."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from mcp_clients import ERAS, called, mcp_client, refused, said
from running_app import RunningApp, running_app
from turns import bash, call, configured, pending, requests, say, task, tools, until
from user_logins import add_user, bearer, logged_in, user

from app.providers.scripted import Fail, Say, Wait
from app.users.tokens import TokenStore

ASK = {"permission": {"bash": "ask"}}
ALLOW = {"permission": {"bash": "allow", "edit": "allow"}}
MESSAGE = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
READING = {
    "wait_for_session",
    "list_requests",
    "list_sessions",
    "search_messages",
    "list_messages",
    "read_session",
    "diff_session",
    "preview_revert",
}
DESTRUCTIVE = {"prompt_session", "answer_permission", "answer_question", "revert_session", "unrevert_session"}


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# What there is.


async def test_tools_say_what_they_may_change(app: RunningApp, era: str) -> None:
    async with mcp_client(app, era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {name for name, tool in listed.items() if tool.annotations and tool.annotations.read_only_hint} == READING
    assert {name for name, tool in listed.items() if tool.annotations and tool.annotations.destructive_hint} == DESTRUCTIVE
    for tool in listed.values():
        assert tool.description and tool.input_schema["additionalProperties"] is False
        assert all(field["type"] for field in tool.input_schema["properties"].values())


async def test_a_session_from_its_first_prompt_to_its_transcript(tmp_path: Path, era: str) -> None:
    turns = [[say("I write it."), call("write", filePath="b.txt", content="new\n")], [say("It is written.")]]
    told: list[tuple[float, str | None]] = []

    async def progress(count: float, total: float | None, message: str | None) -> None:
        told.append((count, message))

    async with running_app(tmp_path, turns=turns, workspace=configured(tmp_path, ALLOW)) as app, mcp_client(app, era) as client:
        session = await called(client, "create_session", title="By another agent")
        given = {"sessionID": session["id"], "text": "Write b.txt"}
        result = await client.call_tool("prompt_session", given, progress_callback=progress)
        answer: dict[str, Any] = result.structured_content
        assert (answer["state"], answer["text"]) == ("idle", "It is written.")
        assert "It is written." in said(result)
        assert [count for count, _ in told] == sorted({count for count, _ in told})
        assert any("write (completed)" in (message or "") for _, message in told)
        assert "I write it." in [message for _, message in told]
        assert (app.directory / "b.txt").read_text() == "new\n"
        (listed,) = (await called(client, "list_sessions"))["sessions"]
        assert (listed["id"], listed["title"]) == (session["id"], "By another agent")
        assert "+new" in (await called(client, "diff_session", sessionID=session["id"]))["text"]
        transcript = (await called(client, "read_session", sessionID=session["id"]))["text"]
        assert "Write b.txt" in transcript and "It is written." in transcript
        found = await called(client, "search_messages", query="written")
        assert [each["sessionID"] for each in found["results"]] == [session["id"]]
        messages = (await called(client, "list_messages", sessionID=session["id"]))["messages"]
        assert (messages[0]["role"], messages[0]["text"]) == ("user", "Write b.txt")


async def test_resources_are_transcripts_and_diffs(tmp_path: Path, era: str) -> None:
    turns = [[call("write", filePath="b.txt", content="new\n")], [say("Written.")]]
    async with running_app(tmp_path, turns=turns, workspace=configured(tmp_path, ALLOW)) as app, mcp_client(app, era) as client:
        session = await app.create_session(title="Seen")
        await app.prompt(session["id"], "Write")
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        assert uris == [f"opensession://session/{session['id']}/{kind}" for kind in ("transcript", "diff")]
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [uri.replace(session["id"], "{sessionID}") for uri in uris]
        texts = [(await client.read_resource(uri)).contents[0] for uri in uris]
        assert [each.mime_type for each in texts] == ["text/markdown", "text/x-diff"]
        assert "Written." in texts[0].text and "+new" in texts[1].text  # type: ignore[union-attr]


async def test_resources_come_in_pages_and_a_long_transcript_in_pieces(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[say("é" * 3000 + " the end")]]) as app, mcp_client(app) as client:
        session = (await app.create_session())["id"]
        await app.prompt(session, "Much")
        last = await called(client, "read_session", sessionID=session, limit=100)
        assert len(last["text"]) == 100 and last["offset"] == last["size"] - 100 and "the end" in last["text"]
        pieces = [
            (await called(client, "read_session", sessionID=session, offset=offset, limit=1000))["text"]
            for offset in range(0, last["size"], 1000)
        ]
        assert len("".join(pieces)) == last["size"] and "é" * 3000 in "".join(pieces)
        made = {session, *[(await app.create_session())["id"] for _ in range(59)]}
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        listed = {resource.uri.split("/")[3] for page in (first, second) for resource in page.resources}
        assert listed == made and second.next_cursor is None


async def test_a_directory_is_named_as_elsewhere_and_refused_where_it_is_not_theirs(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with running_app(tmp_path, roots=str(other)) as app:
        async with mcp_client(app, query=f"?directory={other}") as client:
            assert (await called(client, "create_session"))["directory"] == str(other)
            made = await called(client, "create_session", directory=str(app.directory))
            assert made["directory"] == str(app.directory)
            assert len((await called(client, "list_sessions", directory=str(other)))["sessions"]) == 1
        async with user(app, "anna", roots=[other]) as anna, mcp_client(anna) as client:
            text = await refused(client, "create_session", directory=str(app.directory))
            assert "is not a directory that you may work in" in text
            assert (await called(client, "create_session"))["directory"] == str(other)


# Turns that ask, and that end otherwise.


@pytest.mark.parametrize(("reply", "state"), [("once", "completed"), ("reject", "error")])
async def test_a_permission_is_answered(tmp_path: Path, era: str, reply: str, state: str) -> None:
    turns = [[bash("echo one")], [say()]]
    async with running_app(tmp_path, workspace=configured(tmp_path, ASK), turns=turns) as app, mcp_client(app, era) as client:
        session = (await app.create_session())["id"]
        asking = await called(client, "prompt_session", sessionID=session, text="Go")
        (request,) = asking["permissions"]
        assert asking["state"] == "asking" and request["patterns"] == ["echo one"]
        assert (await called(client, "list_requests"))["permissions"] == [request]
        assert (await called(client, "wait_for_session", sessionID=session))["state"] == "asking"
        await called(client, "answer_permission", requestID=request["id"], reply=reply)
        assert (await called(client, "wait_for_session", sessionID=session))["state"] == "idle"
        assert [each["state"]["status"] for each in tools(await app.messages(session))] == [state]
        assert "answered already" in await refused(client, "answer_permission", requestID=request["id"], reply=reply)


async def test_what_a_subagent_asks_is_shown_and_what_other_sessions_ask_is_not(tmp_path: Path) -> None:
    turns = [[bash("echo other")], [task()], [bash("echo one")], [say("Child.")], [say("Done.")]]
    async with running_app(tmp_path, workspace=configured(tmp_path, ASK), turns=turns) as app, mcp_client(app) as client:
        other, session = [(await app.create_session())["id"] for _ in range(2)]
        assert (await called(client, "prompt_session", sessionID=other, text="Go"))["state"] == "asking"
        (request,) = (await called(client, "prompt_session", sessionID=session, text="Delegate"))["permissions"]
        assert request["patterns"] == ["echo one"] and request["sessionID"] not in (session, other)
        await called(client, "answer_permission", requestID=request["id"], reply="once")
        assert (await called(client, "wait_for_session", sessionID=session))["text"] == "Done."
        await called(client, "abort_session", sessionID=other)


async def test_a_question_is_answered_or_not(tmp_path: Path) -> None:
    question = {"question": "Which?", "header": "W", "options": [{"label": "A", "description": "a"}]}
    turns = [[call("question", questions=[question])], [say("So be it.")], [call("question", questions=[question])], [say()]]
    async with running_app(tmp_path, turns=turns) as app, mcp_client(app) as client:
        session = (await app.create_session(title="T"))["id"]
        for given in ({"answers": [["A"]]}, {}):
            (request,) = (await called(client, "prompt_session", sessionID=session, text="Go"))["questions"]
            await called(client, "answer_question", requestID=request["id"], **given)
            await called(client, "wait_for_session", sessionID=session)
        states = [part["state"]["status"] for part in tools(await app.messages(session))]
    assert states == ["completed", "error"]


async def test_a_call_that_waits_no_longer_leaves_the_turn_alone(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with running_app(tmp_path, turns=[[Wait(gate), Say("At last.")]]) as app, mcp_client(app) as client:
        session = (await app.create_session())["id"]
        assert (await called(client, "prompt_session", sessionID=session, text="Go", seconds=0.1))["state"] == "running"
        assert (await called(client, "wait_for_session", sessionID=session, seconds=0.1))["state"] == "running"
        gate.set()
        assert (await called(client, "wait_for_session", sessionID=session))["text"] == "At last."


async def test_a_cancelled_call_aborts_the_turn(tmp_path: Path, era: str) -> None:
    """Over HTTP a call is cancelled by its end: the request is closed."""
    turns = [[Say("Begun"), Wait(asyncio.Event())]]
    async with running_app(tmp_path, turns=turns) as app:
        session = (await app.create_session())["id"]
        async with mcp_client(app, era) as client:
            prompt = asyncio.create_task(client.call_tool("prompt_session", {"sessionID": session, "text": "Go"}))
            await until(lambda: requests(app), "the request to the model")
            if era == "auto":
                prompt.cancel()
                await asyncio.wait([prompt])
        prompt.cancel()
        await until(lambda: not app.services.live.is_running(session), "the end of the turn")
        error = (await app.messages(session))[-1]["info"]["error"]
    assert error["name"] == "MessageAbortedError"


async def test_a_turn_is_aborted_by_the_tool_too_and_a_failed_one_is_an_error_that_says_why(tmp_path: Path) -> None:
    turns = [[Say("Begun"), Wait(asyncio.Event())], [Fail(400, message="no such luck")]]
    async with running_app(tmp_path, turns=turns) as app, mcp_client(app) as client:
        session = (await app.create_session(title="T"))["id"]
        prompt = asyncio.create_task(called(client, "prompt_session", sessionID=session, text="Go"))
        await until(lambda: requests(app), "the request to the model")
        await called(client, "abort_session", sessionID=session)
        assert (await prompt)["state"] == "aborted"
        assert "no such luck" in await refused(client, "prompt_session", sessionID=session, text="Go")


async def test_a_server_that_stops_ends_the_call_and_aborts_nothing(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with running_app(tmp_path, turns=[[Wait(gate), Say("Done.")]]) as app, mcp_client(app) as client:
        session = (await app.create_session())["id"]
        prompt = asyncio.create_task(client.call_tool("prompt_session", {"sessionID": session, "text": "Go"}))
        await until(lambda: requests(app), "the request to the model")
        app.services.bus.close()
        assert (await prompt).is_error
        assert app.services.live.is_running(session)
        gate.set()
        await until(lambda: not app.services.live.is_running(session))
        assert "error" not in (await app.messages(session))[-1]["info"]


# Going back.


async def test_a_revert_is_looked_at_before_it_is_done_and_undone(tmp_path: Path) -> None:
    turns = [[call("write", filePath="b.txt", content="new\n")], [say()]]
    async with running_app(tmp_path, turns=turns, workspace=configured(tmp_path, ALLOW)) as app, mcp_client(app) as client:
        session, file = (await app.create_session())["id"], app.directory / "b.txt"
        answer = await called(client, "prompt_session", sessionID=session, text="Write")
        named = {"sessionID": session, "messageID": answer["messageID"]}
        assert "-new" in (await called(client, "preview_revert", **named))["revert"]["diff"]
        assert file.exists() and "revert" not in await app.get(f"/session/{session}")
        assert "-new" in (await called(client, "revert_session", **named))["revert"]["diff"]
        assert not file.exists()
        await called(client, "unrevert_session", sessionID=session)
        assert file.read_text() == "new\n"


async def test_a_fork_ends_where_it_is_told_to(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[say("One.")], [say("Two.")]]) as app, mcp_client(app) as client:
        session = (await app.create_session())["id"]
        for text in ("first", "second"):
            await called(client, "prompt_session", sessionID=session, text=text)
        messages = (await called(client, "list_messages", sessionID=session))["messages"]
        whole = await called(client, "fork_session", sessionID=session)
        part = await called(client, "fork_session", sessionID=session, messageID=messages[2]["id"])
        assert [len(await app.messages(each["id"])) for each in (whole, part)] == [4, 2]


# Who may do what.


@pytest.fixture
async def marked(tmp_path: Path) -> AsyncIterator[tuple[RunningApp, dict[str, str]]]:
    """A server on which anna's session has a message, and waits for a permission."""
    turns = [[Say("Anna's secret")], [bash("echo one")]]
    async with running_app(tmp_path, workspace=configured(tmp_path, ASK), turns=turns) as app:
        async with user(app, "anna", roots=[app.directory]) as anna:
            session = (await anna.create_session())["id"]
            answer = await anna.prompt(session, "Hello")
            await anna.prompt_async(session, "Go")
            request = await pending(anna)
            yield app, {"sessionID": session, "messageID": answer["info"]["id"], "requestID": request["id"]}


def calls_about(names: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Each tool that names a session or a request."""
    session, message = {"sessionID": names["sessionID"]}, {"messageID": names["messageID"]}
    return [
        ("prompt_session", {**session, "text": "Steal"}),
        ("wait_for_session", session),
        ("abort_session", session),
        ("answer_permission", {"requestID": names["requestID"], "reply": "once"}),
        ("list_messages", session),
        ("read_session", session),
        ("diff_session", session),
        ("fork_session", session),
        ("preview_revert", {**session, **message}),
        ("revert_session", {**session, **message}),
        ("unrevert_session", session),
    ]


async def test_another_users_session_is_not_there(marked: tuple[RunningApp, dict[str, str]], era: str) -> None:
    app, names = marked
    async with user(app, "bert", roots=[app.directory]) as bert, mcp_client(bert, era) as client:
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
    (waiting,) = await app.get("/permission", headers=bearer(TokenStore(app.data_dir).create("operator")))
    assert waiting["id"] == names["requestID"]


async def test_who_may_only_read_changes_nothing(marked: tuple[RunningApp, dict[str, str]]) -> None:
    app, names = marked
    read_only = TokenStore(app.data_dir).create("reads", user="anna", read_only=True)
    for token in (await add_user(app, "vera", "viewer"), read_only):
        async with logged_in(app, token) as reader, mcp_client(reader) as client:
            assert "secret" in (await called(client, "read_session", sessionID=names["sessionID"]))["text"]
            assert (await called(client, "wait_for_session", sessionID=names["sessionID"]))["state"] == "asking"
            for tool, arguments in [("create_session", {}), *calls_about(names)]:
                if tool not in READING or tool == "preview_revert":
                    assert "may read and change nothing" in await refused(client, tool, **arguments), tool


async def test_without_a_login_there_is_nothing(marked: tuple[RunningApp, dict[str, str]]) -> None:
    app, _ = marked
    for headers in ({}, bearer("wrong")):
        response = await app.client.post("/mcp-server", headers={**MESSAGE, **headers}, json={})
        assert response.status_code == 401


async def test_a_call_ends_with_its_login(tmp_path: Path) -> None:
    turns = [[Wait(asyncio.Event())]]
    async with (
        running_app(tmp_path, turns=turns, heartbeat_seconds=0.05) as app,
        user(app, "anna", roots=[app.directory]) as anna,
    ):
        async with mcp_client(anna) as client:
            session = (await called(client, "create_session"))["id"]
            prompt = asyncio.create_task(client.call_tool("prompt_session", {"sessionID": session, "text": "Go"}))
            await until(lambda: requests(app), "the request to the model")
            TokenStore(app.data_dir).revoke("anna")
            assert (await prompt).is_error
            with pytest.raises(MCPError):
                await client.call_tool("list_sessions", {})


async def test_prompts_have_their_rate(tmp_path: Path) -> None:
    async with running_app(tmp_path, prompt_rate="1/hour") as app, mcp_client(app) as client:
        session = (await app.create_session())["id"]
        await called(client, "prompt_session", sessionID=session, text="One")
        assert "OPENSESSION_PROMPT_RATE" in await refused(client, "prompt_session", sessionID=session, text="Two")


async def test_event_streams_of_waiting_calls_count(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_event_streams=1) as app, app.events(), mcp_client(app) as client:
        session = (await app.create_session())["id"]
        assert "OPENSESSION_MAX_EVENT_STREAMS" in await refused(client, "prompt_session", sessionID=session, text="One")
        assert await app.messages(session) == []


async def test_the_audit_log_says_what_was_done_by_whom(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, user(app, "anna", roots=[app.directory]) as anna, mcp_client(anna) as client:
        session = (await called(client, "create_session"))["id"]
    lines = [json.loads(line) for line in (app.data_dir / "audit.log").read_text().splitlines()]
    created = [line for line in lines if line["created"]]
    assert [(line["route"], line["created"], line["who"]) for line in created] == [("/session", session, "user anna, token anna")]
    assert {line["route"] for line in lines} == {"/session", "/mcp-server"}


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


async def test_an_error_names_the_field(app: RunningApp) -> None:
    async with mcp_client(app) as client:
        for tool, arguments, field in WRONG:
            assert field in await refused(client, tool, **arguments), (tool, arguments)
        of_session = "opensession://session/ses_1"
        for uri in ("file:///etc/passwd", f"{of_session}/../transcript", f"{of_session}/secret", "opensession://", "x"):
            with pytest.raises(MCPError, match="uri"):
                await client.read_resource(uri)


async def test_unknown_tools_sessions_and_cursors_are_errors(app: RunningApp) -> None:
    async with mcp_client(app) as client:
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("delete_everything", {})
        assert "ses_1" in await refused(client, "read_session", sessionID="ses_1")
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="none")


async def test_bodies_have_the_bounds_of_every_route(tmp_path: Path) -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + b'{"a":' * 300 + b"1" + b"}" * 301
    async with running_app(tmp_path, max_body_bytes=100_000) as app:
        for content, status in (
            (b"x" * 100_001, 413),
            (deep, 400),
            (b"{", 400),
            (b"", 400),
            (b"[" + b"1," * 30_000 + b"1]", 400),
        ):
            response = await app.client.post("/mcp-server", headers=MESSAGE, content=content)
            assert response.status_code == status, content[:40]
        assert (await app.client.post("/mcp-server?workspace=wrk_1", headers=MESSAGE, json={})).status_code == 404
        for method in ("GET", "DELETE", "PUT"):
            assert (await app.client.request(method, "/mcp-server", headers=MESSAGE)).status_code == 405, method
        assert (
            await app.client.post("/mcp-server", headers={**MESSAGE, "content-type": "text/plain"}, content=b"{}")
        ).status_code == 415
