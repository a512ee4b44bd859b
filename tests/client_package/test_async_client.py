"""The async client against a real server: callbacks, several prompts at once, the event stream over a connection that breaks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest
from cable import cable
from running_server import RunningServer

from opensession_client import AsyncEventStream, AsyncOpensession, UnknownEvent, models, operations
from opensession_client.events import parse_event

ASK = [models.Rule(permission="bash", pattern="*", action="ask")]
SECONDS = 120


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncOpensession]:
    async with AsyncOpensession(server.base) as opened:
        yield opened


def prompt_of(text: str) -> models.PromptInput:
    return models.PromptInput(parts=[models.TextPartInput(text=text)])


async def test_callbacks_may_be_async(client: AsyncOpensession) -> None:
    async def permit(request: models.PermissionRequest) -> Literal["once"]:
        await asyncio.sleep(0)
        return "once"

    async def choose(request: models.QuestionRequest) -> list[list[str]]:
        await asyncio.sleep(0)
        return [["blue"]]

    session = await client.create_session(permission=ASK)
    ran = await client.prompt(session.id, "run echo hello", on_permission=permit)
    asked = await client.prompt(session.id, "ask Which colour: red, blue", on_question=choose)
    states = [part.state.status for answer in (ran, asked) for part in answer.parts if isinstance(part, models.ToolPart)]
    assert states == ["completed", "completed"]


async def test_prompts_at_once_get_their_own_answers_and_permissions(client: AsyncOpensession) -> None:
    permitted: dict[str, list[str]] = {}

    async def answer(number: int) -> str:
        session = await client.create_session(permission=ASK)

        def permit(request: models.PermissionRequest) -> Literal["once"]:
            permitted.setdefault(request.session_id, []).extend(request.patterns)
            return "once"

        answer = await client.prompt(session.id, f"run echo number {number}", on_permission=permit)
        [call] = [part for part in answer.parts if isinstance(part, models.ToolPart)]
        assert permitted[session.id] == [f"echo number {number}"]
        return call.state.model_dump_json()

    outputs = await asyncio.gather(*(answer(number) for number in range(6)))
    assert all(f"number {number}" in output for number, output in enumerate(outputs))


async def test_a_prompt_that_joins_another_is_answered_too(client: AsyncOpensession) -> None:
    session = await client.create_session()
    async with client.stream() as events:
        first = asyncio.create_task(client.prompt(session.id, "long 60"))
        await anext(event async for event in events if isinstance(event, models.EventMessagePartDelta))
    second = await client.prompt(session.id, "long 3")
    assert (await first).text and second.text.split() == ["tok0", "tok1", "tok2"]


async def test_a_prompt_that_comes_before_an_answer_is_read_is_no_part_of_it(
    client: AsyncOpensession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await client.create_session()
    call = client.call

    async def call_and_ask(operation: Any, **options: Any) -> Any:
        result = await call(operation, **options)
        if operation.path == "/session/status" and session.id not in result:
            await call(operations.session_prompt_async(session.id, prompt_of("ask Which colour: red, blue")))
            while not await call(operations.question_list(directory=session.directory)):
                await asyncio.sleep(0.01)
        return result

    monkeypatch.setattr(client, "call", call_and_ask)
    answer = await client.prompt(session.id, "long 3")
    assert answer.text.split() == ["tok0", "tok1", "tok2"]
    await client.abort(session.id)


async def test_a_cancelled_prompt_leaves_nothing_open(client: AsyncOpensession) -> None:
    session = await client.create_session()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.prompt(session.id, "run sleep 120")
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    await client.abort(session.id)


async def stored_texts(client: AsyncOpensession, session_id: str) -> dict[str, str]:
    messages = await client.call(operations.session_messages(session_id))
    return {part.id: part.text for message in messages for part in message.parts if isinstance(part, models.TextPart)}


def fold(texts: dict[str, str], event: Any) -> None:
    """What a program shows that knows nothing but the stream."""
    if isinstance(event, models.EventMessagePartUpdated) and isinstance(event.properties.part, models.TextPart):
        texts[event.properties.part.id] = event.properties.part.text
    if isinstance(event, models.EventMessagePartDelta) and event.properties.part_type == "text":
        texts[event.properties.part_id] = texts.get(event.properties.part_id, "") + event.properties.delta


async def test_a_stream_misses_and_doubles_nothing_while_its_connection_breaks(server: RunningServer) -> None:
    texts: dict[str, str] = {}
    ids: list[int] = []
    is_over, not_told = False, 0  # `not_told`: sessions that were created and of which no event has come
    with cable(server.port) as wire:
        async with AsyncOpensession(wire.base) as client, asyncio.timeout(SECONDS):
            direct = AsyncOpensession(server.base)
            session = await direct.create_session()
            async with client.stream() as events:
                await direct.call(operations.session_prompt_async(session.id, prompt_of("long 200")))
                async for event in events:
                    fold(texts, event)
                    ids += [int(events.last_event_id)] if events.last_event_id else []
                    if isinstance(event, models.EventMessagePartDelta) and len(ids) % 10 == 0:
                        wire.cut()
                        not_told += 1
                        await direct.create_session()
                    not_told -= isinstance(event, models.EventSessionCreated)
                    is_over = is_over or isinstance(event, models.EventSessionIdle)
                    if is_over and not_told == 0:
                        break
            stored = await stored_texts(direct, session.id)
            await direct.aclose()
    assert ids == sorted(ids)
    assert texts == stored and len(max(stored.values(), key=len).split()) == 200


def impatient(client: AsyncOpensession) -> AsyncEventStream:
    """After two seconds of silence it connects again."""
    options = {"directory": None, "parts": "delta", "last_event_id": None, "reconnect_seconds": None}
    return AsyncEventStream(client.http, **options, silence_seconds=2)


class SilentServer:
    """Greets its first client and says nothing more; to the second it sends an event."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        greeting = b'id: 5\ndata: {"id":"evt_1","type":"server.connected","properties":{}}\n\n'
        event = b'id: 6\ndata: {"id":"evt_2","type":"session.idle","properties":{"sessionID":"ses_1"}}\n\n'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        writer.write(greeting if len(self.requests) == 1 else event)
        await writer.drain()
        await reader.read()
        writer.close()


async def test_a_connection_that_falls_silent_is_made_again() -> None:
    silent = SilentServer()
    async with await asyncio.start_server(silent.serve, "127.0.0.1", 0) as server, asyncio.timeout(SECONDS):
        port = server.sockets[0].getsockname()[1]
        async with AsyncOpensession(f"http://127.0.0.1:{port}") as client, impatient(client) as events:
            assert [type(await anext(events)) for _ in range(2)] == [models.EventServerConnected, models.EventSessionIdle]
    assert ["last-event-id: 5" in request for request in silent.requests] == [False, True]


async def test_a_stream_goes_on_where_an_earlier_one_ended(client: AsyncOpensession) -> None:
    async with client.stream() as events:
        await client.create_session("first")
        await anext(event async for event in events if isinstance(event, models.EventSessionCreated))
        newest = events.last_event_id
    await client.create_session("second")
    async with client.stream(last_event_id=newest) as events:
        created = await anext(event async for event in events if isinstance(event, models.EventSessionCreated))
    assert created.properties.info.title == "second"


async def test_an_event_id_that_is_too_old_is_answered_with_a_resync(client: AsyncOpensession) -> None:
    async with client.stream(last_event_id="999999999") as events:
        seen = [await anext(events), await anext(events)]
        assert isinstance(seen[1], models.EventServerResync) and events.last_event_id != "999999999"
    unknown = parse_event('{"type": "moon.risen", "properties": {"phase": "full"}}')
    assert unknown == UnknownEvent("moon.risen", {"phase": "full"}), "an event of an unknown type is passed on"
