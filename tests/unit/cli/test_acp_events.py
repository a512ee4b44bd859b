"""What becomes of an editor's sessions when their events, or a call of the server, go wrong; the tokens that it is told of."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import acp
import pytest
from acp import RequestError, schema

from app.cli.acp.agent import EditorAgent
from app.cli.acp.editor_server import INTERNAL, NOT_FOUND, DirectoryFeed
from app.cli.acp.editor_session import EditorSession
from app.cli.acp.transcript import EditorTranscript, EditorTurn, context_used

Json = dict[str, Any]

INFO = {"id": "ses_1", "directory": "/work", "title": "One"}


class Server:
    """Answers by `answers`; what it raises stands there too. Its events are those that are put into `coming`."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.coming: asyncio.Queue[Json] = asyncio.Queue()
        self.readers = 0

    async def api(self) -> "Server":
        return self

    async def get(self, path: str, /, **_: Any) -> Any:
        self.asked.append(path)
        found = self.answers.get(path.rpartition("/")[2], [])
        if isinstance(found, Exception):
            raise found
        return found

    post = get

    async def post_slow(self, path: str, body: Json, **_: Any) -> None:
        self.asked.append(f"{path} {body.get('command')}")

    async def events(self, directory: str) -> AsyncGenerator[Json, None]:
        self.readers += 1
        try:
            yield {"type": "server.connected", "properties": {}}
            while True:
                yield await self.coming.get()
        finally:
            self.readers -= 1


class Editor:
    def __init__(self) -> None:
        self.told: list[Any] = []

    async def session_update(self, session_id: str, update: Any) -> None:
        self.told.append(update)


def session(server: Server) -> EditorSession:
    choices = type("Choices", (), {"of_command": dict, "context_size": 0})
    return EditorSession(server, Editor(), schema.ClientCapabilities(), INFO, choices)


async def test_a_feed_that_an_event_breaks_reads_no_more() -> None:
    server, lost = Server(), asyncio.Event()

    async def deliver(event: Json) -> None:
        raise RequestError(INTERNAL, event["type"])

    feed = DirectoryFeed(server, "/work", deliver, lambda *_: lost.set())
    await feed.open()
    server.coming.put_nowait({"type": "session.idle", "properties": {}})
    async with asyncio.timeout(5):
        await lost.wait()
        while server.readers:
            await asyncio.sleep(0)


async def test_what_a_session_asked_that_is_gone_breaks_no_feed() -> None:
    server = Server(ses_gone=RequestError(NOT_FOUND, "Session not found: ses_gone"))
    agent = EditorAgent(server, keeps_turns=True)
    await agent._deliver({"type": "permission.asked", "properties": {"id": "per_1", "sessionID": "ses_gone"}})
    assert server.asked == ["/session/ses_gone"]


async def test_a_gap_in_the_events_of_a_session_that_is_gone_breaks_no_feed() -> None:
    server = Server(message=RequestError(NOT_FOUND, "Session not found: ses_1"))
    agent = EditorAgent(server, keeps_turns=True)
    agent._sessions["ses_1"] = open_one = session(server)
    await open_one.open(agent._deliver)
    await agent._deliver({"type": "server.resync", "properties": {}})
    await open_one.close()


async def test_a_list_of_commands_that_failed_once_is_asked_for_again() -> None:
    server = Server(command=RequestError(INTERNAL, "the server cannot be reached"))
    editing = session(server)
    await editing.open(lambda _: asyncio.sleep(0))
    await asyncio.sleep(0.01)
    server.answers["command"] = [{"name": "review"}]

    async def followed(_: str) -> None:
        """The feed is there."""

    turn = asyncio.create_task(editing.prompt([acp.text_block("/review all")], followed))
    async with asyncio.timeout(5):
        while "/session/ses_1/command review" not in server.asked and not turn.done():
            await asyncio.sleep(0)
        await editing.take({"type": "session.deleted", "properties": {"sessionID": "ses_1", "info": INFO}})
        with pytest.raises(RequestError, match="was deleted"):
            await turn
    await editing.close()


def part(number: int, status: str) -> Json:
    ids = {"id": f"prt_{number}", "messageID": "msg_1", "callID": f"call_{number}"}
    return {**ids, "type": "tool", "tool": "read", "state": {"status": status, "input": {}, "output": "", "error": ""}}


@pytest.mark.parametrize("end", ["completed", "error"])
def test_a_subagents_call_that_nobody_was_asked_about_is_remembered_until_its_end(end: str) -> None:
    transcript = EditorTranscript(INFO)
    for status in ("pending", "running"):
        assert transcript.subagent_updates({"type": "message.part.updated", "properties": {"part": part(1, status)}}) == []
        assert transcript.running_call("msg_1", "call_1") == part(1, status)
    assert transcript.subagent_updates({"type": "message.part.updated", "properties": {"part": part(1, end)}}) == []
    assert transcript.running_call("msg_1", "call_1") is None


def step(output: int, reasoning: int) -> dict[str, Any]:
    """`output` includes `reasoning`, as in every part of a session."""
    return {"input": 100, "output": output, "reasoning": reasoning, "cache": {"read": 30, "write": 4}}


async def test_each_token_is_of_one_kind_and_the_total_is_their_sum() -> None:
    turn = EditorTurn("msg_1", step_tokens=[step(50, 20), step(7, 0)])
    usage = turn.usage()
    assert usage is not None
    kinds = (usage.input_tokens, usage.output_tokens, usage.thought_tokens, usage.cached_read_tokens, usage.cached_write_tokens)
    assert kinds == (200, 37, 20, 60, 8) and usage.total_tokens == sum(kinds) == 325


def test_the_window_holds_reasoning_once() -> None:
    assert context_used(step(50, 20)) == 184
